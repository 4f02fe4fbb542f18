"""Arrow IPC, a file or a stream (what the datasets library caches), by pyarrow. A record's line is
the number of its row, from 1."""

import contextlib

from files.record import Record, as_json, bad, open_dataset


def count(path):
    return sum(batch.num_rows for batch in _batches(path))


def read(path):
    yield from records(path, _batches(path))


def records(path, batches):
    """Records of pyarrow's RecordBatches."""
    line = 0
    batches = iter(batches)
    while True:
        with translated(path):
            batch = next(batches, None)
            rows = [] if batch is None else batch.to_pylist()
        if batch is None:
            return
        for values in rows:
            line += 1
            yield Record(path, line, as_json(values))


@contextlib.contextmanager
def translated(path):
    """pyarrow's errors as those of a bad dataset."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise bad(path, None, f"not readable: {error}") from error


def _batches(path):
    import pyarrow.ipc

    with open_dataset(path) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        with translated(path):
            opened = pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file)
            # A stream is an iterator of batches; a file knows them by number.
            if not is_file:
                yield from opened
            else:
                for index in range(opened.num_record_batches):
                    yield opened.get_batch(index)
