"""Rows to token ids and loss weights, with the model's own tokenizer.

Text follows the rule of TRL's SFTTrainer for strings:
  - the model's end-of-sequence token is appended, as text, to a text or completion that does not
    end with it;
  - ids = encode(prompt + completion), as one string, with the special tokens that the tokenizer's
    post-processor adds (a BOS, where it adds one; a second BOS, of a text that spells it itself,
    is dropped, which TRL would keep; one that ends texts itself gets no second end token, and its
    prompt does not end, where TRL doubles the one and masks an answer's first token);
  - as far as these ids are those of encode(prompt), they are the prompt and carry no loss; the
    rest, with the end token, are trained. All are when completion_only_loss is off.
Encoding both as one string is what a model sees when it continues a prompt, save where a token
would span the border: it is trained, with all behind it (TRL since 1.14.2; before, as many ids
were masked as the prompt alone has, be they its own or not). TRL warns of that, and so do we.

Conversations are rendered by the chat template (chat.py) and encoded without special tokens: the
template writes them. A token is trained when any of its characters is (the rule of transformers'
assistant mask), and, behind a prompt of messages, by the rule above as well.

Documents with a class are encoded as transformers' users do: the text, or both as a pair, with the
special tokens of the post-processor and no end token, cut within the texts (longest first) where
they are longer than max_seq_length. The one loss of such a row stands at its last token.

Of words with classes the first token of a word has its class, the others and special tokens have
none (-100), as transformers' example of token classification has it; each token with a class is
trained, where it stands.

A source and its target are encoded apart, each with the special tokens of the post-processor and
cut as documents are; a target ends with the model's end token. All of a target is trained, its
first token too: the decoder reads another before it.

Texts of which tokens are hidden are encoded and cut as documents are. Each token but the special
ones has the weight 1: it may be hidden.

Images are pixels (images.py). Their tokens stand for patches and have no ids: all are 0.

In all others, the first token of a row has nothing before it to be predicted from: its weight is 0.
Rows longer than max_seq_length lose their end.
"""

import array
import bisect
import contextlib
import dataclasses
import hashlib
import os

from chat import Passage
from errors import PrepareError, bad_row
from images import Original
from labels import IGNORED
from rows import Labelled, Masked, Picture, Tagged, Target, Text, Tokens

# Per call of the tokenizer, which spreads a batch over the cores.
BATCH_ROWS = 200
BATCH_CHARACTERS = 1 << 20
# Memory that a long text takes: measured 120 to 260, by the length of its tokens and whether their
# offsets are asked for. What this lets through and still does not fit, the tokenizer ends the
# process for.
BYTES_PER_CHARACTER = 256
DIGEST_BYTES = 8  # Two of ten million rows that differ share one in three millionths of cases.


@dataclasses.dataclass
class Example:
    """One row, ready for training."""

    input_ids: list  # an array once it is cut
    loss_weights: list  # of predicting input_ids[t] from what stands before it; [0] is 0
    border_moved: bool = False  # the prompt, or what stands before a turn, has no ids of its own
    bos_dropped: bool = False
    is_chat: bool = False
    label: int | list | None = None  # of a document: its class, or numbers
    token_labels: list | None = None  # of words with classes: each token's, or IGNORED
    masked: bool = False  # tokens with a weight may be hidden, the first too
    pixels: bytes = b""  # of an image, whose tokens all have the id 0
    original: Original | None = None  # what crops of it are taken from
    second_begin: int | None = None  # of a pair: where the second text's tokens begin
    source_ids: array.array = dataclasses.field(default_factory=lambda: array.array("i"))
    # Of the row before it was cut:
    whole_tokens: int = 0
    trains: bool = False  # it had a trained token
    digest: int = 0  # of ids and weights, DIGEST_BYTES


def tokenise(model, chats, rows, options, refuse):
    """Yields (row, Example) of rows, in order. `refuse` takes the PrepareError of each row that is
    wrong."""
    batch, characters = [], 0
    for row in rows:
        try:
            passage = None if _is_tokens(row) else _passage(model, chats, row, options)
            size = 0 if passage is None else _checked_size(row, passage, options.memory_bytes)
        except PrepareError as error:
            refuse(error)
            continue
        if batch and (len(batch) == BATCH_ROWS or characters + size > BATCH_CHARACTERS):
            yield from _examples(model, batch, options, refuse)
            batch, characters = [], 0
        batch.append((row, passage))
        characters += size
    yield from _examples(model, batch, options, refuse)


def _is_tokens(row):
    """Whether no text of it is encoded with those of other rows."""
    if isinstance(row, (Labelled, Masked, Target)):
        return row.ids is not None
    return isinstance(row, (Tokens, Tagged, Picture))


def _passage(model, chats, row, options):
    if isinstance(row, Labelled):
        return Passage(row.texts[0], bare=False, pair=row.texts[1] if row.texts[1:] else None)
    if isinstance(row, Masked):
        return Passage(row.text, bare=False)
    if isinstance(row, Target):
        source, target = row.texts
        return Passage(_ended(model, target), bare=False, source=source)
    if not isinstance(row, Text):
        return chats.passage(row)
    text = row.prompt + _ended(model, row.completion)
    if row.prompt and options.completion_only_loss:
        return Passage(text, bare=False, prompt=row.prompt)
    return Passage(text, bare=False)


def _ended(model, text):
    """With the end token, where the post-processor does not write it."""
    end = model.end_token()
    closed = model.tokenizer.token_to_id(end) in model.closing_ids
    return text.removesuffix(end) + ("" if closed else end)


def _checked_size(row, passage, memory_bytes):
    """Characters to be tokenised. Whatever wrote the text (a file, JSON in a string, a template),
    here it is text that the tokenizer takes and that fits the memory."""
    text = passage.text + (passage.pair or "") + (passage.source or "")
    size, most = len(text), memory_bytes // BYTES_PER_CHARACTER
    if size > most:
        message = (
            f"this row has {size} characters of text; to tokenise more than {most} in one piece "
            "takes more than prepare.memory: split the row, or raise the limit"
        )
        raise PrepareError("PREPARE_LIMIT", message, file=row.file, line=row.line)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = "its text holds half of a surrogate pair, which is no character"
        raise bad_row(row, message) from error
    return size


def _examples(model, batch, options, refuse):
    encoded = _encode(model, [passage for _, passage in batch if passage is not None], options)
    for row, passage in batch:
        try:
            if isinstance(row, Labelled):
                example = _labelled(row, passage and encoded[passage.input, False])
                if model.types_pairs:
                    encoding = passage and encoded[passage.input, False]
                    example.second_begin = _second_begin(row, example, encoding)
            elif isinstance(row, Picture):
                example = _picture(model, row)
            elif isinstance(row, Masked):
                example = _masked(model, row, passage and encoded[passage.input, False])
            elif isinstance(row, Tagged):
                example = _tagged(model, row)
            elif isinstance(row, Target):
                example = _target(model, row, passage, encoded)
                _check_vocabulary(model, row, example.source_ids)
            elif passage is None:
                example = Example(row.ids, row.weights)
            else:
                example = _example(model, passage, encoded, options.max_seq_length)
            _check_vocabulary(model, row, example.input_ids)
        except PrepareError as error:
            refuse(error)
            continue
        yield row, _cut(example, options.max_seq_length)


def _encode(model, passages, options):
    """{(text, bare): its encoding} of texts and prompts; offsets for texts with spans alone. Of
    texts that take much memory, one process encodes at a time."""
    large = sum(len(passage.text) for passage in passages) > BATCH_CHARACTERS
    with options.one_at_a_time if large else contextlib.nullcontext():
        return _encoded(model, passages)


def _encoded(model, passages):
    found = {}
    for bare in (False, True):
        group = [passage for passage in passages if passage.bare == bare]
        exact = {p.text for p in group if p.spans is not None}
        quick = {p.input for p in group} | {p.prompt for p in group if p.prompt is not None}
        quick |= {p.source for p in group if p.source is not None}
        quick -= exact
        for texts, encode in ((exact, "encode_batch"), (quick, "encode_batch_fast")):
            if texts:
                texts = list(texts)
                encodings = getattr(model.tokenizer, encode)(texts, add_special_tokens=not bare)
                found.update(zip(((text, bare) for text in texts), encodings))
    return found


def _example(model, passage, encoded, max_seq_length):
    encoding = encoded[passage.text, passage.bare]
    ids = encoding.ids
    prompt = passage.prompt and _prompt_ids(model, passage, encoded)
    weights, moved = [1.0] * len(ids), False
    if passage.spans is not None:
        offsets = encoding.offsets
        cut = offsets[max_seq_length][0] if len(ids) > max_seq_length else len(passage.text)
        weights, moved = _weights_of(passage.spans(cut), offsets)
    if prompt:
        split = len(os.path.commonprefix((prompt, ids)))
        weights[:split] = [0.0] * split
        moved |= split < len(prompt)
    example = Example(ids, weights, border_moved=moved, is_chat=passage.bare)
    bos = model.token_id("bos")
    if not passage.bare and bos is not None and ids[:2] == [bos, bos]:
        example.input_ids, example.loss_weights = ids[1:], weights[1:]
        example.bos_dropped = True
    return example


def _labelled(row, encoding):
    """`encoding`: of its texts, cut already; None: the row is ids."""
    if encoding is None:
        return Example(row.ids, [], label=row.label)
    return Example(encoding.ids, [], label=row.label, whole_tokens=_whole_tokens(encoding))


def _masked(model, row, encoding):
    """`encoding`: of its text, cut already; None: the row is ids."""
    ids = encoding.ids if encoding else row.ids
    weights = [float(token not in model.special_ids) for token in ids]
    whole = _whole_tokens(encoding) if encoding else len(ids)
    return Example(ids, weights, masked=True, whole_tokens=whole)


def _whole_tokens(encoding):
    """Of a text that may have been cut."""
    left_out = sum(piece.special_tokens_mask.count(0) for piece in encoding.overflowing)
    return len(encoding.ids) + left_out


def _target(model, row, passage, encoded):
    """`passage`: None where the row is ids."""
    if passage is None:
        source, target = row.ids
        ids = [model.pad_id if token == IGNORED else token for token in target]
        weights = [float(token != IGNORED) for token in target]
        return Example(ids, weights, source_ids=source, whole_tokens=len(source) + len(ids))
    source, target = encoded[passage.source, False], encoded[passage.text, False]
    ids = target.ids
    ids[-1:] = [model.tokenizer.token_to_id(model.end_token())]  # It may have been cut off.
    whole = _whole_tokens(source) + _whole_tokens(target)
    return Example(ids, [1.0] * len(ids), source_ids=source.ids, whole_tokens=whole)


def _picture(model, row):
    pixels, original = model.images.read(row)
    ids = [0] * model.images.tokens
    return Example(ids, [], label=row.label, pixels=pixels, original=original)


def _tagged(model, row):
    """Words are cut already."""
    if row.ids is not None:
        return Example(row.ids, [], token_labels=row.label)
    encoding = model.tokenizer.encode(row.words, is_pretokenized=True)
    labels, before = [], None
    for word in encoding.word_ids:
        labels.append(IGNORED if word is None or word == before else row.label[word])
        before = word
    return Example(encoding.ids, [], token_labels=labels, whole_tokens=_whole_tokens(encoding))


def _second_begin(row, example, encoding):
    """Behind the first text's tokens, whose type is 0; the others' is 1. `encoding`: None where the
    row is ids, which are of type 0 all."""
    types = encoding.type_ids if encoding else [0] * len(example.input_ids)
    begin = types.index(1) if 1 in types else len(types)
    if any(types[:begin]) or types[begin:] != [1] * (len(types) - begin):
        raise bad_row(row, "the tokenizer gives token types other than 0, then 1")
    return begin


def _prompt_ids(model, passage, encoded):
    ids = encoded[passage.prompt, passage.bare].ids
    return ids if passage.bare else model.without_closing(ids)


def _weights_of(spans, offsets):
    """(weights, whether a span begins inside a token) of tokens at `offsets` (begin, end)."""
    weights = [0.0] * len(offsets)
    moved = False
    begins, ends = zip(*offsets) if offsets else ((), ())
    for begin, end, weight in spans:
        first = bisect.bisect_right(ends, begin)
        last = bisect.bisect_left(begins, end)
        # Some tokenizers trim spaces off a token's offsets: a token of spaces alone is left with an
        # empty range behind them.
        while last < len(offsets) and offsets[last] == (end, end):
            last += 1
        for token in range(first, last):
            weights[token] = weight
        moved |= first < last and begins[first] < begin
    return weights, moved


def _check_vocabulary(model, row, ids):
    if not ids:
        raise bad_row(row, "no token is left of this row")
    worst = max(ids) if max(ids) >= model.vocab_size else min(ids)
    if not 0 <= worst < model.vocab_size:
        raise bad_row(
            row, f"token id {worst} is outside the model's vocabulary of {model.vocab_size}"
        )


def _cut(example, max_seq_length):
    if example.label is not None:
        return _cut_document(example, max_seq_length)
    if example.token_labels is not None:
        return _cut_tagged(example, max_seq_length)
    if example.source_ids or example.masked:
        return _cut_target(example, max_seq_length)
    ids, weights = array.array("i", example.input_ids), array.array("f", example.loss_weights)
    weights[0] = 0.0
    digest = hashlib.blake2b(ids, digest_size=DIGEST_BYTES)
    digest.update(weights)
    example.digest = int.from_bytes(digest.digest(), "little")
    example.whole_tokens, example.trains = len(ids), any(weights)
    example.input_ids, example.loss_weights = ids[:max_seq_length], weights[:max_seq_length]
    return example


def _cut_document(example, max_seq_length):
    ids = array.array("i", example.input_ids[:max_seq_length])
    digest = hashlib.blake2b(ids, digest_size=DIGEST_BYTES)
    digest.update(example.pixels)
    numbers = example.label if isinstance(example.label, list) else [example.label]
    digest.update(array.array("f", numbers))
    example.digest = int.from_bytes(digest.digest(), "little")
    example.whole_tokens = max(example.whole_tokens, len(example.input_ids))
    example.trains, example.input_ids = True, ids
    example.loss_weights = array.array("f", [0.0] * (len(ids) - 1) + [1.0])
    return example


def _cut_tagged(example, max_seq_length):
    ids = array.array("i", example.input_ids)
    labels = array.array("i", example.token_labels)
    digest = hashlib.blake2b(ids, digest_size=DIGEST_BYTES)
    digest.update(labels)
    example.digest = int.from_bytes(digest.digest(), "little")
    example.whole_tokens = max(example.whole_tokens, len(ids))
    example.trains = any(label != IGNORED for label in labels)
    example.input_ids, example.token_labels = ids[:max_seq_length], labels[:max_seq_length]
    weights = (float(label != IGNORED) for label in example.token_labels)
    example.loss_weights = array.array("f", weights)
    return example


def _cut_target(example, max_seq_length):
    """Texts are cut already."""
    source, ids = array.array("i", example.source_ids), array.array("i", example.input_ids)
    weights = array.array("f", example.loss_weights)
    digest = hashlib.blake2b(source, digest_size=DIGEST_BYTES)
    digest.update(array.array("q", [len(source)]))
    digest.update(ids)
    digest.update(weights)
    example.digest = int.from_bytes(digest.digest(), "little")
    example.trains = any(weights)
    example.source_ids = source[:max_seq_length]
    example.input_ids, example.loss_weights = ids[:max_seq_length], weights[:max_seq_length]
    return example
