"""Rows of task: masked_lm, a text or its tokens.

    {"text"}: a string
    {"input_ids"[, "attention_mask"]}: token ids, special ones among them
Padding (attention_mask 0 at either end) is dropped.
"""

from errors import bad_row
from formats import fields, pretokenized
from rows import Masked

NAME = "masked"
IDS = ("input_ids", "attention_mask")


def read(record):
    values = record.values
    if "input_ids" in values:
        ids = pretokenized.ids_without_padding(record)
        return Masked(record, fields.unused(record, IDS), ids=ids)
    if "text" in values:
        return Masked(record, fields.unused(record, ("text",)), text=fields.text(record, "text"))
    keys = ", ".join(sorted(map(str, values))) or "none"
    shapes = '{"text"} or {"input_ids"}'
    raise bad_row(record, f"a row of task: masked_lm has {shapes} (keys: {keys})")
