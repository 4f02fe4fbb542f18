"""Documents with a label: {"text", "label"}, or two texts and a label, or {"input_ids", "label"}.

What the two texts are called: the names that the GLUE and the NLI datasets have. What a label is,
the job's problem says (labels.py): a class, several of them, numbers. Rows have this format where
the job's task is sequence_classification, and only there: elsewhere a label beside a text means
nothing.
"""

import difflib

from errors import bad_row
from formats import fields, pretokenized
from rows import Labelled

NAME = "classification"
SHAPE = '{"text", "label"}, {"sentence1", "sentence2", "label"} or {"input_ids", "label"}'
SINGLE = ("text", "sentence")
PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)
LABEL = "label"
KEYS = ("input_ids", "attention_mask", *SINGLE, *(key for pair in PAIRS for key in pair), LABEL)


def recognises(values):
    """Nothing: the task says so."""
    return False


def read(record):
    label = label_of(record)
    if "input_ids" in record.values:
        used = ("input_ids", "attention_mask", LABEL)
        ids = pretokenized.ids_without_padding(record)
        return Labelled(record, fields.unused(record, used), label=label, ids=ids)
    keys = _text_keys(record)
    texts = [fields.text(record, key) for key in keys]
    return Labelled(record, fields.unused(record, (*keys, LABEL)), label=label, texts=texts)


def label_of(record):
    """As the row has it."""
    if LABEL not in record.values:
        raise bad_row(record, f'no "{LABEL}"{_near(record, LABEL)}')
    return record.values[LABEL]


def _text_keys(record):
    for keys in (*PAIRS, *((key,) for key in SINGLE)):
        if all(key in record.values for key in keys):
            return keys
    there = ", ".join(sorted(map(str, record.values)))
    raise bad_row(record, f"no text{_near(record, 'text')} this row has {there}; a row is {SHAPE}")


def _near(record, name):
    found = difflib.get_close_matches(name, [str(key) for key in record.values], 1, cutoff=0.5)
    return f'; did you mean "{found[0]}"? (columns gives it our name);' if found else ";"
