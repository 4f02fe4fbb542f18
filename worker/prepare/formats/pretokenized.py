"""Rows that are tokens already.

    {"input_ids"[, "labels"][, "attention_mask"][, "completion_mask"][, "assistant_masks"]}
A label of -100 is not trained, any other must be the input id itself (labels are not shifted);
without labels every token is, or those that all masks name (TRL's rule). Padding (attention_mask 0
at either end) is dropped.

    {"model_input": [ids] or {"chunks": [{"tokens"}]},
     "loss_fn_inputs": {"target_tokens", "weights"}}
Tinker's Datum: target_tokens[t] is what follows model_input[t], weights[t] the weight of its loss.
"""

from errors import bad_row
from formats import fields
from rows import Tokens

NAME = "pretokenized"
SHAPE = '{"input_ids"[, "labels", "attention_mask"]} as lists of integers'
MASKS = ("completion_mask", "assistant_masks")
KEYS = ("input_ids", "labels", "attention_mask", *MASKS)
DATUM_KEYS = ("model_input", "loss_fn_inputs")
IGNORED = -100


def recognises(values):
    return "input_ids" in values or all(key in values for key in DATUM_KEYS)


def read(record):
    return _datum(record) if "model_input" in record.values else _ids_and_labels(record)


def ids_without_padding(record):
    """The token ids of a row, without its padding."""
    ids, begin, end = ids_and_ends(record)
    return ids[begin:end]


def ids_and_ends(record):
    """(the token ids of a row, where they begin, where they end behind and before its padding)."""
    ids = _ids(record)
    return ids, *_without_padding(record, _list_beside(record, "attention_mask", ids), len(ids))


def _ids(record):
    ids = integers(record, '"input_ids"', fields.structure(record, "input_ids"))
    if not ids:
        raise bad_row(record, '"input_ids" is empty')
    return ids


def _ids_and_labels(record):
    ids = _ids(record)
    begin, end = _without_padding(record, _list_beside(record, "attention_mask", ids), len(ids))
    labels = _labels(record, ids)
    if labels is None:
        labels = [IGNORED] * begin + ids[begin:end] + [IGNORED] * (len(ids) - end)
    for position, (token, label) in enumerate(zip(ids, labels)):
        if label not in (IGNORED, token):
            raise bad_row(
                record,
                f'"labels"[{position}] is {label}, must be {IGNORED} or the input id {token} '
                "(labels are not shifted)",
            )
        if label != IGNORED and not begin <= position < end:
            message = f'position {position} is trained, but "attention_mask" is 0 there'
            raise bad_row(record, message)
    weights = [float(label != IGNORED) for label in labels]
    return Tokens(record, fields.unused(record, KEYS), ids[begin:end], weights[begin:end])


def _labels(record, ids):
    """The labels that the row has, or its masks spell; None without either."""
    labels = _list_beside(record, "labels", ids)
    masks = [_list_beside(record, key, ids) for key in MASKS]
    masks = [mask for mask in masks if mask is not None]
    if labels is not None and masks:
        raise bad_row(record, '"labels" and a mask of what is trained: give one of them')
    if labels is not None or not masks:
        return labels
    return [token if all(bits) else IGNORED for token, *bits in zip(ids, *masks)]


def _list_beside(record, key, ids):
    value = fields.structure(record, key)
    if value is None:
        return None
    if key != "labels" and isinstance(value, list):
        value = [int(bit) if isinstance(bit, bool) else bit for bit in value]
    if len(integers(record, f'"{key}"', value)) != len(ids):
        message = f'"{key}" has {len(value)} entries, "input_ids" has {len(ids)}'
        raise bad_row(record, message)
    return value


def _without_padding(record, mask, length):
    if mask is None:
        return 0, length
    if any(value not in (0, 1) for value in mask):
        raise bad_row(record, '"attention_mask" holds a value that is neither 0 nor 1')
    if 1 not in mask:
        raise bad_row(record, '"attention_mask" leaves no token')
    begin, end = mask.index(1), len(mask) - mask[::-1].index(1)
    if 0 in mask[begin:end]:
        message = '"attention_mask" has a 0 between ones; only padding at an end is known'
        raise bad_row(record, message)
    return begin, end


def integers(record, what, value):
    """The value, a list of integers; an error that names it as `what` for any other."""
    if not isinstance(value, list):
        kind = fields.kind_of_value(value)
        raise bad_row(record, f"{what} must be a list of integers, this is {kind}")
    for position, item in enumerate(value):
        if type(item) is not int:  # bool is an int to isinstance
            kind = fields.kind_of_value(item)
            raise bad_row(record, f"{what}[{position}] must be an integer, this is {kind}")
    return value


def _datum(record):
    source = fields.structure(record, "model_input")
    if isinstance(source, dict):
        chunks = fields.checked_list(record, '"model_input"."chunks"', source.get("chunks"))
        source = []
        for index, chunk in enumerate(chunks):
            what = f'"model_input"."chunks"[{index}]'
            tokens = fields.checked_object(record, what, chunk).get("tokens")
            source += integers(record, what + '."tokens"', tokens)
    ids = integers(record, '"model_input"', source)
    inputs = fields.structure(record, "loss_fn_inputs")
    inputs = fields.checked_object(record, '"loss_fn_inputs"', inputs)
    targets = integers(record, '"target_tokens"', _plain(inputs.get("target_tokens")))
    weights = _weights(record, _plain(inputs.get("weights", [1.0] * len(targets))))
    if not len(ids) == len(targets) == len(weights) or not ids:
        text = f'{len(ids)} ids in "model_input", {len(targets)} in "target_tokens", '
        raise bad_row(record, text + f'{len(weights)} in "weights": must be equal, and not 0')
    for position, (target, following) in enumerate(zip(targets, ids[1:])):
        if target != following:
            raise bad_row(
                record,
                f'"target_tokens"[{position}] is {target}, but "model_input"[{position + 1}] is '
                f"{following}: a target must be the token that follows",
            )
    unused = fields.unused(record, DATUM_KEYS)
    return Tokens(record, unused, ids + targets[-1:], [0.0] + weights)


def _plain(value):
    """A list, or Tinker's tensor {"data": [...]}."""
    return value.get("data") if isinstance(value, dict) else value


def _weights(record, value):
    return [
        fields.weight(record, f'"weights"[{position}]', weight)
        for position, weight in enumerate(fields.checked_list(record, '"weights"', value))
    ]
