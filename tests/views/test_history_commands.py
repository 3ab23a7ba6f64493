"""The commands history, scd2 and changes on a real lake, and the example of the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.commands import invoke

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
CONFIGURATION = """
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: "2", spark.driver.memory: 1g}}
tables:
  sales.product: {primary_key: id, timestamp_column: ts, schema: "id int, name string, price decimal(10,2)"}
"""


def document(*arguments: str) -> Any:
    result = invoke(*arguments, "--output", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.usefixtures("spark")
def test_commands_and_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "landing/sales/product"
    folder.mkdir(parents=True)
    (tmp_path / "lakeward.yaml").write_text(CONFIGURATION)
    (folder / "LOAD00000001.csv").write_text("2023-12-31 00:00:00,7,a,1.00\n2023-12-31 00:00:00,8,b,1.00\n")
    (folder / "20240102-000000000.csv").write_text("U,2024-01-02 00:00:00,7,a,2.00\nD,2024-01-02 00:00:00,8,b,1.00\n")
    monkeypatch.chdir(tmp_path)
    assert invoke("run").exit_code == 0
    found = document("history", "sales.product", "--key", "id=7")
    assert [(change["operation"], change["verdict"], change["after"]) for change in found["changes"]] == [
        ("L", "won", {"id": 7, "name": "a", "price": "1.00"}),
        ("U", "won", {"price": "2.00"}),
    ]
    assert found["now"] == {"id": 7, "name": "a", "price": "2.00"}
    never = invoke("history", "sales.product", "--key", "id=9")
    assert (never.exit_code, never.stdout) == (0, "sales.product id=9: no such row, now or in the past\n")
    wrong = invoke("history", "sales.product", "--key", "id=x")
    assert wrong.exit_code == 2 and "is not a value of the key column id" in wrong.stderr
    shown = invoke("history", "sales.product", "--key", "id=8").stdout
    assert "gone" in shown and "sales.product id=8 now: no such row" in shown

    versions = document("scd2", "sales.product")["versions"]
    assert [(version["id"], version["valid_to"], version["operation"]) for version in versions] == [
        (7, "2024-01-02T00:00:00Z", "L"), (7, None, "U"), (8, "2024-01-02T00:00:00Z", "L"),
    ]  # fmt: skip
    [kept] = document("scd2", "sales.product", "--table", "--track", "name")["histories"]
    assert (kept["history"], kept["action"], kept["rows"]) == ("sales_history.product", "built", 2)
    assert "current" in invoke("scd2", "--refresh").stdout
    assert invoke("scd2").exit_code == invoke("scd2", "sales.product", "--refresh").exit_code == 2

    feed = document("changes", "sales.product", "--from", "op:1")
    assert (feed["to"], feed["position"], feed["is_cut"]) == ("op:2", 2, False)
    assert [(change["_lw_operation"], change["id"]) for change in feed["changes"]] == [("U", 7), ("D", 8)]
    assert document("changes", "sales.product", "--limit", "1")["position"] is None, "a job would lose what is cut off"
    header, *rows = invoke("changes", "sales.product", "--output", "csv").stdout.splitlines()
    assert header.startswith("_lw_op,_lw_generation,_lw_operation") and len(rows) == 4

    [example] = re.findall(r"```python\n(.*?)```", (DOCS / "history.md").read_text("utf-8"), re.DOTALL)
    exec(compile(example, "history.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "1 L won None {'id': 7, 'name': 'a', 'price': Decimal('1.00')}",
        "2 U won {'price': Decimal('1.00')} {'price': Decimal('2.00')}",
        "1 products now",
        "2 versions kept in sales_history.product",
        "2 changes; go on after op 2",
    ]
