"""``lakeward erase``: asks, refuses to guess, writes a receipt and reports what was done."""

import json
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from lakeward import Lakeward
from lakeward.cli.output import draw_rows, plain
from lakeward.views.erasure import ErasedPlace, Receipt

TABLE = "sales.product"
ERASE, PLAN = signature(Lakeward.erase), signature(Lakeward.plan_erasure)
PLACES = (ErasedPlace("mirror", 2, 1, 3, 0, 0), ErasedPlace("changelog", 4, 0, 1, 0, 0))


def receipt(*, dry_run: bool = False) -> Receipt:
    landing = (SimpleNamespace(path="sales/product/a.csv", rows=1, outcome="listed"),)
    return Receipt(TABLE, 9, "request 7", None, 1, ("ab12",), PLACES, 5, () if dry_run else landing, 2, True, dry_run)


class FakeErasing:
    """Answers with a receipt and records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.interrupted: list[Receipt] = []

    def erase(self, name: str, keys: list, **options: object) -> list[Receipt]:
        ERASE.bind(self, name, keys, **options)
        self.calls.append(("erase", [dict(key) for key in keys], options["reason"]))
        return [receipt(dry_run=False)]

    def plan(self, name: str, keys: list, **options: object) -> Receipt:
        PLAN.bind(self, name, keys, **options)
        self.calls.append(("plan", [dict(key) for key in keys]))
        return receipt(dry_run=True)

    def resume(self, name: str) -> list[Receipt]:
        return self.interrupted


@pytest.fixture
def erasing(project, monkeypatch) -> FakeErasing:
    fake = FakeErasing()
    for method, answer in (
        ("erase", fake.erase), ("plan_erasure", fake.plan), ("resume_erasure", fake.resume),
    ):  # fmt: skip
        monkeypatch.setattr(Lakeward, method, staticmethod(answer))
    monkeypatch.setattr(Receipt, "to_dict", lambda self: {"table": self.table, "op": self.op})
    return fake


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the keys to erase"),
        (("--key", "id=1"), "an erasure needs a reason"),
        (("--key", "id=1", "--reason", "request 7"), "--yes"),
        (("--resume", "--key", "id=1"), "--resume finishes what was begun"),
    ],
)
def test_keys_a_reason_and_a_consent_are_needed(erasing, call, arguments, message):
    result = call("erase", TABLE, *arguments)
    assert result.exit_code == 2 and message in result.stderr
    assert erasing.calls == []


def test_keys_come_from_options_and_from_a_file_of_both_forms(erasing, call, project):
    (project / "keys.txt").write_text('id=2\n\n{"id": 3}\n')
    result = call("erase", TABLE, "--key", "id=1", "--keys-from", "keys.txt", "--reason", "request 7", "--yes")
    assert result.exit_code == 0, result.stderr
    (what, keys, reason), = erasing.calls  # fmt: skip
    assert (what, [key["id"] for key in keys], reason) == ("erase", ["1", "2", 3], "request 7")
    for words in (
        "op 9 erased 1 key",
        "a.csv: 1 row, listed",
        "2 bad rows with unreadable keys were kept",
        "5 expired",
    ):
        assert words in result.stdout
    assert json.loads((project / f"erasure-{TABLE}-op9.json").read_text()) == {"table": TABLE, "op": 9}


def test_a_file_of_keys_that_is_not_json_is_refused_by_line(erasing, call, project):
    (project / "keys.txt").write_text('id=2\n{"id": \n')
    result = call("erase", TABLE, "--keys-from", "keys.txt", "--reason", "request 7", "--yes")
    assert result.exit_code == 2 and "keys.txt, line 2: not a JSON object" in result.stderr


def test_a_dry_run_needs_no_consent_and_writes_no_receipt(erasing, call, project):
    result = call("erase", TABLE, "--key", "id=1", "--dry-run")
    assert result.exit_code == 0 and "would erase 1 key" in result.stdout
    assert [what for what, *_ in erasing.calls] == ["plan"]
    assert list(project.glob("erasure-*")) == []


def test_an_interrupted_erasure_is_finished_and_reported(erasing, call, project):
    assert "no erasure was interrupted" in call("erase", TABLE, "--resume").stdout
    erasing.interrupted = [receipt()]
    result = call("erase", TABLE, "--resume", "--receipt", "proof.json")
    assert result.exit_code == 0 and (project / "proof.json").exists()


@pytest.mark.parametrize("arguments", [("--key", "id=1", "--reason", "request 7", "--yes"), ("--resume",)])
def test_an_unwritable_receipt_is_reported_before_anything_is_erased(erasing, call, project, arguments):
    erasing.interrupted = [receipt()]
    result = call("erase", TABLE, *arguments, "--receipt", "nowhere/proof.json")
    assert result.exit_code == 2 and "cannot be written to nowhere/proof.json: No such file" in result.stderr
    assert (erasing.calls, result.stdout) == ([], "")


def test_a_receipt_does_not_replace_a_file(erasing, call, project):
    (project / "proof.json").write_text("mine")
    result = call("erase", TABLE, "--key", "id=1", "--reason", "request 7", "--yes", "--receipt", "proof.json")
    assert result.exit_code == 2 and "a receipt does not replace a file" in result.stderr
    assert (erasing.calls, (project / "proof.json").read_text()) == ([], "mine")
    usual = project / f"erasure-{TABLE}-op9.json"
    usual.write_text("of another lake")
    assert call("erase", TABLE, "--key", "id=1", "--reason", "request 7", "--yes").exit_code == 0
    assert usual.read_text() == "of another lake"
    assert json.loads((project / f"erasure-{TABLE}-op9-2.json").read_text()) == {"table": TABLE, "op": 9}


@pytest.mark.parametrize("output", ["json", "text"])
def test_a_receipt_is_on_standard_output_if_the_disk_is_full(erasing, call, project, monkeypatch, output):
    def full(self, *arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = call("erase", TABLE, "--key", "id=1", "--reason", "request 7", "--yes", "--output", output)
    assert result.exit_code == 3 and "op 9 was carried out, but erasure-" in result.stderr
    shown = json.loads(result.stdout[result.stdout.index("{") :])
    assert shown.get("receipts", [shown]) == [{"table": TABLE, "op": 9}]


def test_values_are_shown_as_json_has_them_and_null_as_itself():
    values = {"data": b"\x00\x01", "list": (float("nan"), 1.5), "inner": {"x": bytearray(b"a")}, "none": None}
    assert plain(values) == {"data": "AAE=", "list": ["nan", 1.5], "inner": {"x": "YQ=="}, "none": None}
    console = Console(record=True, width=80)
    draw_rows(console, ["id", "tags", "name"], [{"id": 1, "tags": ["ä"], "name": None}], "row")
    draw_rows(console, ["id"], [], "row")
    text = console.export_text()
    for words in ('["ä"]', "NULL", "1 row", "0 rows"):
        assert words in text
