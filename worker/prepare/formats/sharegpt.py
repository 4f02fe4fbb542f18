"""ShareGPT's form: {"conversations": [{"from", "value"[, "weight"]}][, "system"][, "tools"]}.

`from` is human, gpt, system, function_call or observation, or a role of the messages format. The
value of a function_call is JSON, {"name", "arguments"} or a list of those: an assistant's message
with tool calls, and trained as one.
"""

import json

from errors import bad_row
from formats import fields, messages
from rows import Chat

NAME = "sharegpt"
SHAPE = '{"conversations": [{"from", "value"}]}'
KEYS = ("conversations", "system", "tools")
ROLES = {
    "human": "user",
    "gpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    **{role: role for role in messages.ROLES},
}


def recognises(values):
    return "conversations" in values


def read(record):
    turns = fields.structure(record, "conversations")
    fields.checked_list(record, '"conversations"', turns)
    written = [_message(record, f'"conversations"[{i}]', turn) for i, turn in enumerate(turns)]
    system = fields.text(record, "system", default="")
    # One that stands among the turns counts (LLaMA-Factory's rule): two would both be printed.
    if system and not (written and written[0]["role"] == "system"):
        written.insert(0, {"role": "system", "content": system})
    checked, weights = messages.checked(record, '"conversations"', written)
    unused = fields.unused(record, KEYS)
    return Chat(record, unused, checked, weights, tools=fields.tools(record))


def _message(record, what, turn):
    fields.checked_object(record, what, turn)
    name = fields.checked_text(record, f'{what}."from"', turn.get("from"))
    if name not in ROLES:
        known = ", ".join(ROLES)
        raise bad_row(record, f'{what}."from" is "{name}", must be one of {known}')
    value = fields.checked_text(record, f'{what}."value"', turn.get("value"))
    message = {"role": ROLES[name], "content": value}
    if "weight" in turn:
        message["weight"] = turn["weight"]
    if name == "function_call":
        message["content"] = ""  # Templates of models that call tools expect it beside the calls.
        message["tool_calls"] = _calls(record, what, value)
    return message


def _calls(record, what, value):
    try:
        calls = json.loads(value)
    except (ValueError, RecursionError) as error:
        message = f'{what}."value" of a function_call is not JSON: {error}'
        raise bad_row(record, message) from error
    calls = calls if isinstance(calls, list) else [calls]
    return [{"type": "function", "function": call} for call in calls]
