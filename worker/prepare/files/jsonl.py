"""JSON Lines: one object a line, UTF-8. A blank line is no record, but counts as a line."""

import functools
import json

from files.record import Record, bad, check_surrogates, checked_object, open_dataset

MAX_LINE_BYTES = 64 << 20  # A million tokens spelled as numbers are 8 MB; a longer line is no row.


def count(path):
    return sum(1 for _ in lines_of(path))


def read(path):
    for line, raw in lines_of(path):
        yield Record(path, line, parse=functools.partial(_parse, path, line, raw))


def lines_of(path):
    line = 0
    with open_dataset(path) as file:
        try:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                line += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise bad(path, line, f"line is longer than {MAX_LINE_BYTES} bytes")
                if raw.strip():
                    yield line, raw
        except OSError as error:
            raise bad(path, None, f"cannot read: {error.strerror}") from error


def _parse(path, line, raw):
    try:
        # A byte order mark may open the file (line 1), and nothing else.
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
        value = json.loads(text)
    except UnicodeDecodeError as error:
        message = f"not UTF-8: {error.reason} at byte {error.start} of the line"
        raise bad(path, line, message) from error
    except json.JSONDecodeError as error:
        raise bad(path, line, f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise bad(path, line, "not a row: JSON nested too deeply") from error
    except ValueError as error:  # An integer of more digits than Python converts.
        raise bad(path, line, f"not a row: {error}") from error
    check_surrogates(path, line, text, value)
    return checked_object(path, line, value)
