"""snug-prompts: prompts and a model's tokenizer in, what a worker needs to answer them out.

    python snug_prompts.py --model DIR --prompts FILE --output FILE --max-tokens N
        [--added-token TEXT ...] [--chat-template TEXT] [--texts-are-said] [--field NAME]
        [--memory-bytes N] [--cpu-seconds N]

FILE of --prompts: a JSON array of strings and of conversations, {"messages": [{"role",
"content"}]}, which the chat template (the given one, else the model's) turns into text with the
opening of the assistant's next message. With --texts-are-said a string is what a user says, where
there is a template, given or the model's default one; a source is none. The output is JSON:
    {"prompts": [{"text", "ids"}],   ids: with the special tokens that the tokenizer adds in front
                                     of text (and, of a source, which is whole, behind it), and
                                     none that a conversation's text does not spell
     "stop_ids": [...],              of config.json and generation_config.json
     "token_bytes": "...",           what each id stands for in text, for ids 0, 1, ...: two
                                     characters of length, high one first, then as many bytes, each
                                     byte the character of its number
     "drops_space": false}           whether a text of its own, as a target is, begins without the
                                     space that its first token stands for
so that a worker, which has no tokenizer, can write text: it puts the bytes of the tokens one behind
another. Special tokens stand for nothing. A prompt of more than N tokens is an error. Exit codes
and errors as snug_prepare.py; the file is written aside and renamed.
"""

import argparse
import json
import os
import sys
import traceback
import types

import limits
from chat import Chats
from chat_template import TemplateFailed
from errors import PrepareError
from files import given
from model import SEQ2SEQ, TOKENIZER_FILE, Model

FIELD = "training.sample_prompts"
ROOM = {FIELD: ("max_seq_length", "sample_max_new_tokens")}


def byte_of_character():
    """The characters by which byte-level tokenizers spell bytes (GPT-2's table), to the bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in set(plain)]
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table


def decoder_kinds(decoder):
    """The types of a tokenizer.json's decoder and of the parts of a sequence."""
    if not decoder:
        return set()
    return {decoder["type"]}.union(*(decoder_kinds(d) for d in decoder.get("decoders", [])))


def token_bytes(tokenizer, vocab_size):
    """What each id below vocab_size stands for."""
    kinds = decoder_kinds(json.loads(tokenizer.to_str()).get("decoder"))
    added = {i: token for i, token in tokenizer.get_added_tokens_decoder().items()}
    table = byte_of_character()

    def bytes_of(token_id, token):
        if token is None or (token_id in added and added[token_id].special):
            return b""
        if token_id in added:
            return token.encode()
        if "ByteLevel" in kinds:
            return bytes(table[c] for c in token if c in table)
        if "ByteFallback" in kinds and len(token) == 6 and token.startswith("<0x"):
            return bytes([int(token[3:5], 16)])
        if kinds & {"Metaspace", "Replace"}:
            return token.replace("\u2581", " ").encode()
        return (" " + token).encode()  # as tokenizers joins the words of one without a decoder

    return [bytes_of(i, tokenizer.id_to_token(i)) for i in range(vocab_size)]


def drops_space(tokenizer, pieces):
    """Whether it writes a text without the space that the first token stands for."""
    spaced = next((i for i, piece in enumerate(pieces) if piece[:1] == b" " and piece[1:]), None)
    return spaced is not None and not tokenizer.decode([spaced]).startswith(" ")


class Encoder:
    """Ids of prompts, which their answers go on from, or are made of."""

    def __init__(self, model, options):
        self._model, self._options = model, options
        self._chats = Chats(model, types.SimpleNamespace(chat_template=options.chat_template))

    def encode(self, prompt):
        """{"text", "ids"} of a text or a conversation."""
        if isinstance(prompt, str) and self._is_said():
            return {**self._encode([{"role": "user", "content": prompt}]), "text": prompt}
        return self._encode(prompt if isinstance(prompt, str) else prompt["messages"])

    def _is_said(self):
        has_template = self._options.chat_template or "default" in self._model.chat_templates
        return self._options.texts_are_said and has_template and self._model.task != SEQ2SEQ

    def _encode(self, prompt):
        if isinstance(prompt, str):
            encoding = self._model.tokenizer.encode(prompt)
            is_source = self._model.task == SEQ2SEQ
            text = prompt
            ids = encoding.ids if is_source else self._model.without_closing(encoding.ids)
            empty = all(encoding.special_tokens_mask)
        else:
            text = self._opening(prompt)
            ids = self._model.tokenizer.encode(text, add_special_tokens=False).ids
            empty = not ids
        if empty:
            raise self._bad(f"the prompt {text!r} has no tokens")
        most = self._options.max_tokens
        if len(ids) > most:
            raise self._bad(f"the prompt {text[:40]!r} has {len(ids)} tokens; {self._room(most)}")
        return {"text": text, "ids": ids}

    def _room(self, most):
        room, setting = ROOM.get(self._options.field, ("the model", "max_new_tokens"))
        if self._model.task == SEQ2SEQ:
            return f"as a source it must fit {room}, so at most {most}: shorten it"
        return (
            f"with its answer it must fit {room}, so at most {most}: shorten it, or lower {setting}"
        )

    def _opening(self, messages):
        row = types.SimpleNamespace(messages=messages, tools=None, own_template=None)
        try:
            template = self._chats.template_of(row)
            return template.render(messages, add_generation_prompt=True)[0]
        except TemplateFailed as error:
            raise self._bad(f"the chat template refuses the conversation: {error}") from error

    def _bad(self, message):
        return PrepareError("BAD_SAMPLE_PROMPT", message, field=self._options.field)


def prompts_of(options):
    """What is written."""
    model = Model(options.model, options.added_tokens)
    if not model.has_tokenizer:
        message = f"{options.model}/{TOKENIZER_FILE} is missing: answers need the model's tokenizer"
        raise PrepareError("BAD_SAMPLE_PROMPT", message, field=options.field)
    with open(options.prompts, encoding="utf-8") as file:
        asked = json.load(file)
    encoder = Encoder(model, options)
    prompts = [encoder.encode(prompt) for prompt in asked]
    pieces = token_bytes(model.tokenizer, model.vocab_size)
    spelled = b"".join(len(piece).to_bytes(2, "big") + piece for piece in pieces)
    return {
        "prompts": prompts,
        "stop_ids": sorted(model.stop_ids),
        "token_bytes": spelled.decode("latin-1"),
        "drops_space": model.task == SEQ2SEQ and drops_space(model.tokenizer, pieces),
    }


def write(content, path):
    aside = path + ".tmp"
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="snug-prompts")
    parser.add_argument("--model", required=True)
    given.add_options(parser)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--added-token", action="append", default=[], dest="added_tokens")
    parser.add_argument("--chat-template", default="")
    parser.add_argument("--texts-are-said", action="store_true")
    parser.add_argument("--field", default=FIELD)
    parser.add_argument("--memory-bytes", type=int, default=4 << 30)
    parser.add_argument("--cpu-seconds", type=int, default=3600)
    return parser.parse_args(argv)


def main(argv):
    options = parse_arguments(argv)
    try:
        limits.apply(options.memory_bytes, options.cpu_seconds)
        given.serve(options)
        write(prompts_of(options), options.output)
        return 0
    except PrepareError as error:
        failure, code = error, 2
    except Exception as error:  # a full disk, a broken tokenizer: both end in that last line
        traceback.print_exc()
        failure, code = PrepareError("PREPARE_FAILED", str(error) or repr(error), field=None), 1
    print(failure.to_json(), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
