"""What all readers of files share: a record with its place, and errors that name the place."""

import collections.abc
import dataclasses
import json

from errors import PrepareError


@dataclasses.dataclass
class Record:
    """One row as it stands in the file. `line` counts from 1: lines of a text file, rows of a
    table without lines (parquet, arrow)."""

    file: str
    line: int
    values: collections.abc.Mapping


def open_dataset(path):
    """open() for bytes, with the error that users get."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise PrepareError("BAD_DATASET", f"cannot open: {error.strerror}", file=path) from error


def bad(path, line, message):
    return PrepareError("BAD_DATASET", message, file=path, line=line)


def kind_of_value(value):
    """A value's type in words, with its article."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    names.update({int: "an integer", float: "a number with a fraction", type(None): "null"})
    return names.get(type(value), type(value).__name__)


def check_json_object(path, line, value):
    """The value as a Record; an error when it is no object or holds text that is no text."""
    if not isinstance(value, dict):
        raise bad(path, line, f"a row is a JSON object, this is {kind_of_value(value)}")
    return Record(path, line, value)


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
