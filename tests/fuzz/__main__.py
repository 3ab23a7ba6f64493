"""``python -m tests.fuzz``: fuzz for a while, print how many inputs were tried, keep what breaks a target.

An input that ends the process is found in .cache/fuzz/TARGET.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.engine import fuzz, keep
from tests.fuzz.targets import TARGETS


def main() -> int:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--seconds", type=float, default=60, help="time for each target  [default: 60]")
    parser.add_argument("--seed", type=int, default=1, help="another number tries other inputs  [default: 1]")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(names):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    last = Path(".cache", "fuzz")
    last.mkdir(parents=True, exist_ok=True)
    total, broken = 0, 0
    for target in TARGETS:
        if given.targets and target.name not in given.targets:
            continue
        outcome = fuzz(target, seconds=given.seconds, seed=given.seed, under_test=last / target.name)
        total += outcome.executions
        print(f"{target.name:15} {outcome.executions:>9,} executions, {len(outcome.failures)} failures", flush=True)
        for reason, data in {reason[:120]: data for data, reason in outcome.failures}.items():
            broken += 1
            print(f"  {reason!r}\n    kept as {keep(target, data)}", flush=True)
    print(f"{total:,} executions, {broken} kinds of failures")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
