"""Arrow IPC, a file or a stream (what the datasets library caches), by pyarrow. A record's line is
the number of its row, from 1; its values are the columns, null or not. A cell is converted when it
is read, so columns that no format reads (images, say) are never looked at."""

import collections.abc
import contextlib
import json

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
        if batch is None:
            return
        columns = dict(zip(batch.schema.names, batch.columns))
        if len(columns) != batch.num_columns:
            raise bad(path, None, "two columns have one name: " + ", ".join(batch.schema.names))
        for index in range(batch.num_rows):
            line += 1
            yield Record(path, line, _Row(path, line, columns, index))


class _Row(collections.abc.Mapping):
    def __init__(self, path, line, columns, index):
        self._path, self._line = path, line
        self._columns, self._index = columns, index

    def __getitem__(self, key):
        cell = self._columns[key][self._index]
        try:
            return as_json(cell.as_py())
        except UnicodeDecodeError as error:
            message = f'"{key}" is not UTF-8: {error.reason} at byte {error.start}'
            raise bad(self._path, self._line, message) from error
        except (ValueError, OverflowError) as error:  # Of a time that Python cannot tell, say.
            raise bad(self._path, self._line, f'"{key}" is not readable: {error}') from error

    def cell(self, key):
        """As it is: bytes are no text."""
        return self._columns[key][self._index].as_py()

    def __contains__(self, key):
        return key in self._columns

    def __iter__(self):
        return iter(self._columns)

    def __len__(self):
        return len(self._columns)


@contextlib.contextmanager
def translated(path):
    """pyarrow's errors as those of a bad dataset."""
    import pyarrow

    try:
        yield
    except MemoryError:  # pyarrow's is an ArrowException as well.
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise bad(path, None, f"not readable: {error}") from error


def schema_of(path):
    """The columns and what is said of them; None: the file has no row."""
    return next((batch.schema for batch in _batches(path)), None)


def class_names(schema, column):
    """Of a column of classes the names that the datasets library has beside its file, by id."""
    about = (schema.metadata or {}).get(b"huggingface") if schema is not None else None
    try:
        names = json.loads(about)["info"]["features"][column]["names"] if about else []
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return names if all(isinstance(name, str) for name in names) else []


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
