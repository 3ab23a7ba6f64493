#!/usr/bin/env bash
# Runs tests of the core on Spark 3.5, which Glue and EMR have. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv35/bin/python
uv venv --quiet --allow-existing --python 3.11 .venv35
# Everything as it is pinned, but for pyspark and the bridge that comes with it.
uv export --quiet --all-extras --no-hashes --no-emit-project | grep --invert-match --extended-regexp '^(pyspark|py4j|-e )' \
  | uv pip install --quiet --python "$python" --requirement - 'pyspark==3.5.*'
uv pip install --quiet --python "$python" --no-deps --editable .
tests=(tests/spark/test_files.py tests/spark/test_rows.py tests/spark/test_schema.py tests/spark/test_strategies.py)
# PySpark 3.5 itself uses what Python 3.11 and pandas have deprecated.
exec "$python" -m pytest -W ignore::DeprecationWarning -W ignore::FutureWarning "${@:-"${tests[@]}"}"
