"""Rows to token ids and loss weights, with the model's own tokenizer.

Text follows the rule of TRL's SFTTrainer for strings:
  - the model's end-of-sequence token is appended, as text, to a text or completion that does not
    end with it;
  - ids = encode(prompt + completion), as one string, with the special tokens that the tokenizer's
    post-processor adds (a BOS, where it adds one; a second BOS, of a text that spells it itself,
    is dropped, which TRL would keep);
  - the first len(encode(prompt)) ids are the prompt and carry no loss; the rest, with the end
    token, are trained. All are when completion_only_loss is off.
Encoding both as one string is what a model sees when it continues a prompt, save where a token
would span the border: there the ids of the prompt alone are no prefix, which TRL warns of, and so
do we.

Conversations are rendered by the chat template (chat.py) and encoded without special tokens: the
template writes them. A prompt of messages follows the rule above; else a token is trained when any
of its characters is (the rule of transformers' assistant mask).

In all, the first token of a row has nothing before it to be predicted from: its weight is 0. Rows
longer than max_seq_length lose their end.
"""

import bisect
import dataclasses

from chat import Passage
from errors import bad_row
from rows import Text, Tokens


@dataclasses.dataclass
class Example:
    """One row, ready for training."""

    input_ids: list
    loss_weights: list  # of predicting input_ids[t] from what stands before it; [0] is 0
    whole_tokens: int = 0  # before it was cut
    border_moved: bool = False  # encode(prompt) is no prefix of encode(prompt + completion)
    bos_dropped: bool = False
    is_chat: bool = False


def tokenise(model, chats, rows, options):
    """Examples of a batch of rows, in order. PrepareError names the row that is wrong."""
    passages = [None if isinstance(row, Tokens) else _passage(model, chats, row, options)
                for row in rows]
    texts = [passage for passage in passages if passage is not None]
    encoded = dict(zip(map(id, texts), _encode(model, texts)))
    examples = []
    for row, passage in zip(rows, passages):
        if passage is None:
            example = Example(row.ids, row.weights)
        else:
            example = _example(passage, *encoded[id(passage)])
            example.is_chat = passage.bare
        _check_vocabulary(model, row, example.input_ids)
        examples.append(_cut(example, options.max_seq_length))
    return examples


def _passage(model, chats, row, options):
    if not isinstance(row, Text):
        return chats.passage(row)
    end = model.end_token()
    text = row.prompt + row.completion
    text += "" if row.completion.endswith(end) else end
    if row.prompt and options.completion_only_loss:
        return Passage(text, bare=False, prompt=row.prompt)
    return Passage(text, bare=False)


def _encode(model, passages):
    """[(encoding of the text, ids of the prompt or None, whether a BOS was dropped)]"""
    found = {}
    for bare in (False, True):
        group = [passage for passage in passages if passage.bare == bare]
        prompts = [passage for passage in group if passage.prompt is not None]
        batch = [p.text for p in group] + [p.prompt for p in prompts]
        if not batch:
            continue
        encodings = model.tokenizer.encode_batch(batch, add_special_tokens=not bare)
        prompt_ids = dict(zip(map(id, prompts), (e.ids for e in encodings[len(group) :])))
        for passage, encoding in zip(group, encodings):
            found[id(passage)] = (encoding, prompt_ids.get(id(passage)))
    bos = model.token_id("bos") if passages else None
    return [_without_second_bos(p, *found[id(p)], bos) for p in passages]


def _without_second_bos(passage, encoding, prompt, bos):
    ids = encoding.ids
    doubled = not passage.bare and bos is not None and ids[:2] == [bos, bos]
    if not doubled:
        return ids, encoding.offsets, prompt, False
    return ids[1:], encoding.offsets[1:], prompt and prompt[1:], True


def _example(passage, ids, offsets, prompt, bos_dropped):
    moved = False
    if passage.spans is not None:
        weights, moved = _weights_of(passage.spans, offsets)
    elif prompt is None:
        weights = [1.0] * len(ids)
    else:
        split = min(len(prompt), len(ids))
        weights = [0.0] * split + [1.0] * (len(ids) - split)
        moved = ids[:split] != prompt
    return Example(ids, weights, border_moved=moved, bos_dropped=bos_dropped)


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
    example.whole_tokens = len(example.input_ids)
    example.input_ids = example.input_ids[:max_seq_length]
    example.loss_weights = [0.0] + example.loss_weights[1:max_seq_length]
    return example
