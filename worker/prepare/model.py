"""What a model directory says about tokens: vocabulary, stop tokens, tokenizer, chat templates.

Reads the files that transformers' tokenizers are loaded from, and nothing else of the model. The
precedence of chat templates is that of transformers: files, then tokenizer_config.json.
"""

import functools
import json
import os
import re

import images
import tokenizers
from errors import PrepareError
from files import given

SPECIAL_TOKENS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
MORE_TEMPLATES = "additional_chat_templates"
DEFAULT_LABELS = 2  # Of transformers.
GENERIC_LABEL = re.compile(r"LABEL_\d+")  # What it calls a class without a name.
ORIGINAL_POSITIONS = "original_max_position_embeddings"


def _max_positions(config):
    """Tokens that the model is good for, as RoPE scaling stretches them; None: it does not say.

    The rule of LongestSequence in worker/program/rope_config.cc, which refuses what is wrong.
    """
    own = config.get("max_position_embeddings")
    if own is not None and config.get("model_type") in ("roberta", "xlm-roberta"):
        return own - config.get("pad_token_id", 1) - 1  # Positions are counted from behind it on.
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if own is None or not isinstance(rope, dict) or config.get("model_type") == "gemma3_text":
        return own
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    original = own
    if kind in ("yarn", "llama3"):
        original = rope.get(ORIGINAL_POSITIONS) or config.get(ORIGINAL_POSITIONS) or own
    elif kind != "linear":
        return own
    if type(original) is not int or type(factor) not in (int, float) or not 1 <= factor <= 1e6:
        return own
    return max(own, int(original * factor))


def _labels(config):
    """(names of the classes by id, empty where the model has none of its own; how many)."""
    names = config.get("id2label")
    if not isinstance(names, dict) or not names:
        return [], config.get("num_labels") or DEFAULT_LABELS
    listed = [names.get(str(number)) for number in range(len(names))]
    own = all(isinstance(n, str) for n in listed) and len(set(listed)) == len(listed)
    own = own and not all(GENERIC_LABEL.fullmatch(n) for n in listed)
    return (listed if own else []), len(names)


SEQ2SEQ = "seq2seq_lm"
MASKED = "masked_lm"
# What transformers' classes of heads end in, by the task of rows with labels.
HEADS = {
    "ForSequenceClassification": "sequence_classification",
    "ForTokenClassification": "token_classification",
    "ForImageClassification": "image_classification",
}
TASKS = (*HEADS.values(), SEQ2SEQ, MASKED)
MASKED_HEADS = ("ForMaskedLM", "ForPreTraining")  # The second is BERT's with one more.


def _task(config):
    """That of TASKS that the model is made for, or none."""
    for name in map(str, config.get("architectures") or ()):
        for ending, task in HEADS.items():
            if name.endswith(ending):
                return task
        if name.endswith(MASKED_HEADS):
            return MASKED
    return SEQ2SEQ if config.get("model_type") == "t5" else ""  # It may name no class.


def _problem(config, num_labels):
    """What its labels are, as transformers takes it where config.json does not say."""
    return config.get("problem_type") or (
        "regression" if num_labels == 1 else "single_label_classification"
    )


class Model:
    """Files are read when they are asked for: rows that are tokens already need no tokenizer."""

    def __init__(self, directory, new_tokens=()):
        """`new_tokens`: texts that the tokenizer gets as tokens, one id each."""
        self.directory = directory
        self.new_tokens = new_tokens
        config = self._read_json("config.json")
        if config is None:
            raise self.bad("config.json", "no such file")
        text = config.get("text_config")  # Where models of text and images have the text's part.
        config = {**config, **text} if isinstance(text, dict) else config
        self.images = None  # What it makes of them, where it reads them in the place of tokens.
        if config.get("model_type") in images.MODELS:
            self.images = images.Images(self, config, self._read_json(images.FILE))
            config = {**config, "vocab_size": 1, "max_position_embeddings": self.images.tokens}
        self.vocab_size = config.get("vocab_size")
        if type(self.vocab_size) is not int or self.vocab_size < 1:
            raise self.bad("config.json", '"vocab_size" must be a positive integer')
        if type(config.get("max_position_embeddings")) not in (int, type(None)):
            raise self.bad("config.json", '"max_position_embeddings" must be an integer')
        self.max_positions = _max_positions(config)
        # BERT tells the first text of a pair from the second; RoBERTa's tokens have one type.
        types = config.get("type_vocab_size", 2) if config.get("model_type") == "bert" else 0
        self.types_pairs = type(types) is int and types > 1
        self.task = _task(config)
        self.label_names, self.num_labels = _labels(config)
        self.problem_type = _problem(config, self.num_labels)
        self.pad_id = config.get("pad_token_id") or 0  # T5's where it names none.
        self.stop_ids = self._stop_ids("config.json", config)
        name = "generation_config.json"
        self.stop_ids |= self._stop_ids(name, self._read_json(name) or {})
        self._tokenizer = None
        self._special = None
        self._added = None
        if new_tokens:
            self.vocab_size = max(self.vocab_size, self.new_ids[-1] + 1)

    @property
    def new_ids(self):
        """Those of the new tokens, which follow one another."""
        return [self.tokenizer.token_to_id(token) for token in self.new_tokens]

    @property
    def has_tokenizer(self):
        return given.exists(os.path.join(self.directory, TOKENIZER_FILE))

    @property
    def tokenizer(self):
        """The tokenizer of tokenizer.json, without the padding or truncation stored in it."""
        if self._tokenizer is None:
            self._tokenizer = self._load_tokenizer()
        return self._tokenizer

    def split_words(self):
        """Texts come as words: where a tokenizer tells a word by the space before it, each gets
        one, as transformers' example of token classification has it (add_prefix_space)."""
        splitter = self.tokenizer.pre_tokenizer
        if isinstance(splitter, tokenizers.pre_tokenizers.ByteLevel):
            splitter.add_prefix_space = True

    @property
    def added_tokens(self):
        """{text: id} of tokens that text is split at: control tokens, special ones among them."""
        if self._added is None:
            decoder = self.tokenizer.get_added_tokens_decoder()
            self._added = {token.content: token_id for token_id, token in decoder.items()}
        return self._added

    @property
    def special_tokens(self):
        """{"bos_token": "<s>", ...}: those that the tokenizer's configuration names."""
        if self._special is None:
            self._special = {}
            for config in self._token_names():
                for key in (f"{token}_token" for token in SPECIAL_TOKENS):
                    token = config.get(key)
                    token = token.get("content") if isinstance(token, dict) else token
                    if isinstance(token, str):
                        self._special.setdefault(key, token)
        return self._special

    def _token_names(self):
        """The files that name special tokens, the one that counts first. Transformers' rule: a
        tokenizer whose configuration lists its added tokens was saved after the map went out of
        use."""
        config = self._read_json("tokenizer_config.json") or {}
        files = (config, self._read_json("special_tokens_map.json") or {})
        return files if "added_tokens_decoder" in config else files[::-1]

    def token_id(self, name):
        """The id of a special token ("bos", "pad", ...), or None."""
        token = self.special_tokens.get(f"{name}_token")
        return None if token is None else self.tokenizer.token_to_id(token)

    def mask_id(self):
        """The id of the token that hides others."""
        if not self.has_tokenizer:
            message = "no such file; task: masked_lm needs the tokenizer's mask token"
            raise self.bad(TOKENIZER_FILE, message)
        mask = self.token_id("mask")
        if mask is None:
            message = 'no "mask_token" that is in tokenizer.json; task: masked_lm needs one'
            raise self.bad("tokenizer_config.json", message)
        return mask

    def tokens(self):
        """How many the tokenizer has, which are no more than the model knows."""
        count = self.tokenizer.get_vocab_size(with_added_tokens=True)
        if count > self.vocab_size:
            message = f"{count} tokens are more than config.json's vocab_size of {self.vocab_size}"
            raise self.bad(TOKENIZER_FILE, message)
        return count

    @functools.cached_property
    def special_ids(self):
        """Of the tokens that are special: those that are named, and those that say so."""
        named = {self.tokenizer.token_to_id(text) for text in self.special_tokens.values()}
        decoder = self.tokenizer.get_added_tokens_decoder()
        return named | {token_id for token_id, token in decoder.items() if token.special}

    @functools.cached_property
    def closing_ids(self):
        """Ids that the tokenizer's post-processor puts behind a text."""
        encoding = self.tokenizer.encode("a")
        special = encoding.special_tokens_mask
        count = next((n for n, bit in enumerate(reversed(special)) if not bit), 0)
        return encoding.ids[len(special) - count :]

    def without_closing(self, ids):
        """Of a text that goes on: without what the post-processor puts behind it."""
        return ids[: len(ids) - len(self.closing_ids)]

    def end_token(self):
        """The end-of-sequence token as text; its id joins the stop tokens."""
        token = self.special_tokens.get("eos_token")
        if token is None:
            token = next(filter(None, map(self.tokenizer.id_to_token, sorted(self.stop_ids))), None)
        if token is None:
            raise self.bad(
                "tokenizer_config.json",
                'no end-of-sequence token: neither "eos_token" here nor "eos_token_id" in '
                "config.json; without one the trained model would never stop",
            )
        token_id = self.tokenizer.token_to_id(token)
        if token_id is None:
            raise self.bad(
                "tokenizer_config.json", f'"eos_token" {token!r} is not in tokenizer.json'
            )
        self.stop_ids.add(token_id)
        return token

    @functools.cached_property
    def chat_templates(self):
        """{name: (text, file)}; a model with one template calls it "default"."""
        templates = {}
        if (text := self._read_text(TEMPLATE_FILE)) is not None:
            templates["default"] = (text, TEMPLATE_FILE)
        folder = os.path.join(self.directory, MORE_TEMPLATES)
        for name in sorted(given.names_below(folder)):
            if name.endswith(".jinja") and os.sep not in name:
                file = f"{MORE_TEMPLATES}/{name}"
                templates[name.removesuffix(".jinja")] = (self._read_text(file), file)
        if templates:
            return templates
        name = "tokenizer_config.json"
        stored = (self._read_json(name) or {}).get("chat_template")
        if isinstance(stored, str):
            return {"default": (stored, name)}
        if stored is None:
            return {}
        try:
            named = {entry["name"]: (entry["template"], name) for entry in stored}
            if all(isinstance(text, str) for pair in named.items() for text in (pair[0], *pair[1])):
                return named
        except (TypeError, KeyError):
            pass
        raise self.bad(name, '"chat_template" is neither text nor a list of names and templates')

    def _stop_ids(self, name, config):
        ids = config.get("eos_token_id")
        ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
        if any(type(token) is not int for token in ids):
            raise self.bad(name, '"eos_token_id" must be an integer or a list of integers')
        return set(ids)

    def bad(self, name, message):
        path = os.path.join(self.directory, name)
        return PrepareError("BAD_MODEL", message, field="model", file=path)

    def _stored_tokenizer(self):
        text = given.read(os.path.join(self.directory, TOKENIZER_FILE))
        return tokenizers.Tokenizer.from_buffer(text)

    def _load_tokenizer(self):
        if not self.has_tokenizer:
            raise self.bad(TOKENIZER_FILE, "no such file; text needs the model's tokenizer")
        try:
            tokenizer = self._stored_tokenizer()
        except Exception as error:  # The library raises plain Exception.
            raise self.bad(TOKENIZER_FILE, f"not a tokenizer: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._add_tokens(tokenizer)
        self._add_new_tokens(tokenizer)
        for token in self.new_tokens:
            ids = tokenizer.encode(token, add_special_tokens=False).ids
            if ids != [tokenizer.token_to_id(token)]:
                raise bad_token(f"{token!r} does not become one token: its ids are {ids}")
        return tokenizer

    def _add_new_tokens(self, tokenizer):
        """As transformers' add_tokens, but as they are spelled, before any normalisation: else a
        tokenizer that puts something in front of words would miss them inside a text."""
        for token in self.new_tokens:
            if tokenizer.token_to_id(token) is not None:
                raise bad_token(f"{token!r} is a token of the model already: leave it out")
        tokenizer.add_tokens(
            [tokenizers.AddedToken(token, normalized=False) for token in self.new_tokens]
        )

    def grown_files(self):
        """{name: text} of the tokenizer's files that are others with the new tokens in it."""
        if not self.new_tokens:
            return {}
        tokenizer = self._stored_tokenizer()  # With its padding and truncation.
        self._add_tokens(tokenizer)
        self._add_new_tokens(tokenizer)
        files = {TOKENIZER_FILE: tokenizer.to_str(pretty=True)}
        config = self._read_json("tokenizer_config.json") or {}
        if isinstance(config.get("added_tokens_decoder"), dict):
            flags = ("lstrip", "normalized", "rstrip", "single_word", "special")
            for token, token_id in zip(self.new_tokens, self.new_ids):
                entry = {"content": token, **dict.fromkeys(flags, False)}
                config["added_tokens_decoder"][str(token_id)] = entry
            text = json.dumps(config, indent=2, ensure_ascii=False)
            files["tokenizer_config.json"] = text + "\n"
        return files

    def _add_tokens(self, tokenizer):
        """Tokens that tokenizer_config.json adds to tokenizer.json, as transformers does. Text is
        split at them, and at special tokens, also where tokenizer.json has them as mere words."""
        config = self._read_json("tokenizer_config.json") or {}
        added = config.get("added_tokens_decoder")
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        for key, token in sorted(added.items(), key=_number) if isinstance(added, dict) else ():
            content = token.get("content") if isinstance(token, dict) else None
            if not isinstance(content, str) or content in known:
                continue
            is_word = tokenizer.token_to_id(content) is not None
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            flags = {flag: bool(token[flag]) for flag in flags if flag in token}
            tokenizer.add_tokens([tokenizers.AddedToken(content, **flags)])
            if not is_word and tokenizer.token_to_id(content) != _number((key,)):
                message = f"token {content!r} has the id {key} here, but not after tokenizer.json"
                raise self.bad("tokenizer_config.json", message)
        words = (t for t in self.special_tokens.values() if tokenizer.token_to_id(t) is not None)
        tokenizer.add_special_tokens([token for token in words if token not in known])

    def _read_json(self, name):
        text = self._read_text(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.bad(name, f"not readable as JSON: {error}") from error
        if not isinstance(value, dict):
            raise self.bad(name, "must hold a JSON object")
        return value

    def _read_text(self, name):
        try:
            with given.open_text(os.path.join(self.directory, name)) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self.bad(name, f"not readable: {error}") from error


def bad_token(message):
    return PrepareError("BAD_ADDED_TOKENS", message, field="added_tokens")


def _number(item):
    return int(item[0]) if str(item[0]).isdigit() else -1
