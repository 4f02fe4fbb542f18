"""A JSON array of objects. Objects are parsed one by one, so that each knows the line it begins
on, and of the text only a window is in memory."""

import codecs
import json
import re

from files.record import Record, bad, check_surrogates, checked_object, open_dataset

BLANK = re.compile(r"[ \t\r\n]*")
WINDOW_BYTES = 1 << 20  # Read at a time; twice as many each time that an object is longer.
MAX_OBJECT_CHARACTERS = 64 << 20  # As a line of JSONL.


def count(path):
    return sum(1 for _ in read(path))


def read(path):
    with open_dataset(path) as file:
        yield from _Reader(path, file).records()


class _Reader:
    """`text`: the window; `at`: how far of it is read; `line`, `column`: what stands there, both
    from 1."""

    def __init__(self, path, file):
        self.path, self.file = path, file
        self.text, self.at, self.line, self.column = "", 0, 1, 1
        self.utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self.ended = False
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

    def _fill(self, size):
        raw = self.file.read(size)
        self.ended = not raw
        try:
            text = self.utf8.decode(raw, final=self.ended)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].count(b"\n")
            line = self.line + self.text.count("\n", self.at) + before
            raise bad(self.path, line, f"not UTF-8: {error.reason}") from error
        self.text, self.at = self.text[self.at :] + text, 0

    def _move(self, to):
        lines = self.text.count("\n", self.at, to)
        if lines:
            self.column = to - self.text.rfind("\n", self.at, to)
        else:
            self.column += to - self.at
        self.line += lines
        self.at = to

    def _next(self):
        while True:
            self._move(BLANK.match(self.text, self.at).end())
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self._fill(WINDOW_BYTES)

    def _take(self, character, message):
        if self._next() != character:
            raise bad(self.path, self.line, message)
        self._move(self.at + 1)

    def _object(self):
        self._next()
        line, size = self.line, WINDOW_BYTES
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
                break
            except json.JSONDecodeError as error:
                # What is cut off by the window's end looks wrong as well.
                if self.ended or len(self.text) - self.at > MAX_OBJECT_CHARACTERS:
                    raise self._not_json(error) from error
                self._fill(size)
                size *= 2
            except RecursionError as error:
                raise bad(self.path, line, "not a row: JSON nested too deeply") from error
            except ValueError as error:  # An integer of more digits than Python converts.
                raise bad(self.path, line, f"not a row: {error}") from error
        source = self.text[self.at : end]
        self._move(end)

        def parse():
            check_surrogates(self.path, line, source, value)
            return checked_object(self.path, line, value)

        return Record(self.path, line, parse=parse)

    def _not_json(self, error):
        lines = self.text.count("\n", self.at, error.pos)
        column = error.colno if lines else self.column + error.pos - self.at
        message = f"not JSON: {error.msg} at column {column}"
        return bad(self.path, self.line + lines, message)
