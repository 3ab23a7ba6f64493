"""From folders to tables, and which paths count at all."""

from tests.unit.runner.trigger_helpers import known

from lakeward.runner.watch.requests import PathFilter, Readers, RunRequest, parent

TABLES = [known("sales.product"), known("sales.order"), known("hr.product"), known("x.odd", path="/elsewhere/odd/")]


def of(*folders: str, trees: tuple[str, ...] = (), transactions: str | None = None) -> set[str]:
    return Readers(TABLES, transactions).of(RunRequest("", folders=frozenset(folders), trees=frozenset(trees)))


def test_files_wake_the_table_whose_folder_they_are_in():
    assert of("sales/product") == {"sales.product"}
    assert of("sales/product/2024/04/05", "elsewhere/odd") == {"sales.product", "x.odd"}


def test_files_elsewhere_wake_nothing():
    assert of("sales", "", "sales/products", "sales/prod", "x/odd") == set()


def test_a_folder_that_appears_wakes_what_is_above_and_below():
    assert of(trees=("sales",)) == {"sales.product", "sales.order"}
    assert of(trees=("sales/product/2024",)) == {"sales.product"}
    assert of(trees=("elsewhere",)) == {"x.odd"}


def test_transactions_wake_every_table():
    everything = {"sales.product", "sales.order", "hr.product", "x.odd"}
    assert of("txn", transactions="/txn/") == everything
    assert of(trees=("cdc",), transactions="cdc/txn") == everything
    assert of("txn/../sales", transactions="other") == set()


def test_names_and_everything():
    readers = Readers(TABLES, None)
    assert readers.of(RunRequest("", tables=frozenset(["sales.order", "gone.table"]))) == {"sales.order"}
    assert len(readers.of(RunRequest("", everything=True))) == 4


def test_hidden_and_temporary_names_do_not_count():
    accepts = PathFilter()
    assert accepts.accepts_file("sales/product/1.csv") and accepts.accepts_tree("sales")
    for path in ("sales/product/.1.csv", "sales/_temporary/1.csv", "sales/product/1.csv.tmp", ""):
        assert not accepts.accepts_file(path) and not accepts.accepts_tree(path)


def test_prefixes_and_suffixes():
    accepts = PathFilter(prefixes=("sales/", "hr/product"), suffixes=(".parquet", ".csv"))
    assert accepts.accepts_file("sales/a/1.csv") and accepts.accepts_file("hr/product/1.parquet")
    assert not accepts.accepts_file("hr/other/1.csv") and not accepts.accepts_file("sales/a/1.json")
    assert accepts.accepts_tree("sales") and accepts.accepts_tree("hr") and not accepts.accepts_tree("it")


def test_the_folder_of_a_path():
    assert (parent("a/b/c.csv"), parent("c.csv")) == ("a/b", "")
