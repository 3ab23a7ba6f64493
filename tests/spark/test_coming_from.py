"""The settings and the changes of the course, as docs/coming-from.md has them, end in its one final file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from lakeward import Lakeward
from lakeward.config import parse_config
from lakeward.session.sessions import session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs/coming-from.md"
PERSONS = [(key, f"Person {key}", "Phoenix" if key == 7 else "Denver") for key in range(1, 13)]
CHANGES = """U,7,ABC XYZ,Phoenix
I,130,Alica Bing,New York
I,131,Malinda Bing,Detroit
I,132,Chandler Bing,Portland
U,8,ABC XYZ,Denver
D,10,Jack Hicks,Houston
"""


def test_the_course_ends_in_one_file_at_a_fixed_name(tmp_path: Path, spark: SparkSession) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## From the course")[2]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    for address in ("s3://mysql-cdc-bucket", "s3://final-bucket"):
        assert address in block
        block = block.replace(address, address.removeprefix("s3://"))
    folder = tmp_path / "mysql-cdc-bucket/ahmad_schema/Persons"
    folder.mkdir(parents=True)
    (folder / "LOAD00000001.csv").write_text("".join(f"{key},{name},{city}\n" for key, name, city in PERSONS))
    (folder / "20240405-003052555.csv").write_text(CHANGES)
    config = parse_config({**yaml.safe_load(block), "state": "sqlite:///state.db"}, base=tmp_path)
    with Lakeward(config, spark=session_for(spark, config)) as lake:
        assert lake.run().exit_code == 0
        # An event that comes twice changes nothing.
        (folder / "20240405-003052555.csv").touch()
        assert lake.run().exit_code == 0
    expected = {key: (name, city) for key, name, city in PERSONS}
    expected |= {7: ("ABC XYZ", "Phoenix"), 8: ("ABC XYZ", "Denver")}
    expected |= {130: ("Alica Bing", "New York"), 131: ("Malinda Bing", "Detroit"), 132: ("Chandler Bing", "Portland")}
    del expected[10]
    final = (tmp_path / "final-bucket/ahmad_schema.Persons/final.csv").read_text()
    assert final == "".join(f"{key},{name},{city}\n" for key, (name, city) in sorted(expected.items()))
