"""{"prompt", "completion"}: two strings, or two lists of messages with optional "tools" and
"chat_template_kwargs", as TRL has them. Trained is what stands behind the prompt: of messages, the
assistant's, times their weights. In tables the lists may stand as JSON."""

from errors import bad_row
from formats import fields, messages
from rows import Chat, Text

NAME = "prompt_completion"
SHAPE = '{"prompt", "completion"} as strings or as lists of messages'
KEYS = ("prompt", "completion")
CHAT_KEYS = KEYS + ("tools", "chat_template_kwargs")


def recognises(values):
    return all(key in values for key in KEYS)


def read(record):
    prompt, completion = _parts(record)
    if isinstance(prompt, str) and isinstance(completion, str):
        return Text(record, fields.unused(record, KEYS), prompt, completion)
    for key, value in zip(KEYS, (prompt, completion)):
        if isinstance(value, str):
            other = KEYS[1 - KEYS.index(key)]
            raise bad_row(record, f'"{key}" is a string, but "{other}" is a list of messages')
    before, _ = messages.checked(record, '"prompt"', prompt)
    after, weights = messages.checked(record, '"completion"', completion)
    return Chat(
        record,
        fields.unused(record, CHAT_KEYS),
        messages=before + after,
        weights=[0.0] * len(before) + weights,
        prompt=len(before),
        tools=fields.tools(record),
        variables=fields.template_variables(record),
    )


def _parts(record):
    written = [record.values.get(key) for key in KEYS]
    parsed = [fields.as_structure(value) for value in written]
    # Both, or neither: a string may well be an answer in JSON.
    if all(map(_are_messages, parsed)):
        return parsed
    return [v if isinstance(v, list) else fields.text(record, k) for k, v in zip(KEYS, written)]


def _are_messages(value):
    return isinstance(value, list) and bool(value) and all(
        isinstance(message, dict) and "role" in message for message in value
    )
