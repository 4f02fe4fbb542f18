"""OpenAI's chat form: {"messages": [{"role", "content"[, "weight"][, "tool_calls"]}][, "tools"]
[, "parallel_tool_calls"][, "chat_template_kwargs"]}; the list may also be called "conversations".

The assistant's messages are trained, one with "weight": 0 is not. What else a message holds (such
as "name", "tool_call_id", "reasoning_content") is handed to the template as it is.
"""

import json

from errors import bad_row
from formats import fields
from rows import Chat

NAME = "messages"
SHAPE = '{"messages": [{"role", "content"}]}'
KEYS = ("tools", "parallel_tool_calls", "chat_template_kwargs")
# A role misspelled would be trained as somebody else's words, or not at all.
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
# What an assistant's message may say instead of "content".
WITHOUT_CONTENT = ("tool_calls", "reasoning_content", "reasoning", "thinking")


def recognises(values):
    if "messages" in values:
        return True
    turns = fields.as_structure(values.get("conversations"))
    turns = turns if isinstance(turns, list) else []
    return any(isinstance(turn, dict) and "role" in turn for turn in turns)


def read(record):
    others = "messages" not in record.values and "conversations" in record.values
    key = "conversations" if others else "messages"
    if record.values.get("functions") is not None:
        raise bad_row(record, '"functions" is the form that "tools" has replaced; write "tools"')
    messages, weights = checked(record, f'"{key}"', fields.structure(record, key))
    _check_parallel(record, messages)
    return Chat(
        record,
        fields.unused(record, (key, *KEYS)),
        messages=messages,
        weights=weights,
        tools=fields.tools(record),
        variables=fields.template_variables(record),
    )


def checked(record, what, value):
    """(messages as templates want them, their weights) of a list of messages."""
    if not fields.checked_list(record, what, value):
        raise bad_row(record, f"{what} is empty")
    messages, weights = [], []
    for index, message in enumerate(value):
        place = f"{what}[{index}]"
        message = _without_nulls(fields.checked_object(record, place, message))
        role = fields.checked_text(record, f'{place}."role"', message.get("role"))
        if role not in ROLES:
            known = ", ".join(ROLES)
            raise bad_row(record, f'{place}."role" is "{role}", must be one of {known}')
        if "function_call" in message:
            text = f'{place}."function_call" is the form that "tool_calls" has replaced'
            raise bad_row(record, f'{text}; write "tool_calls"')
        weights.append(_weight(record, place, message))
        message.pop("weight", None)
        messages.append(_with_content(record, place, message))
        if "tool_calls" in message:
            message["tool_calls"] = _tool_calls(record, place, message["tool_calls"])
    return messages, weights


def _without_nulls(message):
    # As transformers' apply_chat_template: templates print a null as "None".
    return {key: value for key, value in message.items() if value is not None}


def _weight(record, place, message):
    if message["role"] != "assistant":
        if "weight" in message:
            raise bad_row(record, f'{place}."weight": only an assistant\'s message has one')
        return 0.0
    return fields.weight(record, f'{place}."weight"', message.get("weight", 1))


def _with_content(record, place, message):
    if "content" not in message:
        if message["role"] == "assistant" and any(key in message for key in WITHOUT_CONTENT):
            return message
        raise bad_row(record, f'{place} has no "content"')
    content = message["content"]
    if isinstance(content, list):
        message["content"] = _joined(record, f'{place}."content"', content)
    else:
        fields.checked_text(record, f'{place}."content"', content)
    return message


def _joined(record, what, parts):
    """Parts of text as one string: most templates know no other."""
    texts = []
    for index, part in enumerate(parts):
        kind = fields.checked_object(record, f"{what}[{index}]", part).get("type")
        if kind != "text":
            message = f'{what}[{index}]."type" is {json.dumps(kind)}; only "text" can be trained on'
            raise bad_row(record, message)
        texts.append(fields.checked_text(record, f'{what}[{index}]."text"', part.get("text")))
    return "".join(texts)


def _tool_calls(record, place, calls):
    found = fields.checked_list(record, f'{place}."tool_calls"', calls)
    for index, call in enumerate(found):
        what = f'{place}."tool_calls"[{index}]'
        # Some write the function without the object around it, and templates read both.
        function = fields.checked_object(record, what, call).get("function", call)
        fields.checked_object(record, f'{what}."function"', function)
        fields.checked_text(record, f'{what}."function"."name"', function.get("name"))
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, (str, dict)):
            raise bad_row(record, f'{what}."function"."arguments" must be a string or an object')
    return found


def _check_parallel(record, messages):
    if fields.boolean(record, "parallel_tool_calls") in (None, True):
        return
    for index, message in enumerate(messages):
        calls = len(message.get("tool_calls", ()))
        if calls > 1:
            text = f'"parallel_tool_calls" is false, but "messages"[{index}] makes {calls} calls'
            raise bad_row(record, text)
