"""Parquet, by pyarrow. A record's line is the number of its row, from 1."""

from files.arrow import records, translated
from files.record import open_dataset

BATCH_ROWS = 1000  # In memory at a time.


def count(path):
    with _opened(path) as file:
        return file.metadata.num_rows


def read(path):
    with _opened(path) as file:
        with translated(path):
            batches = file.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
        yield from records(path, batches)


def _opened(path):
    import pyarrow.parquet  # Half a second; other files do not pay it.

    open_dataset(path).close()  # For the error that every kind of file gives.
    with translated(path):
        return pyarrow.parquet.ParquetFile(path)
