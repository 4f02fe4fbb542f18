"""What all readers of files share: a record with its place, and errors that name the place."""

import functools
import io
import json
import zlib

from errors import PrepareError
from files import given

COMPRESSED = (".gz", ".zst", ".zstd")
READ_BYTES = 1 << 20
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # What a compressed file begins with.


class Record:
    """One row as it stands in the file. `line` counts from 1: lines of a text file, rows of a
    table without lines (parquet, arrow). `values` is a mapping, or `parse` makes it when it is
    asked for: several processes read one file, and each parses its own rows alone."""

    def __init__(self, file, line, values=None, parse=None):
        self.file, self.line = file, line
        self._parse = parse or (lambda: values)

    @functools.cached_property
    def values(self):
        return self._parse()


def open_dataset(path):
    """open() for bytes, with the error that users get. What is compressed by gzip or Zstandard is
    read as what it holds."""
    try:
        file = given.open_file(path, READ_BYTES)
    except OSError as error:
        raise PrepareError("BAD_DATASET", f"cannot open: {error.strerror}", file=path) from error
    try:
        head = file.peek(len(ZSTD))
    except OSError as error:
        file.close()
        raise PrepareError("BAD_DATASET", f"cannot read: {error.strerror}", file=path) from error
    if head.startswith(GZIP):
        import gzip

        return io.BufferedReader(_Unpacked(path, gzip.GzipFile(fileobj=file)), READ_BYTES)
    if head.startswith(ZSTD):
        import pyarrow

        stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file), "zstd")
        return io.BufferedReader(_Unpacked(path, stream), READ_BYTES)
    return file


class _Unpacked(io.RawIOBase):
    """A stream of what a compressed file holds, whose errors are those of a bad dataset."""

    def __init__(self, path, stream):
        self._path, self._stream = path, stream

    def readable(self):
        return True

    def readinto(self, buffer):
        try:
            read = self._stream.read(len(buffer))
        except (OSError, EOFError, zlib.error) as error:
            raise bad(self._path, None, f"cannot be decompressed: {error}") from error
        buffer[: len(read)] = read
        return len(read)

    def close(self):
        if not self.closed:
            self._stream.close()
        super().close()


def plain_name(path):
    """The name in lower case, without the ending of a compressed file."""
    name = path.lower()
    return next((name.removesuffix(e) for e in COMPRESSED if name.endswith(e)), name)


def bad(path, line, message):
    return PrepareError("BAD_DATASET", message, file=path, line=line)


def kind_of_value(value):
    """A value's type in words, with its article."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    names.update({int: "an integer", float: "a number with a fraction", type(None): "null"})
    return names.get(type(value), type(value).__name__)


def checked_object(path, line, value):
    """The value; an error when it is no object."""
    if not isinstance(value, dict):
        raise bad(path, line, f"a row is a JSON object, this is {kind_of_value(value)}")
    return value


def check_surrogates(path, line, source, value):
    """`source`: the JSON text of the value. Escapes can spell half of a pair; nothing else can."""
    if "\\u" not in source:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        message = "a string holds half of a surrogate pair, which is no character"
        raise bad(path, line, message) from error


def as_json(value):
    """A table's value as JSON would have it. Tables give every struct all the fields that any row
    has; those a row lacks are null, and left out. Types that JSON lacks become text; bytes are
    text already, in UTF-8, or a UnicodeDecodeError."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
