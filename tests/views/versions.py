"""A table with days to ask for, and short ways to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.spark.scene import TABLE

if TYPE_CHECKING:
    from lakeward.api.snapshots import SnapshotReport
    from tests.spark.scene import Scene

SETTINGS = {
    "schema": "id int, name string, sold date, seen timestamp, price decimal(10,2), raw binary",
    "primary_key": "id",
    "timestamp_column": "cdc_timestamp",
    "cdc_start": "2020-11-13",
}
# The load's own time is later than the first changes.
LOADED = "2020-11-20 08:00:00"


def line(operation: str, commit: str, key: int, name: str, sold: str = "NULL", seen: str = "NULL") -> str:
    """Return one record: operation, commit time, and the table's columns."""
    return f"{operation},{commit},{key},{name},{sold},{seen},1.50,00ff"


def set_up(scene: Scene, **settings: Any) -> None:
    """Load three rows and change them over three days, as Berlin counts them, in a file named the day after."""
    scene.configure({TABLE: {**SETTINGS, **settings}}, timezone="Europe/Berlin")
    scene.land(
        "LOAD00000001.csv",
        line("I", LOADED, 1, "one", "2020-01-01", "2020-01-01 23:30:00.123456"),
        line("I", LOADED, 2, "two", "2020-01-02", "2020-01-02 10:00:00"),
        line("I", LOADED, 3, "three"),
    )
    # 22:30 UTC is still the 13th in Berlin, 23:30 the 14th.
    scene.land(
        "20201115-000000000.csv",
        line("U", "2020-11-13 22:30:00", 1, "one on 13th", "2020-01-02", "2020-01-01 23:30:00.123456"),
        line("U", "2020-11-13 23:30:00", 2, "NULL", "2020-01-02"),
        line("D", "2020-11-14 12:00:00", 3, "NULL"),
        line("I", "2020-11-15 00:30:00", 4, "four", "2020-01-04", "2020-01-04 10:00:00"),
    )
    scene.run()


def create(scene: Scene, as_of: str, **options: Any) -> SnapshotReport:
    """Ask for a version of the one table, as files in the scene's folder unless a tag is wanted."""
    if "tag" not in options:
        options.setdefault("to", str(scene.folder / "out"))
    [report] = scene.lakeward.snapshots.create([TABLE], as_of=as_of, **options)
    return report


def made(scene: Scene, as_of: str, **options: Any) -> str:
    """Create a version, require that it is done, and give its place."""
    report = create(scene, as_of, **options)
    assert report.outcome == "done", report.message
    return str(report.location)


def refused(scene: Scene, as_of: str, **options: Any) -> SnapshotReport:
    """Require that a version is refused as wrong input."""
    report = create(scene, as_of, **options)
    assert (report.outcome, report.exit_code) == ("failed", 2), report
    return report


def names(scene: Scene, location: str) -> dict[int, str | None]:
    """Key to name of a version's rows; a key found twice is an error."""
    rows = scene.lakeward.snapshots.read(location).collect()
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows), f"a key is there more than once: {rows}"
    return found


def states(scene: Scene) -> dict[str, str]:
    """Version to state."""
    return {version.version: str(version.state) for version in scene.lakeward.snapshots.list()}
