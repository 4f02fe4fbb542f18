"""Conversations to text, by the job's or the model's chat template, and which of it is trained:
what the assistant says and how it stops (answers.py), times the message's weight. Of a row that
says itself where its prompt ends (prompt/completion), only what stands behind the prompt.
"""

import collections
import collections.abc
import dataclasses
import os

from answers import Conversation
from chat_template import REASONING, ChatTemplate, TemplateFailed
from errors import PrepareError
from model import TEMPLATE_FILE

OWN_TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")


@dataclasses.dataclass
class Passage:
    """Text to be tokenised. Trained is all of it, but of what these leave out:

    bare    no token is added that the text does not spell
    spans   a function: spans(end) is [(begin, end, weight)] of characters as far as `end`
    prompt  the tokens that the text begins with as this text alone does
    pair    a second text, which the tokenizer joins with the first
    source  a text of its own, of which this one is made
    """

    text: str
    bare: bool
    spans: collections.abc.Callable | None = None
    prompt: str | None = None
    pair: str | None = None
    source: str | None = None

    @property
    def input(self):
        """As the tokenizer takes it."""
        return self.text if self.pair is None else (self.text, self.pair)


@dataclasses.dataclass
class Known:
    """What is told of a template that rows were rendered by."""

    source: str
    text: str
    is_models: bool
    prints_date: bool


class Chats:
    """The chat templates of a job: the given one, else the model's. `given` is a template's text,
    or the name of one of the model's. What is told at the end is what merge() was given."""

    def __init__(self, model, options):
        self._model, self._options = model, options
        self._known = {}  # name -> ChatTemplate
        self._found = {}  # source -> Known
        self._not_printed = collections.Counter()  # (its source, what) -> rows

    def take(self):
        """What was found in the rows since the last time, for merge() in another process."""
        known = [Known(t.source, t.text, t.is_models, t.prints_date) for t in self._known.values()]
        not_printed, self._not_printed = self._not_printed, collections.Counter()
        return known, not_printed

    def merge(self, found):
        """Adds what another Chats of the job found in other rows."""
        known, not_printed = found
        for template in known:
            dated = template.prints_date or self._found.get(template.source, template).prints_date
            self._found[template.source] = dataclasses.replace(template, prints_date=dated)
        self._not_printed.update(not_printed)

    def about(self):
        """Fields of snug.v1.DatasetSummary."""
        return {"chat_template": ", ".join(sorted(self._found))}

    def new_files(self):
        """{name: text} of a template that the model has not, and its readers will need."""
        texts = (t.text for t in self._found.values() if not t.is_models)
        return {TEMPLATE_FILE: text for text in texts}

    def warnings(self):
        lost = [
            f"{rows} rows have {what} that the chat template ({source}) does not print: nothing "
            "of it is learned"
            for (source, what), rows in sorted(self._not_printed.items())
        ]
        return lost + [
            f"the chat template ({template.source}) writes today's date into rows: rows that are "
            "prepared on another day differ"
            for template in self._found.values()
            if template.prints_date
        ]

    def passage(self, row):
        """The Passage of a Chat row. PrepareError names row and reason."""
        template = self.template_of(row)
        try:
            if self._options.mask_history:
                row = _last_answer(row)
            conversation = Conversation(template, row, self._model.added_tokens)
            for what in _not_printed(template, row, conversation.text):
                self._not_printed[template.source, what] += 1
            return self._passage(row, conversation)
        except TemplateFailed as error:
            raise template.refusal(row, error) from error

    def _passage(self, row, conversation):
        passage = Passage(conversation.text, bare=True)
        if row.prompt is not None:
            if not self._options.completion_only_loss:
                return passage
            passage.prompt = conversation.prompt()
        if self._options.assistant_only_loss:
            passage.spans = conversation.spans()
        return passage

    def template_of(self, row):
        """The ChatTemplate that a row is rendered by. PrepareError: there is none."""
        given = self._options.chat_template
        templates = self._model.chat_templates
        name = given or ("tool_use" if row.tools and "tool_use" in templates else "default")
        if name not in self._known:
            found = templates.get(name) or self._not_the_models(row, given, templates)
            self._model.end_token()  # Its id joins the stop tokens.
            special = self._model.special_tokens
            if row.own_template and not templates:  # Ours ends answers whatever names the token.
                special = {"eos_token": self._model.end_token(), **special}
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
            f"conversations need a chat template, and the model has none{names}: give "
            "chat_template, a file or the text of one; prompts of plain text need none",
            field="chat_template",
        )


def _last_answer(row):
    """Only the assistant's last message is trained, if its weight says so."""
    answers = (i for i, message in enumerate(row.messages) if message["role"] == "assistant")
    last = max(answers, default=None)
    weights = [weight if i == last else 0.0 for i, weight in enumerate(row.weights)]
    return dataclasses.replace(row, weights=weights)


def _not_printed(template, row, text):
    """What the row's trained messages hold, or its tools are, or it is told by the system, and the
    template does not print."""
    needed = [("tools", _name(tool)) for tool in row.tools or ()]
    needed += [
        (f"{message['role']} messages", message["content"])
        for message in row.messages
        if message["role"] in ("system", "developer")
    ]
    for message, weight in zip(row.messages, row.weights):
        if weight:
            needed += [("tool_calls", _name(call)) for call in message.get("tool_calls", ())]
            needed += [("reasoning_content", message.get(name)) for name in REASONING]
    return {
        what
        for what, words in needed
        if isinstance(words, str)
        and (words.strip() not in text or what.startswith("tool") and what not in template.text)
    }


def _name(tool):
    function = tool.get("function", tool)
    return function.get("name") if isinstance(function, dict) else None
