"""{"prompt", "completion"}: two strings, or two lists of messages with optional "tools" and
"chat_template_kwargs", as TRL has them. Trained is what stands behind the prompt."""

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
    prompt, completion = (_part(record, key) for key in KEYS)
    if isinstance(prompt, str) and isinstance(completion, str):
        return Text(record, fields.unused(record, KEYS), prompt, completion)
    for key, value in zip(KEYS, (prompt, completion)):
        if isinstance(value, str):
            other = KEYS[1 - KEYS.index(key)]
            raise bad_row(record, f'"{key}" is a string, but "{other}" is a list of messages')
    before, _ = messages.checked(record, '"prompt"', prompt)
    after, _ = messages.checked(record, '"completion"', completion)
    return Chat(
        record,
        fields.unused(record, CHAT_KEYS),
        messages=before + after,
        weights=[0.0] * len(before) + [1.0] * len(after),
        prompt=len(before),
        tools=fields.tools(record),
        variables=fields.template_variables(record),
    )


def _part(record, key):
    value = record.values.get(key)
    return value if isinstance(value, list) else fields.text(record, key)
