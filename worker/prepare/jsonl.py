"""Reads a JSONL dataset: one JSON object a line, every line of the same format.

Formats, told apart by their keys:
  prompt_completion  {"prompt": str, "completion": str}
  pretokenized       {"input_ids": [int], "labels": [int][, "attention_mask": [0|1]]}
A blank line is no row. Other keys are not used; the caller learns their names. Does not tokenise,
and does not know the vocabulary.
"""

import dataclasses
import json

from errors import PrepareError, bad_row

MAX_LINE_BYTES = 64 << 20  # A million tokens spelled as numbers are 8 MB; a longer line is no row.

FORMATS = {
    "prompt_completion": (("prompt", "completion"), ()),
    "pretokenized": (("input_ids", "labels"), ("attention_mask",)),
}


@dataclasses.dataclass
class Row:
    """One row as it stands in the file, its fields checked for type."""

    file: str
    line: int  # from 1
    format: str
    values: dict
    unused: tuple  # keys that nothing reads


def count_rows(path):
    """Lines that are not blank."""
    with _open(path) as file:
        return sum(1 for _ in _lines(path, file))


def read_rows(path):
    """Yields Row by Row. PrepareError(BAD_DATASET) at the first line that is wrong."""
    first = None
    with _open(path) as file:
        for line, raw in _lines(path, file):
            row = _parse(path, line, raw)
            first = first or row
            if row.format != first.format:
                raise bad_row(
                    row,
                    f"this row is {row.format}, but line {first.line} is {first.format}: "
                    "all rows of a file must have one format",
                )
            yield row


def _open(path):
    try:
        return open(path, "rb")
    except OSError as error:
        raise PrepareError("BAD_DATASET", f"cannot open: {error.strerror}", file=path) from error


def _lines(path, file):
    line = 0
    try:
        while raw := file.readline(MAX_LINE_BYTES + 1):
            line += 1
            if len(raw) > MAX_LINE_BYTES:
                message = f"line is longer than {MAX_LINE_BYTES} bytes"
                raise PrepareError("BAD_DATASET", message, file=path, line=line)
            if raw.strip():
                yield line, raw
    except OSError as error:
        raise PrepareError("BAD_DATASET", f"cannot read: {error.strerror}", file=path) from error


def _parse(path, line, raw):
    def bad(message):
        return PrepareError("BAD_DATASET", message, file=path, line=line)

    try:
        # A byte order mark may open the file (line 1), and nothing else.
        value = json.loads(raw.decode("utf-8-sig" if line == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise bad(f"not UTF-8: {error.reason} at byte {error.start} of the line") from error
    except json.JSONDecodeError as error:
        raise bad(f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise bad("not a row: JSON nested too deeply") from error
    except ValueError as error:  # An integer of more digits than Python converts.
        raise bad(f"not a row: {error}") from error
    if not isinstance(value, dict):
        raise bad(f"a row is a JSON object, this is {_kind(value)}")
    return _typed(path, line, value)


def _typed(path, line, value):
    for name, (required, optional) in FORMATS.items():
        if all(key in value for key in required):
            used = [key for key in required + optional if key in value]
            unused = tuple(sorted(set(value) - set(used)))
            row = Row(path, line, name, {key: value[key] for key in used}, unused)
            (_check_text if name == "prompt_completion" else _check_ids)(row)
            return row
    keys = ", ".join(sorted(value)) or "none"
    raise PrepareError(
        "BAD_DATASET",
        f'unknown row format (keys: {keys}); accepted: {{"prompt", "completion"}} as strings, '
        'or {"input_ids", "labels"[, "attention_mask"]} as lists of integers',
        file=path,
        line=line,
    )


def _check_text(row):
    for key, value in row.values.items():
        if not isinstance(value, str):
            raise bad_row(row, f'"{key}" must be a string, this is {_kind(value)}')
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise bad_row(row, f'"{key}" holds half of a surrogate pair, which is no character')


def _check_ids(row):
    length = None
    for key, value in row.values.items():
        if not isinstance(value, list):
            raise bad_row(row, f'"{key}" must be a list of integers, this is {_kind(value)}')
        for position, item in enumerate(value):
            if type(item) is not int:  # bool is an int to isinstance
                raise bad_row(row, f'"{key}"[{position}] must be an integer, this is {_kind(item)}')
        if length is None:
            length = len(value)
        if len(value) != length:
            raise bad_row(row, f'"{key}" has {len(value)} entries, "input_ids" has {length}')
    if length == 0:
        raise bad_row(row, '"input_ids" is empty')


def _kind(value):
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    names.update({int: "an integer", float: "a number with a fraction", type(None): "null"})
    return names[type(value)]
