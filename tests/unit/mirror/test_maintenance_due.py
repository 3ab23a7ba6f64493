"""When a mirror's debt is beyond its limits; what cannot be merged is not counted again and again."""

import pytest

from lakeward.config.tables import MaintenanceSettings
from lakeward.iceberg.rewrite import Debt
from lakeward.mirror.maintenance import MaintenanceRecord, needs_compaction, spare_files

MIB = 1 << 20
LIMITS = MaintenanceSettings(deleted_share=0.2, delete_files=10, small_files=20)


def debt(data_files: int = 1, delete_files: int = 0, share: float = 0.0, size: int = MIB) -> Debt:
    return Debt(data_files, delete_files, 0, share, size, 1)


@pytest.mark.parametrize(
    ("found", "last", "expected"),
    [
        (debt(), MaintenanceRecord(), False),
        (debt(share=0.2), MaintenanceRecord(), True),
        (debt(share=0.19), MaintenanceRecord(), False),
        (debt(delete_files=10), MaintenanceRecord(), True),
        (debt(delete_files=10), MaintenanceRecord(delete_files=1), False),
        (debt(data_files=21), MaintenanceRecord(), True),
        (debt(data_files=21), MaintenanceRecord(spare_files=5), False),
        (debt(data_files=100, size=128 * MIB), MaintenanceRecord(), False),
    ],
)
def test_deleted_rows_and_small_files_make_compaction_due(found, last, expected):
    assert needs_compaction(found, last, LIMITS) is expected


def test_files_that_the_size_needs_are_not_spare():
    assert spare_files(debt(data_files=10, size=64 * MIB), 128 * MIB) == 5
    assert spare_files(debt(data_files=0), 128 * MIB) == 0
    assert spare_files(debt(data_files=4, size=200 * MIB), 128 * MIB) == 0
