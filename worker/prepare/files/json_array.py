"""A JSON array of objects. Objects are parsed one by one, so that each knows the line it begins
on and only one of them is in memory beside the text."""

import json
import re

from files.record import bad, check_json_object, check_surrogates, open_dataset

BLANK = re.compile(r"[ \t\r\n]*")


def count(path):
    return sum(1 for _ in read(path))


def read(path):
    with open_dataset(path) as file:
        try:
            text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise bad(path, line, f"not UTF-8: {error.reason}") from error
    yield from _Reader(path, text).records()


class _Reader:
    """`at`: how far the text is read; `line`: the line that stands there."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.at, self.line = 0, 1
        self.decoder = json.JSONDecoder()

    def records(self):
        self._take("[", "an array of objects must begin here")
        if self._next() != "]":
            yield self._object()
            while self._next() == ",":
                self._move(self.at + 1)
                yield self._object()
        self._take("]", "not JSON: expecting ',' or ']'")
        if self._next():
            raise bad(self.path, self.line, "not JSON: something stands behind the array")

    def _move(self, to):
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def _next(self):
        self._move(BLANK.match(self.text, self.at).end())
        return self.text[self.at : self.at + 1]

    def _take(self, character, message):
        if self._next() != character:
            raise bad(self.path, self.line, message)
        self._move(self.at + 1)

    def _object(self):
        self._next()
        begin, line = self.at, self.line
        try:
            value, end = self.decoder.raw_decode(self.text, begin)
        except json.JSONDecodeError as error:
            message = f"not JSON: {error.msg} at column {error.colno}"
            raise bad(self.path, error.lineno, message) from error
        except RecursionError as error:
            raise bad(self.path, line, "not a row: JSON nested too deeply") from error
        except ValueError as error:  # An integer of more digits than Python converts.
            raise bad(self.path, line, f"not a row: {error}") from error
        self._move(end)
        check_surrogates(self.path, line, self.text[begin:end], value)
        return check_json_object(self.path, line, value)
