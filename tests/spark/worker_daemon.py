"""Spark's daemon of Python workers, with what nearly every worker needs imported before it is forked."""

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import lakeward.formats.dms.reader  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
