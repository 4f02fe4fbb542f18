"""Plain text to be continued: {"text": "..."}. Every token is trained, the end token too."""

from formats import fields
from rows import Text

NAME = "text"
SHAPE = '{"text"}'


def recognises(values):
    return "text" in values


def read(record):
    return Text(record, fields.unused(record, ("text",)), "", fields.text(record, "text"))
