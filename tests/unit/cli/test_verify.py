"""``lakeward verify``: what it passes on, what it shows, how it ends. No JVM."""

import pytest

from lakeward.errors import ConfigurationError
from lakeward.views.verification.report import RowFinding, TableVerification, Verdict, Verified, VerifyReport

CLEAN = TableVerification(
    "sales.product", Verdict.CLEAN, op=41, basis="files", reason="all consumed files are still there, unchanged",
    rows_expected=1200, rows_found=1200, verified=Verified(41, "2024-04-05T10:00:00+00:00", "files", 1200, "1200:a:b"),
)  # fmt: skip
DIFFERENT = TableVerification(
    "sales.customer", Verdict.DIFFERENT, op=7, basis="against", reason="jdbc:postgresql://db/shop", rows_expected=3,
    rows_found=3, missing=1, extra=1, different=1, columns={"name": 1}, part="keys with id=1..9", left_out=2,
    only_there=("note",), not_compared=("blob (binary here, string there)",), exit_code=1,
    findings=(
        RowFinding("different", {"id": "1"}, "name", "Ann", None),
        RowFinding("missing", {"id": "2"}, row={"id": "2", "name": "NULL"}),
        RowFinding("extra", {"id": "3"}, row={"id": "3", "name": None}, times=2),
    ),
)  # fmt: skip
FAILED = TableVerification("sales.order", Verdict.FAILED, message="files are gone", hint="look", exit_code=3)
SKIPPED = TableVerification("sales.new", Verdict.SKIPPED, message="nothing was run yet")


def test_a_clean_table(project, call, answers):
    calls = answers("verify", VerifyReport((CLEAN, SKIPPED)))
    result = call("verify", "sales.product", "--basis", "files", "--sample", "0.5", "--key-range", "id=1..9")
    assert result.exit_code == 0, result.stderr
    [((_names,), options)] = calls
    assert (options["basis"], options["sample"], options["key_ranges"]) == ("files", 0.5, ("id=1..9",))
    assert (options["repair"], options["limit"], options["against"]) == (False, 20, None)
    assert "sales.product: clean: 1,200 rows at op 41" in result.stdout
    assert "compared with its landing files (all consumed files are still there, unchanged)" in result.stdout
    assert "verified through op 41 at 2024-04-05T10:00:00+00:00" in result.stdout
    assert "sales.new: nothing was run yet" in result.stdout


def test_findings_are_shown_and_exit_with_1(project, call, answers):
    answers("verify", VerifyReport((CLEAN, DIFFERENT)))
    result = call("verify")
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "sales.customer: 1 missing, 1 extra, 1 different: 3 rows found, 3 expected at op 7" in text
    assert "compared with jdbc:postgresql://db/shop" in text
    assert "only a part was compared: keys with id=1..9" in text
    assert "2 keys changed after the cut-off and left out" in text
    assert "columns only in the other copy: note" in text and "columns not compared: blob" in text
    # A null is not the text of that name.
    assert "different id='1' name 'Ann' NULL" in text
    assert "missing id='2' name='NULL'" in text and "extra id='3' name=NULL 2" in text


def test_a_table_that_cannot_be_verified(project, call, call_json, answers):
    answers("verify", VerifyReport((DIFFERENT, FAILED)))
    result = call("verify")
    assert result.exit_code == 3
    assert "sales.order: could not be verified" in result.stdout
    assert "files are gone" in result.stderr and "look" in result.stderr
    document = call_json("verify")
    assert [table["verdict"] for table in document["tables"]] == ["different", "failed"]
    assert document["exit_code"] == 3 and document["tables"][0]["findings"][0]["found"] is None


@pytest.mark.parametrize("arguments", [["--sample", "0"], ["--sample", "2"], ["--basis", "mirror"], ["--limit", "-1"]])
def test_refused_arguments(project, call, arguments):
    assert call("verify", *arguments).exit_code == 2


def test_options_that_contradict_each_other(project, call, answers):
    answers("verify", ConfigurationError("--changed-at needs --cut-off", hint="--cut-off"))
    assert call("verify", "--changed-at", "x").exit_code == 2
