"""Rows of task: seq2seq_lm, a source and the target that is made of it.

    {"prompt", "completion"} or {"input", "target"}: strings
    {"input_ids", "labels"[, "attention_mask"]}: token ids; "labels" are the target's, of which -100
        are not trained: in the decoder's place stands the padding token, as transformers has it
Padding of the source (attention_mask 0 at either end) is dropped, and -100 at the target's end.
"""

from errors import bad_row
from formats import fields, pretokenized
from rows import Target

NAME = "source_target"
TEXTS = (("prompt", "completion"), ("input", "target"))
IDS = ("input_ids", "labels", "attention_mask")
KEYS = tuple(key for pair in TEXTS for key in pair)
IGNORED = pretokenized.IGNORED


def read(record):
    values = record.values
    if "input_ids" in values:
        return _ids(record)
    for source, target in TEXTS:
        if source in values and target in values:
            texts = fields.text(record, source), fields.text(record, target)
            return Target(record, fields.unused(record, (source, target)), texts=texts)
    keys = ", ".join(sorted(map(str, values))) or "none"
    shapes = " or ".join(f'{{"{one}", "{other}"}}' for one, other in (*TEXTS, IDS[:2]))
    raise bad_row(record, f"a row of task: seq2seq_lm has {shapes} (keys: {keys})")


def _ids(record):
    source = pretokenized.ids_without_padding(record)
    labels = pretokenized.integers(record, '"labels"', fields.structure(record, "labels"))
    if not labels:
        raise bad_row(record, '"labels" is empty: there is no target')
    while len(labels) > 1 and labels[-1] == IGNORED:
        labels = labels[:-1]
    return Target(record, fields.unused(record, IDS), ids=(source, labels))
