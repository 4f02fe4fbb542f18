"""Alpaca's form: {"instruction", "output"[, "input"][, "system"][, "history": [[user, answer]]]}.

A conversation: system, the turns of history, the instruction with its input on the next line (what
is empty has no line), the output. The answers of history are trained as the output is
(LLaMA-Factory's rules). A model without a chat template gets Alpaca's own, templates/alpaca.jinja.
"""

from errors import bad_row
from formats import fields
from rows import Chat

NAME = "alpaca"
SHAPE = '{"instruction", "output"[, "input", "system", "history"]}'
KEYS = ("instruction", "input", "output", "system", "history")


def recognises(values):
    return "instruction" in values and "output" in values


def read(record):
    turns = _history(record)
    asked = (fields.text(record, "instruction"), fields.text(record, "input", default=""))
    turns.append(("\n".join(filter(None, asked)), fields.text(record, "output")))
    messages = []
    if system := fields.text(record, "system", default=""):
        messages.append({"role": "system", "content": system})
    for user, answer in turns:
        messages.append({"role": "user", "content": user})
        messages.append({"role": "assistant", "content": answer})
    weights = [float(message["role"] == "assistant") for message in messages]
    return Chat(
        record, fields.unused(record, KEYS), messages, weights, own_template="alpaca.jinja"
    )


def _history(record):
    history = fields.structure(record, "history")
    turns = []
    for index, turn in enumerate(fields.checked_list(record, '"history"', history or [])):
        what = f'"history"[{index}]'
        if len(fields.checked_list(record, what, turn)) != 2:
            raise bad_row(record, f"{what} must be a user's words and the answer to them")
        turns.append(tuple(fields.checked_text(record, what, text) for text in turn))
    return turns
