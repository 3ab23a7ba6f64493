"""A commented ``lakeward.yaml`` to start a project with."""

from __future__ import annotations

import json
from pathlib import Path

from lakeward.arguments import FLAG, NONE, PATH, TEXT, takes
from lakeward.config.loading import DEFAULT_FILE
from lakeward.errors import ConfigurationError

_TEMPLATE = """\
# Lakeward's configuration. Relative paths count from this file.
# LAKEWARD_LANDING, LAKEWARD_STATE, LAKEWARD_LAKE__WAREHOUSE ... in the environment override it.

# The folder tree that the capture tool writes: <schema>/<table>/LOAD00000001.parquet, 20240405-003052555.csv ...
landing: {landing}

# Where mirrors and changelogs live. Other engines open the same tables through the catalog, under the name "lake".
lake:
  catalog: sqlite:///lake/catalog.db      # or hadoop:///..., rest+https://..., glue://
  warehouse: ./lake/data

# Run history, settings made by command, leases. A cache: `lakeward state rebuild` fills it again.
state: sqlite:///lakeward.db            # or postgresql://user@host/database, dynamodb://table?region=...

spark:
  master: "local[*]"
  conf: {{}}

# Which tables `lakeward discover` looks at.
include: ["*"]
exclude: []

# Settings that hold for every table unless the table overrides them.
defaults:
  on_bad_row: fail                        # or quarantine: set bad rows aside and go on
  max_delete_share: 0.5                   # a batch may delete at most this share of a mirror
  format_version: 2                       # of Iceberg
  # timestamp_column: cdc_timestamp       # the commit time that DMS adds (TimestampColumnName)

# Declared tables are active. Tables that are only found in landing stay inactive until
# `lakeward tables set schema.table --primary-key id --activate`.
tables: {{}}
#  sales.product:
#    primary_key: [id]                    # without a key a table is insert-only
#    partition_by: [dept]                 # or days(ts), months(ts), bucket(16, id)
#    schema: "id int, name string, dept string, price decimal(10,2)"    # needed for CSV
#    csv: {{header: false, delimiter: ",", null: "NULL"}}
"""


@takes(path=PATH | NONE, landing=TEXT, force=FLAG)
def write_configuration(path: str | Path | None = None, *, landing: str = "./landing", force: bool = False) -> Path:
    """Write a commented configuration to start with, and return its file.

    Args:
        path: the file; None: ``lakeward.yaml``.
        landing: folder that the capture tool writes.
        force: replace a file that exists.

    Raises:
        ConfigurationError: the file exists and may not be replaced, or cannot be written.
    """
    file = Path(path or DEFAULT_FILE)
    try:
        # JSON text is valid YAML, whatever characters the path has.
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(_TEMPLATE.format(landing=json.dumps(landing, ensure_ascii=False)))
    except FileExistsError:
        msg = f"{file} exists already"
        raise ConfigurationError(msg, hint="lakeward init --force   (replaces it)") from None
    except OSError as error:
        msg = f"cannot write {file}: {error.strerror}"
        raise ConfigurationError(msg) from error
    return file
