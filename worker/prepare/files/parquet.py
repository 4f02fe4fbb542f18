"""Parquet, by pyarrow. A record's line is the number of its row, from 1."""

import contextlib

from files.arrow import records, translated
from files.record import open_dataset

BATCH_ROWS = 1000  # In memory at a time, or as many as fit
BATCH_BYTES = 16 << 20  # by what the file says of its rows.


def count(path):
    with _opened(path) as file:
        return file.metadata.num_rows


def read(path):
    with _opened(path) as file:
        with translated(path):
            batches = file.iter_batches(batch_size=_batch_rows(file.metadata), use_threads=False)
        yield from records(path, batches)


def schema_of(path):
    """The columns and what is said of them."""
    with _opened(path) as file:
        return file.schema_arrow


def _batch_rows(metadata):
    groups = range(metadata.num_row_groups)
    total = sum(metadata.row_group(index).total_byte_size for index in groups)
    row_bytes = total // max(metadata.num_rows, 1)
    return min(max(BATCH_BYTES // max(row_bytes, 1), 1), BATCH_ROWS)


@contextlib.contextmanager
def _opened(path):
    import pyarrow.parquet  # Half a second; other files do not pay it.

    with open_dataset(path) as file:  # With the error that every kind of file gives.
        with translated(path):
            opened = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
        yield opened
