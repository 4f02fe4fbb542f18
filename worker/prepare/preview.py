"""A preview: the first rows of a dataset as a reader sees them, text by text with the weight it is
trained with, and the summary of as many rows as a short time allows. Writes one file,
snug.v1.PreviewDatasetResponse as proto3 JSON; prepares nothing.
"""

import itertools
import json
import time

import files
import formats
import tokenise
from chat import Chats
from checks import Checks
from errors import PrepareError
from model import Model
from prepared_dataset import PreparedDataset

DEFAULT_SEQ_LENGTH = 2048
SCANNED_ROWS = 10000  # That the summary is of, at most;
SCAN_SECONDS = 10.0  # a person waits.
SHOWN_TOKENS = 4096  # Of a row. More is no preview, and 100 rows of them fit a message.
SHOWN_BYTES = 64 << 10  # Of a row's text: tokens of pure white space can be long.


def write(options):
    """Reads the beginning of the dataset and writes options.output."""
    model = Model(options.model, options.added_tokens)
    if not options.max_seq_length:  # As a job that names none.
        options.max_seq_length = min(DEFAULT_SEQ_LENGTH, model.max_positions or DEFAULT_SEQ_LENGTH)
    chats = Chats(model, options)
    dataset = PreparedDataset(options.dataset, Checks(model, options))
    records = files.kind_of(options.dataset).read(options.dataset)
    scanned = itertools.islice(_for_a_while(records), SCANNED_ROWS)
    rows, shown = formats.read_rows(scanned, options.format), []
    for row, example in tokenise.tokenise(model, chats, rows, options):
        if len(shown) < options.preview_rows:
            shown.append(_row(model, row, example))
        dataset.add(example, row)
    if not shown:
        raise PrepareError("BAD_DATASET", "the dataset has no rows", file=options.dataset)
    summary = dataset.summary(format=row.format, **chats.about())
    summary["warnings"] += chats.warnings()
    whole = next(records, None) is None
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump({"rows": shown, "summary": summary, "whole": whole}, file)


def _for_a_while(records):
    began = time.monotonic()
    for record in records:
        yield record
        if time.monotonic() - began > SCAN_SECONDS:
            return


def _row(model, row, example):
    weights = example.loss_weights
    return {
        "line": row.line,
        "tokens": len(weights),
        "trained_tokens": sum(1 for weight in weights if weight),
        "cut_tokens": example.whole_tokens - len(weights),
        "left_out_tokens": max(len(weights) - SHOWN_TOKENS, 0),
        "segments": _segments(model, example),
    }


def _segments(model, example):
    """Neighbours of one weight as one text. A row's text is decoded up to each border and the
    difference taken: the first token of a text may lose its space."""
    ids, weights = example.input_ids, example.loss_weights
    segments, begin, before = [], 0, ""
    for weight, run in itertools.groupby(weights[:SHOWN_TOKENS]):
        end = begin + len(list(run))
        text = _decode(model, ids[:end])
        piece = text[len(before) :] if text.startswith(before) else _decode(model, ids[begin:end])
        piece = piece.encode()[:SHOWN_BYTES].decode(errors="ignore")
        segments.append({"text": piece, "weight": weight, "tokens": end - begin})
        begin, before = end, text
    return segments


def _decode(model, ids):
    if not model.has_tokenizer:  # Rows of tokens need none.
        return " ".join(map(str, ids))
    return model.tokenizer.decode(ids, skip_special_tokens=False)
