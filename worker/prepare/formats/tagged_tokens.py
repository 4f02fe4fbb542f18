"""Words with a class each: {"tokens", "ner_tags"}, or {"input_ids", "labels"} per token.

Rows have this format where the job's task is token_classification, and only there. A class is an id
or a name; -100 is none, of a word as of a token. Which tokens a word's class is of, tokenise.py
says.
"""

import difflib

from errors import bad_row
from formats import fields, pretokenized
from rows import Tagged

NAME = "tagged_tokens"
SHAPE = '{"tokens", "ner_tags"} or {"input_ids", "labels"}, as lists of the same length'
WORDS, TAGS = "tokens", "ner_tags"
KEYS = (WORDS, TAGS, "input_ids", "labels", "attention_mask")


def recognises(values):
    """Nothing: the task says so."""
    return False


def read(record):
    if "input_ids" in record.values:
        ids, begin, end = pretokenized.ids_and_ends(record)
        used = ("input_ids", "labels", "attention_mask")
        labels = _beside(record, "labels", ids, "input_ids")[begin:end]
        return Tagged(record, fields.unused(record, used), label=labels, ids=ids[begin:end])
    words = _list(record, WORDS)
    for position, word in enumerate(words):
        fields.checked_text(record, f'"{WORDS}"[{position}]', word)
    if not words:
        raise bad_row(record, f'"{WORDS}" is empty')
    labels = _beside(record, TAGS, words, WORDS)
    return Tagged(record, fields.unused(record, (WORDS, TAGS)), label=labels, words=words)


def label_of(record):
    """As the row has them."""
    return _list(record, "labels" if "input_ids" in record.values else TAGS)


def _beside(record, key, others, name):
    values = _list(record, key)
    if len(values) != len(others):
        message = f'"{key}" has {len(values)} entries, "{name}" has {len(others)}'
        raise bad_row(record, message)
    return values


def _list(record, key):
    if key not in record.values:
        near = difflib.get_close_matches(key, [str(name) for name in record.values], 1, cutoff=0.4)
        hint = f'; did you mean "{near[0]}"? (columns gives it our name)' if near else ""
        raise bad_row(record, f'no "{key}"{hint}; a row is {SHAPE}')
    return fields.checked_list(record, f'"{key}"', fields.structure(record, key))
