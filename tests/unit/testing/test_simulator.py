from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from lakeward.config import load_config, parse_config
from lakeward.errors import ConfigurationError
from lakeward.model import FileClass, Operation
from lakeward.testing.compare import assert_same_rows
from lakeward.testing.replication.strategies import small_options
from lakeward.testing.simulator import Landing, Simulation, SimulatorOptions, random_options, write_simulation
from lakeward.testing.simulator.options import CHOICES, compatible
from lakeward.testing.simulator.stream import Capture

DIGEST = """
import hashlib
from lakeward.testing.simulator import Simulation, random_options
digest = hashlib.sha256()
for seed in range(8):
    for stage in Simulation(random_options(seed, changes=30)).stages():
        for landing in stage.landings:
            digest.update(repr((stage.number, landing.path, landing.mtime)).encode() + landing.content())
print(digest.hexdigest())
"""
ONE_BY_ONE = [(name, value) for name, values in CHOICES.items() for value in dict.fromkeys(values)]


def assert_fold_is_truth(simulation):
    stages = simulation.stages()
    folded = simulation.truth_after(stages[-1]) if stages else {}
    assert folded.keys() == simulation.truth.keys()
    for table in simulation.tables:
        if table.id in folded:
            assert_same_rows(folded[table.id], simulation.truth[table.id], table.key, str(table.id))


def all_files(simulation):
    return [landing.file for stage in simulation.stages() for landing in stage.landings]


def test_the_same_seed_produces_the_same_bytes_in_every_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_another_seed_produces_other_tables():
    assert Simulation(SimulatorOptions(seed=1)).truth != Simulation(SimulatorOptions(seed=2)).truth


@settings(max_examples=300, deadline=None)
@given(small_options())
def test_all_files_landed_fold_to_the_source(options):
    assert_fold_is_truth(Simulation(options))


@pytest.mark.parametrize(("name", "value"), ONE_BY_ONE)
def test_every_option_writes_files_that_fold_to_the_source(name, value):
    wishes = {"seed": 3, "rows": 30, "changes": 60, "before_image": "pk-only", "change_keys": True, name: value}
    simulation = Simulation(compatible(wishes))
    contents = [landing.content() for stage in simulation.stages() for landing in stage.landings]
    assert any(contents)
    parse_config(simulation.configuration(), base=Path())
    assert_fold_is_truth(simulation)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"transactions": True}, "timestamp_column"),
        ({"change_keys": True}, "before_image"),
        ({"add_columns": True, "format": "csv"}, "header"),
        ({"unchanged": "<same>"}, "Parquet has no marker"),
        ({"drop_columns": True, "format": "csv"}, "header"),
        ({"drop_columns": True, "change_keys": True, "before_image": "all", "duplicate": 0.1}, "change_keys"),
        ({"bad_rows": 0.1, "op_in_changes": False}, "op_in_changes"),
        ({"delay": 1.5}, "between 0 and 1"),
        ({"tables": 0}, "at least 1"),
    ],
)
def test_contradictions_are_refused(wrong, reason):
    with pytest.raises(ConfigurationError, match=reason):
        SimulatorOptions(**wrong)


def test_a_workload_contains_values_that_readers_get_wrong():
    options = SimulatorOptions(
        seed=5, changes=600, format="csv", unchanged="<same>", before_image="pk-only", change_keys=True,
        key_only_deletes=True, odd_operations=True,
    )  # fmt: skip
    files = [file for file in all_files(Simulation(options)) if file.file_class is FileClass.CHANGES]
    rows = [(file, change) for file in files for change in file.changes]
    operations = Counter(change.operation for _, change in rows)
    assert min(operations[operation] for operation in Operation) > 20
    assert any(file.omitted(change) for file, change in rows)
    assert any(sum(step.place.step for step in file.model_changes(file.table)) for file in files)
    commits = Counter((file.path, change.key, change.commit) for file, change in rows)
    assert max(commits.values()) > 1, "one key changes twice in one transaction"
    born_again = [change for _, change in rows if change.operation is Operation.INSERT and _was_deleted(change, rows)]
    assert born_again


def _was_deleted(insert, rows):
    return any(
        change.operation is Operation.DELETE and change.table is insert.table and change.key == insert.key
        for _, change in rows
        if change.sequence < insert.sequence
    )


def test_delayed_files_are_missing_from_the_truth_until_they_land():
    simulation = Simulation(SimulatorOptions(seed=11, delay=0.5, reorder=1.0, changes=200))
    stages = simulation.stages()
    times = [landing.file.time for stage in stages for landing in stage.landings if landing.file.time]
    assert times != sorted(times)
    assert simulation.truth_after(0) != simulation.truth
    assert simulation.truth_after(stages[0]) == simulation.truth_after(0)
    assert_fold_is_truth(simulation)


def test_a_repeated_file_lands_later_with_the_same_bytes_and_another_time():
    simulation = Simulation(SimulatorOptions(seed=4, duplicate=0.5, timestamp_column=None))
    landings = [landing for stage in simulation.stages() for landing in stage.landings]
    counts = Counter(landing.path for landing in landings)
    path = next(path for path, count in counts.items() if count == 2)
    first, second = (landing for landing in landings if landing.path == path)
    assert first.content() == second.content()
    assert first.mtime < second.mtime


def test_rows_are_repeated_under_a_new_name_only_where_something_orders_them():
    for timestamp_column, expected in (("cdc_timestamp", True), (None, False)):
        options = SimulatorOptions(seed=4, duplicate=0.5, timestamp_column=timestamp_column)
        sequences = Counter(change.sequence for file in Capture(options).files() for change in file.changes)
        assert (max(sequences.values()) > 1) is expected


@pytest.mark.parametrize("seed", range(8))
def test_a_reload_replaces_parts_and_lands_before_the_changes_that_follow_it(seed):
    simulation = Simulation(SimulatorOptions(seed=seed, reloads=2, delay=0.3, reorder=1.0, overlap=10, tables=1))
    parts: dict[int, list[Landing]] = {}
    first_stage: dict[int, int] = {}
    last_stage: dict[int, int] = {}
    for stage in simulation.stages():
        assert max(Counter(landing.path for landing in stage.landings).values()) == 1
        for landing in stage.landings:
            if landing.file.file_class is FileClass.LOAD:
                parts.setdefault(landing.file.generation, []).append(landing)
                first_stage.setdefault(landing.file.generation, stage.number)
                last_stage[landing.file.generation] = stage.number
    for generation in (2, 3):
        cut = min(landing.mtime for landing in parts[generation])
        assert {landing.path for landing in parts[generation - 1]} <= {landing.path for landing in parts[generation]}
        assert last_stage[generation - 1] < first_stage[generation]
        for stage in simulation.stages()[: first_stage[generation]]:
            assert all(landing.file.written < cut for landing in stage.landings)
    assert_fold_is_truth(simulation)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cause", [{"overlap": 60}, {"reloads": 2}, {"duplicate": 0.8}])
def test_replayed_changes_fold_to_the_source(seed, cause):
    options = SimulatorOptions(
        seed=seed, tables=1, rows=10, changes=120, batches=4, format="csv", unchanged="<same>", before_image="pk-only",
        change_keys=True, odd_operations=True, null_means_unchanged=True, **cause,
    )  # fmt: skip
    assert_fold_is_truth(Simulation(options))


def test_only_files_with_a_marker_for_it_leave_columns_out():
    simulation = Simulation(SimulatorOptions(seed=6, format="mixed", unchanged="<same>", changes=300))
    partial = dict.fromkeys(("csv", "parquet"), 0)
    for file in all_files(simulation):
        if file.file_class is FileClass.CHANGES:
            partial[file.format] += sum(bool(change.unchanged) for change in file.model_changes(file.table))
    assert partial["csv"] > 0
    assert partial["parquet"] == 0


def test_a_column_that_a_file_lacks_is_absent_from_its_changes():
    simulation = Simulation(SimulatorOptions(seed=1, add_columns=True, tables=1))
    table = simulation.tables[0]
    added = [column.name for column in table.added]
    for file in all_files(simulation):
        absent = set(added) - {column.name for column in file.columns}
        for change in file.model_changes(table):
            assert change.operation is Operation.DELETE or change.unchanged == absent


def test_an_added_column_shows_once_a_file_has_it():
    simulation = Simulation(SimulatorOptions(seed=1, add_columns=True, tables=1, changes=300))
    table = simulation.tables[0]
    widths = [len(simulation.truth_after(stage)[table.id][0]) for stage in simulation.stages()]
    assert widths == sorted(widths)
    assert widths[0] == len(table.columns)
    assert widths[-1] == len(table.all_columns)


def test_a_dropped_column_leaves_the_files_and_stays_in_the_mirror_until_a_reload():
    simulation = Simulation(SimulatorOptions(seed=3, drop_columns=True, tables=1, changes=300))
    table, files = simulation.tables[0], all_files(simulation)
    dropped = {column.name for column in table.columns} - {column.name for column in files[-1].columns}
    assert dropped and not dropped & {*table.key}
    rows = simulation.truth[table.id]
    assert all(dropped <= row.keys() for row in rows)
    assert any(row[name] is not None for row in rows for name in dropped)
    reloaded = Simulation(SimulatorOptions(seed=3, drop_columns=True, tables=1, changes=300, reloads=9, batches=2))
    table, last = reloaded.tables[0], [file for file in all_files(reloaded) if file.load][-1]
    gone = {column.name for column in table.columns} - {column.name for column in last.columns}
    assert gone and all(row[name] is None for row in last.load for name in gone)
    assert_fold_is_truth(reloaded)


def test_bad_rows_are_written_with_an_unknown_operation_and_mean_nothing():
    simulation = Simulation(SimulatorOptions(seed=3, bad_rows=0.3, format="csv", header=True, tables=1))
    assert simulation.configuration()["defaults"]["on_bad_row"] == "quarantine"
    file = next(file for file in all_files(simulation) if any(change.is_bad for change in file.changes))
    lines = Landing(file.path, file, file.written).content().decode().splitlines()
    bad = sum(change.is_bad for change in file.changes)
    assert sum(line.startswith("X,") for line in lines) == bad
    assert len(list(file.model_changes(simulation.tables[0]))) == len(file.changes) - bad
    assert_fold_is_truth(simulation)


def test_landing_writes_content_and_simulated_time(tmp_path):
    simulation = Simulation(random_options(8, changes=20, rows=5))
    landing = simulation.stages()[0].landings[0]
    written = simulation.stages()[0].land(tmp_path)
    assert written[0].read_bytes() == landing.content()
    assert datetime.fromtimestamp(written[0].stat().st_mtime, UTC) == landing.mtime


@pytest.mark.parametrize("seed", range(6))
def test_a_written_simulation_has_landing_truth_and_configuration(tmp_path, seed):
    options = random_options(seed, reload_fewer_parts=False, changes=40, rows=5)
    result = write_simulation(tmp_path, options)
    config = load_config(result.configuration, environment={})
    assert len(config.declared()) == options.tables
    simulation = Simulation(options)
    for table, rows in simulation.truth.items():
        assert_same_rows(pq.read_table(result.truth / f"{table}.parquet").to_pylist(), rows, label=str(table))
    newest = {landing.path: landing for stage in simulation.stages() for landing in stage.landings}
    on_disk = {path.relative_to(result.landing).as_posix() for path in result.landing.rglob("*") if path.is_file()}
    assert on_disk == set(newest)
    for path, landing in newest.items():
        assert digest_of((result.landing / path).read_bytes()) == digest_of(landing.content())


def digest_of(content):
    return hashlib.sha256(content).hexdigest()


def test_a_simulation_is_not_written_over_other_files(tmp_path):
    write_simulation(tmp_path, SimulatorOptions(tables=1, rows=2, changes=2, batches=1))
    with pytest.raises(ConfigurationError, match="exists already"):
        write_simulation(tmp_path, SimulatorOptions())


def test_old_load_parts_are_not_left_among_new_ones_on_disk(tmp_path):
    with pytest.raises(ConfigurationError, match="reload_fewer_parts"):
        write_simulation(tmp_path, SimulatorOptions(reloads=1, reload_fewer_parts=True))


def test_nothing_of_the_code_under_test_is_loaded():
    script = "import sys, lakeward.testing.simulator, lakeward.testing.compare; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    under_test = ("pyspark", "lakeward.formats", "lakeward.transforms", "lakeward.mirror", "lakeward.schemas")
    assert not [module for module in loaded if module.startswith(under_test)]


def test_a_folder_that_vanishes_leaves_what_lands_later():
    options = SimulatorOptions(seed=2, tables=2, rows=10, changes=60, batches=6, stages=4, truncates=2, delay=0.4)
    simulation = Simulation(options)
    stages = simulation.stages()
    vanishing = [stage for stage in stages if stage.vanished]
    assert len(vanishing) == 2 and all(not stage.landings for stage in vanishing)
    for stage in vanishing:
        name = stage.vanished.replace("/", ".")
        truth = {str(table): rows for table, rows in simulation.truth_after(stage).items()}
        before = {str(table): rows for table, rows in simulation.truth_after(stage.number - 1).items()}
        assert truth[name] == [] and before[name] != []
        assert {**truth, name: []} == {**before, name: []}, "other tables are as before"
    without = Simulation(replace(options, truncates=0)).stages()
    landing = [[landing.path for landing in stage.landings] for stage in stages if not stage.vanished]
    assert landing == [[landing.path for landing in stage.landings] for stage in without], "the same files land as ever"


def test_a_vanishing_stage_removes_the_folder(tmp_path):
    simulation = Simulation(SimulatorOptions(seed=2, tables=1, rows=5, changes=10, stages=2, truncates=1))
    for stage in simulation.stages():
        stage.land(tmp_path)
        if stage.vanished:
            assert not (tmp_path / stage.vanished).exists()


def test_truncates_are_ruled_out_where_they_mean_nothing():
    for other in ({"transactions": True, "timestamp_column": None}, {"reloads": 1}):
        with pytest.raises(ConfigurationError, match="truncates cannot be simulated"):
            SimulatorOptions(truncates=1, **other)
