"""Write tests/fixtures/previous_version.tar.xz: a small lake as this version of Lakeward leaves it.

Run at each release, with the code of that release: ``.venv/bin/python scripts/previous_version.py``. It needs Java, the
extra ``cassandra`` and about three minutes. ``tests/spark/test_previous_version.py`` opens the archive with later code.

Iceberg keeps absolute paths in metadata, manifests and delete files. The lake is therefore written at one fixed place,
and tests unpack it there: nothing in it is rewritten, so it is exactly what this version wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from lakeward.cli.main import cli
from lakeward.demo.cassandra import shop

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path("/tmp/lakeward-previous-version")
ARCHIVE = Path(__file__).parents[1] / "tests/fixtures/previous_version.tar.xz"
_EXPORTS = "exports"
_ANSWERS = "answers"
_CONFIGURATION = """
defaults: {on_bad_row: quarantine, landing_times: trusted, reload_settle: 0, undo_window: 36500d}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: "2", spark.driver.memory: 1g}}
tables:
  sales.product:
    schema: "id int, name string, dept string, price decimal(10,2)"
    primary_key: id
    partition_by: dept
  sales.customer:
    schema: "id bigint, name string, city string"
    primary_key: id
    timestamp_column: at
    format_version: 3
  sales.visit:
    schema: "page string, seconds double, at timestamp"
    csv: {header: true}
    publish: {to: ./published}
"""
_QUERIES = {
    "product": "SELECT * FROM sales.product ORDER BY id",
    "customer": "SELECT * FROM sales.customer ORDER BY id",
    "visit": "SELECT * FROM sales.visit ORDER BY at, page",
    "tagged": "SELECT * FROM sales.customer VERSION AS OF 'before_move' ORDER BY id",
    "customer_history": "SELECT * FROM sales_history.customer ORDER BY id, valid_from",
}
# What is asked of the lake once it is written; both are kept in it. No answer depends on the time of day.
_QUESTIONS: dict[str, tuple[str, ...]] = {
    **{name: ("sql", query) for name, query in _QUERIES.items()},
    "row_history": ("history", "sales.customer", "--key", "id=1"),
    "moved_row": ("history", "sales.customer", "--key", "id=7"),
    "changes": ("changes", "sales.product"),
    "scd2": ("scd2", "sales.customer"),
    "quarantine": ("quarantine", "list"),
    "runs": ("runs",),
    "tables": ("tables", "list"),
    "difference": ("diff", "mirror:sales.customer@op:2", "published/sales.customer/version=op-3"),
    "exports": ("cassandra", "diff", "previous", "latest", "--in", f"{_EXPORTS}/shop/orders", "--dry-run"),
}


def call(*arguments: str) -> Any:
    """Run a command with ``--output json`` in this process and return its document."""
    done = CliRunner().invoke(cli, [*arguments, "--output", "json"], prog_name="lakeward")
    if done.exit_code:
        msg = f"{' '.join(arguments)}: exit code {done.exit_code}\n{done.output}"
        raise RuntimeError(msg) from done.exception
    return json.loads(done.stdout)


def land(table: str, name: str, lines: Sequence[str]) -> None:
    """Write a CSV file of landing."""
    path = Path("landing", *table.split("."), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def land_customers(name: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write a Parquet file of customers; a changed key is known by its before image."""
    names = ["id", "name", "city", "at"]
    if not name.startswith("LOAD"):
        names = ["Op", *names, "BI_id", "AR_H_CHANGE_SEQ"]
    path = Path("landing/sales/customer", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]), path)


def set_times(folder: Path, moment: datetime) -> None:
    """Give files that were landed now a time in whole seconds, as archives and replication tools have it."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mtime > moment.timestamp() + 86_400 * 365:
            os.utime(path, (moment.timestamp(), moment.timestamp()))


def run(day: int) -> None:
    """Take what was landed on a day of January 2024."""
    set_times(Path("landing"), datetime(2024, 1, day, 12, tzinfo=UTC))
    call("run")


def write_lake() -> None:
    """Load, change, reload, undo, erase, tag and publish."""
    land("sales.product", "LOAD00000001.csv", ["1,Nut,tools,0.10", "2,Bolt,tools,0.20", "3,Saw,tools,9.99"])
    land_customers("LOAD00000001.parquet", [(key, f"Customer {key}", "Rome", _at(1)) for key in range(1, 6)])
    land(
        "sales.visit",
        "LOAD00000001.csv",
        ["page,seconds,at", "home,1.5,2024-01-01 00:00:00", "home,1.5,2024-01-01 00:00:00"],
    )
    run(1)
    land(
        "sales.product",
        "20240102-000000000.csv",
        ["U,1,Nut,tools,0.11", "I,x,Odd,garden,1.00", "D,2,,,", "I,4,Rake,garden,7.50"],
    )
    land_customers(
        "20240102-000000000.parquet",
        [
            ("U", 1, "Ann", "Oslo", _at(2), 1, "01"),
            ("D", 2, None, None, _at(2), 2, "02"),
            ("I", 6, "Zoë", None, _at(2), None, "03"),
        ],
    )
    land("sales.visit", "20240102-000000000.csv", ["Op,page,seconds,at", "I,cart,2.25,2024-01-02 00:00:00"])
    run(2)
    call("snapshot", "create", "sales.customer", "--as-of", "op:2", "--tag", "before_move")
    call("snapshot", "create", "sales.customer", "--as-of", "op:2", "--to", "published")
    land_customers(
        "20240103-000000000.parquet",
        [("U", 7, "Customer 3", "Rome", _at(3), 3, "04"), ("U", 1, "Anna", "Oslo", _at(3), 1, "05")],
    )
    run(3)
    call("snapshot", "create", "sales.customer", "--as-of", "op:3", "--to", "published")
    call("scd2", "sales.customer", "--table")
    versions = [f"published/sales.customer/version=op-{op}" for op in (2, 3)]
    call("diff", *versions, "--to", "changes")
    (change_set,) = Path("changes").rglob("_manifest.json")
    call("patch", versions[0], str(change_set.parent), "--to", "patched")
    reload_product()


def reload_product() -> None:
    """Load a table again, take a batch back and erase a row."""
    land("sales.product", "LOAD00000001.csv", ["1,Nut,tools,0.12", "4,Rake,garden,7.50", "5,Spade,garden,8.00"])
    land("sales.product", "20240105-130000000.csv", ["U,5,Spade,garden,8.25", "I,9,Private,garden,1.00"])
    run(5)
    call("snapshot", "create", "sales.product", "--as-of", "op:3", "--to", "published", "--format", "csv")
    land("sales.product", "20240106-000000000.csv", ["U,1,Wrong,tools,99.00"])
    run(6)
    last = call("status", "sales.product")["tables"][0]["op"]
    skipped = "sales/product/20240106-000000000.csv"
    call("undo", "sales.product", "--to-op", str(last - 1), "--skip-file", skipped, "--yes")
    erased = ("--key", "id=9", "--reason", "request 1", "--landing", "--yes", "--receipt", "receipt.json")
    call("erase", "sales.product", *erased)
    # The erasure rewrote a landing file now: it gets a time that archives keep, and the run takes note of that.
    run(7)


def _at(day: int) -> str:
    return f"2024-01-{day:02} 00:00:00.000000"


def write_exports() -> None:
    """Export a small table of a local Cassandra twice, and what changed in between."""
    shop.CUSTOMERS, shop.ORDERS_EACH, shop.ROWS = 40, 3, 120
    call("demo", "cassandra", "demo")
    shutil.move(f"demo/{_EXPORTS}", _EXPORTS)
    shutil.rmtree("demo")


def write_answers() -> None:
    """Keep what this version answers."""
    Path(_ANSWERS).mkdir()
    for name, arguments in _QUESTIONS.items():
        found = json.dumps({"question": arguments, "answer": call(*arguments)}, indent=1, ensure_ascii=False)
        Path(_ANSWERS, f"{name}.json").write_text(found + "\n", encoding="utf-8")


def pack() -> None:
    """Write the archive; owners and the machine's name are left out."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = int(member.mtime)
        return member

    ARCHIVE.parent.mkdir(exist_ok=True)
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        archive.add(FOLDER, ".", filter=anonymous)


def main() -> None:
    """Write the lake anew and pack it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o700)
    os.chdir(FOLDER)
    Path("lakeward.yaml").write_text(_CONFIGURATION, encoding="utf-8")
    write_lake()
    write_exports()
    write_answers()
    pack()
    sys.stdout.write(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
