"""The report of durations is read back by test runs, which begin with the longest files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.durations import file_seconds, longest_first

SCRIPT = Path(__file__).parents[2] / "scripts" / "durations.py"
RESULTS = """<testsuites><testsuite name="pytest">
<testcase file="tests/a/test_x.py" classname="tests.a.test_x" name="test_short" time="0.25" />
<testcase file="tests/a/test_x.py" classname="tests.a.test_x.TestCase" name="test_long[1 s]" time="2.5" />
<testcase file="tests/test_y.py" classname="tests.test_y" name="test_longest" time="70.04" />
</testsuite></testsuites>"""
REPORT = """
    70.0  tests/test_y.py
     2.8  tests/a/test_x.py

    70.0  tests/test_y.py::test_longest
     2.5  tests/a/test_x.py::TestCase::test_long[1 s]
"""


def test_files_and_long_tests_are_listed_longest_first(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(RESULTS)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "results.xml")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    head, body = printed.split("\n\n", 1)
    assert head.splitlines()[1] == "# 3 tests in 2 files, 73 s in all processes together"
    assert f"\n{body}" == REPORT


def test_runs_begin_with_the_longest_files_and_those_that_are_not_known_by_their_marks(tmp_path: Path) -> None:
    (tmp_path / "durations.txt").write_text(f"# Seconds\n{REPORT}")
    known = file_seconds(tmp_path / "durations.txt")
    assert known == {"tests/test_y.py": 70.0, "tests/a/test_x.py": 2.8}
    files = ["tests/test_new.py", "tests/a/test_x.py", "tests/test_slow.py", "tests/test_y.py"]
    assert longest_first(files, known, slow={"tests/test_slow.py"}) == [
        "tests/test_y.py", "tests/test_slow.py", "tests/a/test_x.py", "tests/test_new.py",
    ]  # fmt: skip
    assert file_seconds(tmp_path / "none.txt") == {}
