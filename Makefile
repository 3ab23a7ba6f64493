# Works in a fresh clone on Debian or Ubuntu with Python 3.11 or newer, git and make. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
# Not to be set from outside: what it names is removed.
override DEMO := .demo
# Tests without JVM and servers; those with servers and without Spark; and the others, each of three processes with a
# Spark application of its own: they often wait for a server, a lease or a clock, so that three keep two cores busy.
SHARED := --dist loadfile --no-loadscope-reorder
QUICK := tests/unit tests/fuzz
SERVED := tests/browser tests/packaging tests/services tests/state
WITH_SPARK := $(foreach folder,$(QUICK) $(SERVED),--ignore $(folder))
# What the last make test left for make durations.
RESULTS := .cache/tests
MEASURED := --cov --cov-report= --cov-fail-under=0
# Seconds for each target of make fuzz, and a number that makes it try other inputs.
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1
# Further arguments: make test PYTEST="-k late -x"
PYTEST ?=

.PHONY: help setup setup-python setup-demo lint docs check check-pythons test durations demo package bench bench-cassandra spark35 soak fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install everything that is missing: uv, Java 17, Python packages, jars, a browser
	@scripts/bootstrap.sh test

setup-python:
	@scripts/bootstrap.sh check

setup-demo:
	@scripts/bootstrap.sh demo

lint: setup-python ## ruff, mypy and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: setup-python ## the documentation as a site in .cache/site; fails on broken links and anchors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint docs ## lint, types, layers, the site and the tests that need no JVM: under a minute
	$(BIN)/pytest $(QUICK) $(SHARED) --numprocesses 2 $(PYTEST)

check-pythons: setup ## the tests without a JVM and a few with one, on the lowest and the highest Python of this machine
	@scripts/pythons.sh $(PYTEST)

test: setup lint docs ## check, and all tests with the coverage floor
	$(BIN)/pytest $(QUICK) $(SERVED) $(SHARED) --numprocesses 3 $(MEASURED) --junitxml $(RESULTS)/without-spark.xml $(PYTEST)
	$(BIN)/pytest $(WITH_SPARK) $(SHARED) --numprocesses 3 $(MEASURED) --cov-append --junitxml $(RESULTS)/with-spark.xml $(PYTEST)
	$(BIN)/coverage report

durations: ## write tests/durations.txt from what the last make test left: the longest tests first
	$(BIN)/python scripts/durations.py $(RESULTS)/*.xml > tests/durations.txt

demo: setup-demo ## load a sample shop, change it, show before and after
	@$(BIN)/lakeward demo $(DEMO) --force

package: setup-python ## wheel, entry script, dependencies and Lambda archives for AWS and clusters, in dist/
	@$(BIN)/python scripts/package.py

bench: setup ## measure against a plain MERGE
	$(BIN)/python -m benchmarks

bench-cassandra: setup ## measure against the Spark connector and a plain loop with the driver
	$(BIN)/python -m benchmarks.cassandra

spark35: setup ## tests of the core on Spark 3.5, as Glue and EMR have it
	@scripts/spark35.sh

soak: setup ## the tests that run for minutes
	$(BIN)/pytest -m soak --dist worksteal --numprocesses 3 $(PYTEST)

fuzz: setup-python ## hostile input for every reader, a minute each (FUZZ_SECONDS=…, FUZZ_SEED=…); prints how much was tried
	$(BIN)/python -X faulthandler -m tests.fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

clean: ## remove what the targets made; the jar cache in the home folder stays
	rm -rf .venv .venv35 .cache $(DEMO) dist .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
