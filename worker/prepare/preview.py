"""A preview: the first rows of a dataset as a reader sees them, text by text with the weight it is
trained with, and the summary of as many rows as a short time allows. Writes one file,
snug.v1.PreviewDatasetResponse as proto3 JSON; prepares nothing.
"""

import itertools
import json
import os
import time

from chat import Chats
from checks import Checks
from errors import BadRows, PrepareError
from labels import classify
from masked import mask
from model import Model
from parts import Maker
from prepared_dataset import PreparedDataset
from seq2seq import make_targets
from sources import sources_of

DEFAULT_SEQ_LENGTH = 2048
SCANNED_ROWS = 10000  # That the summary is of, at most;
SCAN_SECONDS = 10.0  # a person waits.
PART_ROWS = 25  # Between two looks at the clock.
SHOWN_TOKENS = 4096  # Of a row. More is no preview, and 100 rows of them fit a message.
SHOWN_BYTES = 64 << 10  # Of a row's text: tokens of pure white space can be long.


def write(options):
    """Reads the beginning of the dataset and writes options.output."""
    model = Model(options.model, options.added_tokens)
    if not options.max_seq_length:  # As a job that names none.
        options.max_seq_length = min(DEFAULT_SEQ_LENGTH, model.max_positions or DEFAULT_SEQ_LENGTH)
    sources, shown = sources_of(options, model.task), []
    labels = classify(model, sources, options, options.scan_rows)
    make_targets(model, sources, options)
    mask(model, sources, options)
    for source in sources:
        source.settle()

    def show(row, example):
        if len(shown) < options.preview_rows:
            shown.append(_row(model, row, example, labels))

    chats = Chats(model, options)
    beside = os.path.dirname(os.path.abspath(options.output))
    dataset = PreparedDataset(sources[0].name, Checks(model, options), beside)
    part_rows = min(PART_ROWS, options.scan_rows)
    maker = Maker(model, sources, options, seen=show, part_rows=part_rows)
    whole = _scan(maker, dataset, chats, options.scan_rows)
    if not shown:
        raise PrepareError("BAD_DATASET", "the dataset has no rows", file=sources[0].name)
    formats = sorted({source.reader.format for source in sources})
    summary = dataset.summary(format=", ".join(formats), **chats.about())
    summary["warnings"] += chats.warnings()
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump({"rows": shown, "summary": summary, "whole": whole}, file)


def _scan(maker, dataset, chats, most):
    """Whether these are all rows. `most`: rows to read, or a few more."""
    bad, rows, began = BadRows(), 0, time.monotonic()
    parts = maker.parts()
    for part in parts:
        dataset.add(part.train)
        chats.merge(part.chats)
        bad.merge(part.bad)
        rows += part.rows
        if rows >= most or time.monotonic() - began > SCAN_SECONDS:
            break
    bad.require_none(rows)
    return next(parts, None) is None


def _row(model, row, example, labels):
    source = example.source_ids.tolist()
    ids = source + example.input_ids.tolist()
    weights = [0.0] * len(source) + example.loss_weights.tolist()
    return {
        "line": row.line,
        "tokens": len(weights),
        "trained_tokens": sum(1 for weight in weights if weight),
        "cut_tokens": example.whole_tokens - len(weights),
        "left_out_tokens": max(len(weights) - SHOWN_TOKENS, 0),
        "segments": _picture(row, labels) if model.images else _segments(model, ids, weights),
    }


def _picture(row, labels):
    """An image in words: its file, as far as there is one of its own, and its class."""
    name = labels.names[row.label] if labels.names else str(row.label)
    file = "" if isinstance(row.source, bytes) else f"{os.path.basename(row.source)}, "
    return [{"text": f"{file}class {name}", "weight": 0.0, "tokens": 0}]


def _segments(model, ids, weights):
    """Neighbours of one weight as one text. A row's text is decoded up to each border and the
    difference taken: the first token of a text may lose its space."""
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
