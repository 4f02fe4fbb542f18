"""Conversations to text, and which of it is trained.

Trained is what the assistant says and how it stops, times the message's weight:
  - with a template that marks it ({% generation %}): what is marked;
  - else by rendering prefixes. Message i begins where the messages before it end, with the
    generation prompt behind them, and ends where the messages up to it end, or where its end of
    turn ends when it is written otherwise as the last message. A row of which neither can be told
    is refused, because no one could say what is trained in it.
A row that says itself where its prompt ends (prompt/completion) follows TRL: see tokenise.py.
"""

import dataclasses
import json
import os

from chat_template import ChatTemplate, TemplateFailed
from errors import PrepareError, bad_row
from model import TEMPLATE_FILE

# Contents that no template treats in a way of its own, and that share no first or last character.
SENTINELS = ("QX", "ZW")
OWN_TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")


@dataclasses.dataclass
class Passage:
    """Text to be tokenised. Trained are `spans` [(begin, end, weight)] in characters; or, with a
    `prompt`, all tokens behind as many as the prompt alone has; without either, all.

    bare    no token is added that the text does not spell
    """

    text: str
    bare: bool
    spans: list | None = None
    prompt: str | None = None


class Chats:
    """The chat templates of a job: the given one, else the model's. `given` is a template's text,
    or the name of one of the model's."""

    def __init__(self, model, options):
        self._model, self._options = model, options
        self._known = {}  # name -> ChatTemplate

    def about(self):
        """Fields of snug.v1.DatasetSummary."""
        return {"chat_template": ", ".join(sorted(t.source for t in self._known.values()))}

    def new_files(self):
        """{name: text} of a template that the model has not, and its readers will need."""
        texts = (t.text for t in self._known.values() if not t.is_models)
        return {TEMPLATE_FILE: text for text in texts}

    def warnings(self):
        return [
            f"the chat template ({template.source}) writes today's date into rows: rows that are "
            "prepared on another day differ"
            for template in self._known.values()
            if template.prints_date
        ]

    def passage(self, row):
        """The Passage of a Chat row. PrepareError names row and reason."""
        template = self._template_of(row)
        try:
            if self._options.mask_history:
                row = _last_answer(row)
            return _passage(template, row, self._options, self._model)
        except TemplateFailed as error:
            message = f"the chat template ({template.source}) refuses this row: {error}"
            raise bad_row(row, message) from error

    def _template_of(self, row):
        given = self._options.chat_template
        templates = self._model.chat_templates
        name = given or ("tool_use" if row.tools and "tool_use" in templates else "default")
        if name not in self._known:
            found = templates.get(name) or self._not_the_models(row, given, templates)
            self._model.end_token()  # Its id joins the stop tokens.
            special = self._model.special_tokens
            self._known[name] = ChatTemplate(*found, special, is_models=name in templates)
        return self._known[name]

    def _not_the_models(self, row, given, templates):
        if given and "{" in given:
            return given, "of the job"
        names = f" (it has {', '.join(templates)})" if templates else ""
        if given:
            message = f'no file and no template of the model is called "{given}"{names}'
            raise PrepareError("BAD_CHAT_TEMPLATE", message, field="chat_template")
        if row.own_template and not templates:
            with open(os.path.join(OWN_TEMPLATES, row.own_template), encoding="utf-8") as file:
                return file.read(), f"{row.own_template} of Snug"
        raise PrepareError(
            "NO_CHAT_TEMPLATE",
            f"the dataset holds conversations, but the model has no chat template{names}: give "
            "chat_template, a file or the text of one",
            field="chat_template",
        )


def _last_answer(row):
    """Only the assistant's last message is trained."""
    last = max((i for i, weight in enumerate(row.weights) if weight), default=None)
    weights = [weight if i == last else 0.0 for i, weight in enumerate(row.weights)]
    return dataclasses.replace(row, weights=weights)


def _passage(template, row, options, model):
    render = _renderer(template, row)
    if row.prompt is not None:
        return _completion(template, row, render, options)
    text, marked = render(row.messages)
    if not options.assistant_only_loss:
        return Passage(text, bare=True)
    if template.has_markers:
        spans = _marked_spans(template, row, marked)
    else:
        spans = _prefix_spans(template, row, text, render, model.added_tokens)
    return Passage(text, bare=True, spans=spans)


def _renderer(template, row):
    """render(messages, add_generation_prompt=False) -> (text, marked spans).

    Arguments of tool calls are objects in the templates of most models and text in OpenAI's form:
    text that spells an object is handed over as one, but to a template that cannot print it.
    """
    plain = {"tools": row.tools, "variables": row.variables}

    def render(messages, **more):
        objects = [_with_argument_objects(message) for message in messages]
        try:
            return template.render(objects, **plain, **more)
        except TemplateFailed:
            if objects == messages:
                raise
            return template.render(messages, **plain, **more)

    return render


def _with_argument_objects(message):
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call):
    if "function" in call:
        return {**call, "function": _with_object(call["function"])}
    try:
        arguments = json.loads(call.get("arguments") or "null")
    except (TypeError, ValueError, RecursionError):
        return call
    return {**call, "arguments": arguments} if isinstance(arguments, dict) else call


def _completion(template, row, render, options):
    text, _ = render(row.messages)
    if not options.completion_only_loss:
        return Passage(text, bare=True)
    prompt, _ = render(row.messages[: row.prompt], add_generation_prompt=True)
    if not text.startswith(prompt):
        raise bad_row(row, _no_prefix(template, "the prompt", prompt, text))
    return Passage(text, bare=True, prompt=prompt)


def _marked_spans(template, row, marked):
    answers = [w for message, w in zip(row.messages, row.weights) if message["role"] == "assistant"]
    if len(marked) == len(answers):
        return [(begin, end, weight) for (begin, end), weight in zip(marked, answers) if weight]
    if len(set(answers)) > 1:  # All alike need no telling apart.
        raise bad_row(
            row,
            f"weights differ, but the chat template ({template.source}) marks {len(marked)} "
            f"pieces of {len(answers)} assistant messages: which is which cannot be told",
        )
    return [(begin, end, answers[0]) for begin, end in marked if answers and answers[0]]


def _prefix_spans(template, row, text, render, added_tokens):
    spans = []
    for index, weight in enumerate(row.weights):
        if not weight:
            continue
        before, _ = render(row.messages[:index], add_generation_prompt=True)
        if not text.startswith(before):
            what = f"what stands before message {index}"
            raise bad_row(row, _no_prefix(template, what, before, text))
        upto, _ = render(row.messages[: index + 1])
        end = len(upto)
        if not text.startswith(upto):
            end = _end_in_context(row.messages, index, text, render, added_tokens)
        if end is None or end < len(before):
            what = f"the messages up to message {index}"
            raise bad_row(row, _no_prefix(template, what, upto, text))
        spans.append((len(before), end, weight))
    return spans


def _end_in_context(messages, index, text, render, added_tokens):
    """Where message `index` ends in `text`, for a template that writes a message otherwise when
    more follow (Qwen3 drops thoughts, Phi-3 ends the last one twice); None where it cannot be told.

    Two other contents in its place tell content and surroundings apart: what stands behind the
    content, in context and as the last message, begins with the same end of turn.
    """
    in_context, as_last = [], []
    for content in SENTINELS:
        changed = [*messages[:index], {**messages[index], "content": content}]
        as_last.append(render(changed)[0])
        in_context.append(render(changed + messages[index + 1 :])[0])
    behind, behind_last = _common_suffix(in_context), _common_suffix(as_last)
    begin = len(os.path.commonprefix(in_context))
    printed = in_context[0][begin : len(in_context[0]) - len(behind)]
    turn_end = _common_beginning(behind, behind_last, added_tokens)
    once = printed == SENTINELS[0]
    if not once or not text.endswith(behind) or (behind_last and not turn_end):
        return None
    return len(text) - len(behind) + turn_end


def _common_beginning(one, other, added_tokens):
    """Characters that both begin with. "<|end|>" and "<|endoftext|>" begin alike, but not as the
    tokens that they are: none of either is cut in two."""
    end = len(os.path.commonprefix((one, other)))
    for text in (one, other):
        for token in added_tokens:
            begin = text.find(token, max(end - len(token) + 1, 0), end + len(token) - 1)
            end = begin if 0 <= begin < end else end
    return end


def _common_suffix(texts):
    return os.path.commonprefix([text[::-1] for text in texts])[::-1]


def _no_prefix(template, what, prefix, text):
    at = len(os.path.commonprefix((prefix, text)))
    excerpt = 30  # Characters: enough to recognise the place.
    return (
        f"the chat template ({template.source}) writes {what} otherwise when more follows "
        f"({prefix[at : at + excerpt]!r} becomes {text[at : at + excerpt]!r}), so what is trained "
        "cannot be told. Give a chat_template with {% generation %} markers, or set mask_history: "
        "true to train each conversation's last answer alone"
    )
