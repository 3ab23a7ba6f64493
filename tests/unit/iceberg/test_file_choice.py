"""Which files compaction takes up: files with many deletes, and small files worth merging."""

from lakeward.iceberg.rewrite import Deleted, RewriteLimits, TableFile, choose, mergeable

MIB = 1 << 20
LIMITS = RewriteLimits(deleted_share=0.2, file_bytes=128 * MIB, slice_bytes=512 * MIB)


def file(path: str, size: float, rows: int = 100, group: str = "") -> TableFile:
    return TableFile(path, int(size * MIB), rows, group)


def test_a_large_file_with_few_deleted_rows_is_left_alone():
    data = [file("a", 200), file("b", 120)]
    assert not choose(data, [file("d", 1)], Deleted({"a": 19}, {"a": frozenset("d")}), LIMITS)


def test_a_file_with_many_deletes_is_rewritten_with_its_delete_files():
    deletes = [file("d1", 0.1), file("d2", 0.1), file("d3", 0.1)]
    deleted = Deleted({"a": 20, "b": 5}, {"a": frozenset({"d1", "d2"}), "b": frozenset({"d2", "d3"})})
    chosen = choose([file("a", 200), file("b", 200)], deletes, deleted, LIMITS)
    assert (chosen.data, chosen.deletes) == ({"a"}, {"d1", "d2"})
    assert chosen.size == 200 * MIB + 2 * int(0.1 * MIB)


def test_a_file_without_rows_needs_no_rewriting():
    assert not choose([file("a", 200, rows=0)], [], Deleted(), LIMITS)


def test_small_files_are_merged_with_files_that_are_not_much_larger():
    small = [file(f"s{number}", 3) for number in range(10)]
    chosen = choose([file("large", 100), file("middle", 30), file("further", 61), *small], [], Deleted(), LIMITS)
    assert chosen.data == {"middle", *(found.path for found in small)}


def test_one_small_file_is_not_copied():
    assert not choose([file("a", 0.1), file("b", 0.1, group="other")], [], Deleted(), LIMITS)


def test_files_of_different_partitions_are_not_merged():
    data = [file("a1", 0.1, group="a"), file("a2", 0.1, group="a"), file("b", 0.1, group="b")]
    assert choose(data, [], Deleted(), LIMITS).data == {"a1", "a2"}


def test_a_slice_is_bounded_and_takes_files_with_many_deletes_first():
    limits = RewriteLimits(0.2, 128 * MIB, 300 * MIB)
    data = [file("worn1", 200), file("worn2", 250), file("s1", 1), file("s2", 1)]
    chosen = choose(data, [], Deleted({"worn1": 50, "worn2": 50}), limits)
    assert chosen.data == {"worn1"}
    whole = choose(data[1:], [], Deleted({"worn2": 50}), limits)
    assert whole.data == {"worn2", "s1", "s2"}


def test_a_file_larger_than_a_slice_is_taken_alone():
    limits = RewriteLimits(0.2, 1 * MIB, 1 * MIB)
    assert choose([file("worn", 900), file("s", 0.1)], [], Deleted({"worn": 90}), limits).data == {"worn"}


def test_delete_files_are_merged_where_no_data_file_is_chosen():
    deletes = [file("big", 50), *(file(f"d{number}", 0.1) for number in range(5))]
    chosen = choose([file("a", 200)], deletes, Deleted({"a": 1}, {"a": frozenset({"big"})}), LIMITS)
    assert (chosen.data, chosen.deletes) == (frozenset(), {f"d{number}" for number in range(5)})


def test_no_file_is_rewritten_repeatedly():
    """A thousand small files one after the other, merged whenever ten have gathered: each is written few times."""
    files: list[TableFile] = []
    written = 0.0
    for number in range(1000):
        files.append(file(f"new{number}", 1))
        if number % 10 == 9:
            merged = list(mergeable(found for found in files if found.size < 400 * MIB))
            files = [found for found in files if found not in merged]
            size = sum(found.size for found in merged)
            written += size / MIB
            files.append(TableFile(f"merged{number}", size, 1))
    assert len(files) < 12
    assert written / 1000 < 10
