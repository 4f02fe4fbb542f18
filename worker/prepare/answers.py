"""Where a conversation's answers stand in the text that a chat template makes of it.

  - With a template that marks them ({% generation %}): what is marked.
  - Else by rendering prefixes. Message i begins where the messages before it end, with the
    generation prompt behind them, and ends where the messages up to it end, or where its end of
    turn ends when it is written otherwise as the last message. A row of which neither can be told
    is refused, because no one could say what is trained in it.
"""

import json
import os

from chat_template import TemplateFailed
from errors import bad_row

# Contents that no template treats in a way of its own, and that share no first or last character.
SENTINELS = ("QX", "ZW")


class NotTold(Exception):
    """The template writes `what` as `prefix`, but otherwise when more follows."""

    def __init__(self, what, prefix):
        super().__init__(what)
        self.what, self.prefix = what, prefix


class Conversation:
    """A Chat row and its template. `text`: the whole of it; `marked`: spans inside {% generation %}
    markers."""

    def __init__(self, template, row, added_tokens):
        self._template, self._row, self._added_tokens = template, row, added_tokens
        self.text, self.marked = self._render(row.messages)

    def prompt(self):
        """The text that comes before the completion, of a row that says where its prompt ends. Its
        last words, the generation prompt, may be others in `text` (thoughts that are dropped): the
        completion begins where they part. But what the prompt says must stand there as it does
        alone, or it would be trained."""
        messages = self._row.messages[: self._row.prompt]
        before, _ = self._render(messages, True)
        if not self.text.startswith(before):
            said = os.path.commonprefix((before, self._render(messages)[0]))
            if not self.text.startswith(said):
                raise bad_row(self._row, self._advice(NotTold("the prompt", before)))
        return before

    def spans(self):
        """spans(end): [(begin, end, weight)] of what is trained in the text, as far as `end`; of
        what lies behind, whether there is anything, but not where."""
        if not self._template.has_markers:
            return self._prefix_spans
        spans = self._marked_spans()
        return lambda end: spans

    def _render(self, messages, add_generation_prompt=False):
        """What is written otherwise in OpenAI's form than in most models' templates is tried in
        their way first: arguments of tool calls as objects, then as text; then an empty content
        beside the calls, where there is none."""
        row, first = self._row, None
        calls = any(message.get("tool_calls") for message in messages)
        for spelled in _SPELLINGS if calls else _SPELLINGS[:1]:
            written = [spelled(message) for message in messages]
            try:
                return self._template.render(
                    written, row.tools, row.variables, add_generation_prompt
                )
            except TemplateFailed as error:
                first = first or error
        raise first

    def _marked_spans(self):
        row, marked = self._row, self.marked
        both = list(zip(row.messages, row.weights))
        answers = [w for message, w in both if message["role"] == "assistant"]
        if len(marked) == len(answers):
            return [(begin, end, weight) for (begin, end), weight in zip(marked, answers) if weight]
        # All alike need no telling apart; a prompt's are masked in any case.
        answers = [w for message, w in both[row.prompt or 0 :] if message["role"] == "assistant"]
        if len(set(answers)) > 1:
            raise bad_row(
                row,
                f"weights differ, but the chat template ({self._template.source}) marks "
                f"{len(marked)} pieces of {len(answers)} assistant messages: which is which cannot "
                "be told",
            )
        return [(begin, end, answers[0]) for begin, end in marked if answers and answers[0]]

    def _prefix_spans(self, until):
        spans, trained = [], [i for i, weight in enumerate(self._row.weights) if weight]
        for index in trained:
            try:
                begin = self._begin(index)
                if begin >= until:  # Each costs a rendering of all before it: none for nothing.
                    return [*spans, (until, len(self.text), self._row.weights[index])]
                spans.append((begin, self._end(index, begin), self._row.weights[index]))
            except TemplateFailed as error:
                raise self._template.refusal(self._row, error) from error
            except NotTold as error:
                alone = index != trained[-1] and self._can_tell(trained[-1])
                raise bad_row(self._row, self._advice(error, alone)) from error
        return spans

    def _begin(self, index):
        try:
            before, _ = self._render(self._row.messages[:index], True)
        except TemplateFailed:  # Many templates ask for the first of no messages.
            if index:
                raise
            before = None
        if before is not None and self.text.startswith(before):
            return len(before)
        if index == self._row.prompt:  # Where that ends is told by its tokens (tokenise.py).
            return 0
        content = None if index else self._content(index)
        if content is None or not self.text.startswith(content[0]):
            raise NotTold(f"what stands before message {index}", before or "")
        return len(content[0])

    def _end(self, index, begin):
        if index == len(self._row.messages) - 1:
            return len(self.text)
        upto, _ = self._render(self._row.messages[: index + 1])
        end = len(upto)
        if not self.text.startswith(upto):
            end = self._end_in_context(index)
        if end is None or end < begin:
            raise NotTold(f"the messages up to message {index}", upto)
        return end

    def _can_tell(self, index):
        try:
            return self._end(index, self._begin(index)) is not None
        except (NotTold, TemplateFailed):
            return False

    def _end_in_context(self, index):
        """Where message `index` ends, for a template that writes a message otherwise when more
        follow (Qwen3 drops thoughts, Phi-3 ends the last one twice); None where it cannot be told:
        what stands behind the content, in context and as the last message, begins with the same
        end of turn."""
        content = self._content(index)
        if content is None or not self.text.endswith(content[1]):
            return None
        as_last = [self._render(self._with(index, other))[0] for other in SENTINELS]
        behind, behind_last = content[1], _common_suffix(as_last)
        turn_end = _common_beginning(behind, behind_last, self._added_tokens)
        if behind_last and not turn_end:
            return None
        return len(self.text) - len(behind) + turn_end

    def _content(self, index):
        """(what stands before the content of a message in context, what stands behind it). Two
        other contents in its place tell it and its surroundings apart; None where they do not."""
        following = self._row.messages[index + 1 :]
        texts = [self._render(self._with(index, other) + following)[0] for other in SENTINELS]
        before, behind = os.path.commonprefix(texts), _common_suffix(texts)
        printed = texts[0][len(before) : len(texts[0]) - len(behind)]
        return (before, behind) if printed == SENTINELS[0] else None

    def _with(self, index, content):
        messages = self._row.messages
        return [*messages[:index], {**messages[index], "content": content}]

    def _advice(self, error, last_answer_helps=False):
        at = len(os.path.commonprefix((error.prefix, self.text)))
        excerpt = 30  # Characters: enough to recognise the place.
        found = f"{error.prefix[at : at + excerpt]!r} becomes {self.text[at : at + excerpt]!r}"
        advice = "Give a chat_template with {% generation %} markers"
        if last_answer_helps:
            advice += (
                ", or set mask_history: true to train each conversation's last answer alone"
            )
        return (
            f"the chat template ({self._template.source}) writes {error.what} otherwise when more "
            f"follows ({found}), so what is trained cannot be told. {advice}"
        )


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


def _with_content(message):
    return {"content": "", **message} if message.get("tool_calls") else message


_SPELLINGS = (
    _with_argument_objects,
    lambda message: message,
    lambda message: _with_content(_with_argument_objects(message)),
    _with_content,
)


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
