"""Verification finds exactly what is wrong with a mirror, and repair puts exactly that right."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.model import OpKind
from lakeward.views.verification import verify
from tests.spark.crash import crash_at, leave_branches, steps_of
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source, check_books

if TYPE_CHECKING:
    from lakeward.views.verification.report import TableVerification
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

CRASHED = steps_of("repair")
MIRROR = "lake.sales.product"
ROWS = tuple(f"{key},row {key},x,{key}.00" for key in range(1, 21))


def verified(scene: Scene, **options: Any) -> TableVerification:
    return scene.lakeward.verify([TABLE], **options).tables[0]


def damage(scene: Scene, *statements: str) -> None:
    """Let something other than Lakeward write to the mirror."""
    for statement in statements:
        scene.lakeward.spark.sql(statement.format(mirror=MIRROR))


def counts(found: TableVerification) -> tuple[int, int, int]:
    return found.missing, found.extra, found.different


def test_a_foreign_row_stops_the_table_is_found_and_repaired(scene: Scene) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    source.change("20240101-000000000.csv", "U,1,changed,y,2.00", "D,2,,,0", "I,30,new,z,3.00")
    scene.run()
    clean = verified(scene)
    assert (clean.verdict, clean.basis, clean.exit_code, clean.rows_found) == ("clean", "files", 0, 20), clean
    [status] = scene.lakeward.status()
    assert status.verified is not None and status.verified.op == 2
    assert status.verified.content_hash == clean.content_hash
    damage(scene, "INSERT INTO {mirror} VALUES (99, 'foreign', 'x', 1.00)")
    refused = scene.refused()
    assert refused.message is not None and "op 2 left 20" in refused.message
    assert refused.hint is not None and "lakeward verify" in refused.hint
    found = verified(scene)
    assert (found.verdict, found.exit_code, counts(found)) == ("different", 1, (0, 1, 0))
    [finding] = found.findings
    assert (finding.kind, finding.key, finding.row) == (
        "extra", {"id": "99"}, {"id": "99", "name": "foreign", "dept": "x", "price": "1.00"},
    )  # fmt: skip
    assert scene.lakeward.status()[0].verified is None
    repaired = verified(scene, repair=True)
    assert repaired.repair is not None and (repaired.repair.kind, repaired.repair.op) == (OpKind.REPAIR, 3)
    assert repaired.verified is not None and repaired.verified.op == 3
    assert scene.rows() == source.rows()
    source.change("20240102-000000000.csv", "U,3,after the repair,y,2.00")
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)
    assert verified(scene, basis="changelog").verdict == "clean"


def test_random_damage_is_found_and_repaired_exactly(scene: Scene) -> None:
    scene.table(rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *[f"{key},row {key},x,{key}.00" for key in range(1, 61)])
    source.change("20240101-000000000.csv", *[f"U,{key},changed,NULL,1.00" for key in range(1, 20, 2)])
    scene.run()
    right, random = scene.rows(), Random(7)
    for basis in ("files", "changelog"):
        keys = random.sample(range(1, 61), 20)
        removed, doubled, renamed, emptied = (keys[at : at + 5] for at in (0, 5, 10, 15))
        damage(
            scene,
            f"DELETE FROM {{mirror}} WHERE id IN {tuple(removed)}",
            f"INSERT INTO {{mirror}} SELECT * FROM {{mirror}} WHERE id IN {tuple(doubled)}",
            f"UPDATE {{mirror}} SET name = 'damaged' WHERE id IN {tuple(renamed)}",
            f"UPDATE {{mirror}} SET name = NULL, price = NULL WHERE id IN {tuple(emptied)}",
            "INSERT INTO {mirror} VALUES (NULL, 'no key', NULL, NULL), (77, NULL, NULL, NULL), (77, NULL, NULL, NULL)",
        )
        found = verified(scene, basis=basis, repair=True, limit=1000)
        assert counts(found) == (5, 8, 10), found
        assert (found.rows_found, found.rows_expected) == (63, 60)
        assert found.columns == {"name": 10, "price": 5}
        reported = {(finding.kind, finding.key["id"], finding.column) for finding in found.findings}
        assert reported == {
            *(("missing", str(key), None) for key in removed),
            *(("extra", str(key), None) for key in doubled),
            ("extra", None, None),
            ("extra", "77", None),
            *(("different", str(key), "name") for key in (*renamed, *emptied)),
            *(("different", str(key), "price") for key in emptied),
        }
        assert sum(finding.times for finding in found.findings if finding.kind == "extra") == 8
        assert found.repair is not None and found.verified is not None and found.message is None
        assert (found.repair.writes, found.repair.removals) == (20, 2)
        assert scene.rows() == right
    check_books(scene)


def test_damage_of_a_table_without_key_is_found_and_repaired_exactly(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": SCHEMA}})
    source = Source(scene, keyless=True)
    source.load("LOAD00000001.csv", "1,twice,x,1.00", "1,twice,x,1.00", "2,once,x,1.00", "3,once,x,1.00")
    source.change("20240101-000000000.csv", "I,1,twice,x,1.00", "I,4,new,x,1.00")
    scene.run()
    damage(
        scene,
        "INSERT INTO {mirror} VALUES (1, 'twice', 'x', 1.00), (9, NULL, NULL, NULL)",
        "DELETE FROM {mirror} WHERE id = 2",
        "UPDATE {mirror} SET name = 'changed' WHERE id = 3",
    )
    found = verified(scene, repair=True)
    assert counts(found) == (2, 3, 0), found
    kinds = Counter((finding.kind, (finding.row or {})["name"], finding.times) for finding in found.findings)
    assert kinds == {
        ("extra", "twice", 1): 1, ("extra", None, 1): 1, ("missing", "once", 1): 2, ("extra", "changed", 1): 1,
    }  # fmt: skip
    assert scene.rows() == source.rows()
    assert verified(scene, sample=0.5).verdict == "clean"
    check_books(scene)
    with_range = verified(scene, key_ranges=["id=1..2"])
    assert (with_range.verdict, with_range.exit_code) == ("failed", 2)


def test_a_part_of_the_keys_is_looked_at_and_not_taken_for_all(scene: Scene) -> None:
    Source(scene).load("LOAD00000001.csv", *ROWS)
    scene.run()
    damage(scene, "UPDATE {mirror} SET name = 'damaged' WHERE id IN (3, 15)")
    low = verified(scene, key_ranges=["id=..10"])
    assert (low.part, low.rows_found, counts(low)) == ("keys with id=..10", 10, (0, 0, 1))
    assert verified(scene, key_ranges=["id=4..14"]).verdict == "clean"
    assert scene.lakeward.status()[0].verified is None
    half = verified(scene, sample=0.5, basis="changelog")
    assert half.part is not None and half.rows_found is not None and 0 < half.rows_found < 20
    refused = [verified(scene, key_ranges=[key_range]) for key_range in ("name=a..b", "id=a..b")]
    assert [(report.exit_code, report.verdict) for report in refused] == [(2, "failed")] * 2
    assert "'a' is not a value" in (refused[1].message or "")


def test_files_that_are_gone_or_changed_leave_the_changelog_as_basis(scene: Scene) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    gone = source.change("20240101-000000000.csv", "U,1,changed,y,2.00")
    scene.run()
    content = gone.read_bytes()
    gone.write_bytes(content.replace(b"changed", b"CHANGED"))
    found = verified(scene)
    assert (found.verdict, found.basis) == ("clean", "changelog")
    assert "20240101-000000000.csv has other content" in (found.reason or "")
    gone.unlink()
    assert "1 of 2 consumed files" in (verified(scene).reason or "")
    refused = verified(scene, basis="files")
    assert (refused.verdict, refused.exit_code) == ("failed", 3)
    assert "20240101-000000000.csv is gone" in (refused.message or "")
    assert "--basis changelog" in (refused.hint or "")
    # A copy that was made again has another time and the same content.
    gone.write_bytes(content)
    assert verified(scene).basis == "files"


def test_an_op_published_meanwhile_does_not_disturb(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    Source(scene).load("LOAD00000001.csv", *ROWS)
    scene.run()
    find_origin = verify.find_origin

    def run_first(*arguments: Any) -> Any:
        scene.land("20240101-000000000.csv", "D,1,,,0", "I,30,new,y,1.00")
        scene.run()
        return find_origin(*arguments)

    monkeypatch.setattr(verify, "find_origin", run_first)
    found = verified(scene)
    assert (found.verdict, found.op, found.rows_found) == ("clean", 1, 20), found
    [status] = scene.lakeward.status()
    assert status.verified is not None and (status.op, status.verified.op) == (2, 1)


def test_an_interrupted_repair_is_finished_or_found_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)
    scene.table(rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    wrong = sorted(
        ((key, "damaged" if key < 4 else name, *rest) for key, name, *rest in source.rows() if key != 5), key=repr
    )
    for step in CRASHED:
        damage(scene, "UPDATE {mirror} SET name = 'damaged' WHERE id < 4", "DELETE FROM {mirror} WHERE id = 5")
        crash_at(scene, step, lambda: verified(scene, repair=True, basis="changelog"))
        assert scene.rows() in (wrong, source.rows()), f"half a repair is seen after a crash at {step}"
        # Without the keys, what was logged is finished as an op that changes nothing.
        found = verified(scene, repair=True, basis="changelog")
        assert counts(found) == ((0, 0, 0) if step == "repair.applied" else (1, 0, 3)), (step, found)
        assert scene.rows() == source.rows()
    check_books(scene)
    [run, *_] = scene.lakeward.runs(TABLE)
    assert (run.ops, run.files, run.rows_in) == (1, 0, 0)


def test_a_mirror_compacted_by_something_else_is_taken_over(scene: Scene) -> None:
    scene.table(rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    source.change("20240101-000000000.csv", "I,100,new,y,1.00", "I,101,new,y,1.00")
    scene.run()
    source.change("20240102-000000000.csv", "D,1,,,0", "D,100,,,0")
    scene.run()
    # Of two files with deleted rows one is rewritten without them; the delete file of both stays and counts them still.
    only = "where => 'id >= 100', options => map('rewrite-all', 'true')"
    damage(scene, f"CALL lake.system.rewrite_data_files(table => 'sales.product', {only})")
    assert scene.rows() == source.rows()
    assert "something other than Lakeward" in (scene.refused().message or "")
    found = verified(scene)
    assert found.verdict == "clean" and len(found.notes) == 1 and "compacted" in found.notes[0]
    source.change("20240103-000000000.csv", "U,3,again,y,2.00")
    scene.run()
    assert scene.rows() == source.rows()
    assert verified(scene).notes == ()
    check_books(scene)
