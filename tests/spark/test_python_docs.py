"""The examples of docs/python.md run, one after the other, in the folder of a demo."""

import re
from pathlib import Path

from lakeward import Lakeward, play_demo, write_demo

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_examples_run(spark, tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 4
    with Lakeward.open(write_demo(tmp_path)) as lake:
        assert play_demo(lake, tmp_path).ok
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
