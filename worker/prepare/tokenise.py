"""Rows to token ids and loss weights, with the model's own tokenizer.json.

Prompt and completion follow the rule of TRL's SFTTrainer for strings (completion_only_loss):
  - the model's end-of-sequence token is appended, as text, to a completion that does not end with
  it;
  - ids = encode(prompt + completion), as one string, with the special tokens that the tokenizer's
    post-processor adds (a BOS, where it adds one);
  - the first len(encode(prompt)) ids are the prompt and carry no loss; the rest, with the end
    token, are trained.
Encoding both as one string is what a model sees when it continues a prompt, save where a token
would span the border: there the ids of the prompt alone are no prefix, which TRL warns of, and so
do we.

Pre-tokenised rows are taken as they are: label -100 is not trained, any other label must be the
input id itself. Padding (attention_mask 0 at either end) is dropped.

In both, the first token of a row has nothing before it to be predicted from: its weight is 0. Rows
longer than max_seq_length lose their end.
"""

import dataclasses
import json
import os

import tokenizers
from errors import PrepareError, bad_row

IGNORED = -100


@dataclasses.dataclass
class Example:
    """One row, ready for training."""

    input_ids: list
    loss_weights: list  # of predicting input_ids[t] from what stands before it; [0] is 0
    truncated: bool = False
    border_moved: bool = False  # encode(prompt) is no prefix of encode(prompt + completion)


class Model:
    """What a model directory says about tokens: vocabulary size, stop tokens, tokenizer."""

    def __init__(self, directory):
        self.directory = directory
        config = self._read_json("config.json")
        if config is None:
            raise self._bad("config.json", "no such file")
        self.vocab_size = config.get("vocab_size")
        if type(self.vocab_size) is not int or self.vocab_size < 1:
            raise self._bad("config.json", '"vocab_size" must be a positive integer')
        generation = self._read_json("generation_config.json") or {}
        self.stop_ids = _as_set(config.get("eos_token_id")) | _as_set(
            generation.get("eos_token_id")
        )
        self._tokenizer = None
        self._end_token = None

    def tokenizer(self):
        """The tokenizer of tokenizer.json, without the padding or truncation stored in it."""
        if self._tokenizer is None:
            self._tokenizer = self._load_tokenizer()
        return self._tokenizer

    def end_token(self):
        """The end-of-sequence token as text; its id joins the stop tokens."""
        if self._end_token is None:
            self._end_token = self._find_end_token()
            self.stop_ids.add(self.tokenizer().token_to_id(self._end_token))
        return self._end_token

    def _load_tokenizer(self):
        path = os.path.join(self.directory, "tokenizer.json")
        if not os.path.exists(path):
            raise self._bad("tokenizer.json", "no such file; text needs the model's tokenizer")
        try:
            tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # The library raises plain Exception.
            raise self._bad("tokenizer.json", f"not a tokenizer: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def _find_end_token(self):
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            token = (self._read_json(name) or {}).get("eos_token")
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                if self.tokenizer().token_to_id(token) is None:
                    raise self._bad(name, f'"eos_token" {token!r} is not in tokenizer.json')
                return token
        for token_id in sorted(self.stop_ids):
            if token := self.tokenizer().id_to_token(token_id):
                return token
        raise self._bad(
            "tokenizer_config.json",
            'no end-of-sequence token: neither "eos_token" here nor "eos_token_id" in config.json; '
            "without one the trained model would never stop",
        )

    def _read_json(self, name):
        try:
            with open(os.path.join(self.directory, name), encoding="utf-8") as file:
                value = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise self._bad(name, f"not readable as JSON: {error}") from error
        if not isinstance(value, dict):
            raise self._bad(name, "must hold a JSON object")
        return value

    def _bad(self, name, message):
        path = os.path.join(self.directory, name)
        return PrepareError("BAD_MODEL", message, field="model", file=path)


def tokenise(model, rows, max_seq_length):
    """Examples of a batch of rows of one format, in order. PrepareError names the row that is
    wrong."""
    if rows[0].format == "pretokenized":
        return [_from_ids(model, row, max_seq_length) for row in rows]
    return _from_text(model, rows, max_seq_length)


def _from_text(model, rows, max_seq_length):
    end = model.end_token()
    prompts = [row.values["prompt"] for row in rows]
    texts = []
    for row in rows:
        completion = row.values["completion"]
        completion += "" if completion.endswith(end) else end
        texts.append(row.values["prompt"] + completion)
    encode = model.tokenizer().encode_batch
    examples = []
    for row, prompt, text in zip(rows, encode(prompts), encode(texts)):
        _check_vocabulary(model, row, text.ids)
        split = len(prompt.ids)
        trained = [0.0] * min(split, len(text.ids)) + [1.0] * (len(text.ids) - split)
        example = _cut(text.ids, trained, max_seq_length)
        example.border_moved = text.ids[:split] != prompt.ids
        examples.append(example)
    return examples


def _from_ids(model, row, max_seq_length):
    ids, labels = row.values["input_ids"], row.values["labels"]
    begin, end = _without_padding(row, row.values.get("attention_mask", [1] * len(ids)))
    _check_vocabulary(model, row, ids)
    for position, (token, label) in enumerate(zip(ids, labels)):
        if label not in (IGNORED, token):
            raise bad_row(
                row,
                f'"labels"[{position}] is {label}, must be {IGNORED} or the input id {token} '
                "(labels are not shifted)",
            )
        if label != IGNORED and not begin <= position < end:
            raise bad_row(row, f'"labels"[{position}] is trained, but "attention_mask" is 0 there')
    trained = [float(label != IGNORED) for label in labels]
    return _cut(ids[begin:end], trained[begin:end], max_seq_length)


def _without_padding(row, mask):
    if any(value not in (0, 1) for value in mask):
        raise bad_row(row, '"attention_mask" holds a value that is neither 0 nor 1')
    if 1 not in mask:
        raise bad_row(row, '"attention_mask" leaves no token')
    begin, end = mask.index(1), len(mask) - mask[::-1].index(1)
    if 0 in mask[begin:end]:
        raise bad_row(row, '"attention_mask" has a 0 between ones; only padding at an end is known')
    return begin, end


def _check_vocabulary(model, row, ids):
    if not ids:
        raise bad_row(row, "no token is left of this row")
    worst = max(ids) if max(ids) >= model.vocab_size else min(ids)
    if not 0 <= worst < model.vocab_size:
        raise bad_row(
            row, f"token id {worst} is outside the model's vocabulary of {model.vocab_size}"
        )


def _cut(ids, trained, max_seq_length):
    weights = [0.0] + trained[1:max_seq_length]
    return Example(ids[:max_seq_length], weights, truncated=len(ids) > max_seq_length)


def _as_set(ids):
    return set(ids) if isinstance(ids, list) else set() if ids is None else {ids}
