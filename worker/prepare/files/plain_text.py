"""Plain text, UTF-8: every line that is not blank is a record {"text": line}."""

import functools

from files.jsonl import lines_of
from files.record import Record, bad


def count(path):
    return sum(1 for _ in lines_of(path))


def read(path):
    for line, raw in lines_of(path):
        yield Record(path, line, parse=functools.partial(_parse, path, line, raw))


def _parse(path, line, raw):
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: {error.reason} at byte {error.start} of the line"
        raise bad(path, line, message) from error
    return {"text": text.rstrip("\r\n")}
