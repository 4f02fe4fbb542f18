"""Chat templates: Jinja in the environment that transformers' apply_chat_template gives them.

A template is a stranger's program, so it runs in jinja2's sandbox and sees plain JSON values alone.
It has tojson (no HTML escapes), raise_exception, strftime_now, loop controls, and the tag
{% generation %}, which marks what the assistant says. Rendering the same messages twice gives the
same text, but for strftime_now: `prints_date` tells of it.
"""

import datetime
import json
import re

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
from errors import PrepareError, bad_row

MARKERS = re.compile(r"\{%-?\s*generation\s*-?%\}")
# Names under which datasets hold a message's reasoning. Templates read the first, or (gpt-oss) the
# second.
REASONING = ("reasoning_content", "thinking", "reasoning")


class TemplateFailed(Exception):
    """The template does not render these messages; the text says why."""


class ChatTemplate:
    """`source`: where the text comes from, for people; `is_models`: a file of the model."""

    def __init__(self, text, source, special_tokens, is_models=True):
        self.text = text
        self.source = source
        self.is_models = is_models
        self.has_markers = bool(MARKERS.search(text))
        self.prints_date = False
        self._special_tokens = special_tokens
        environment = _environment(self._strftime_now)
        self._tracker = environment.extensions[_Generation.identifier]
        try:
            self._template = environment.from_string(text)
            self._globals = dict(self._template.globals)  # A chain, slow to be read for each row.
        except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as error:
            # The last two are Python's, of what Jinja makes: loops too deep, numbers too long.
            message = f"the chat template ({source}) is not Jinja: {error}"
            raise PrepareError("BAD_CHAT_TEMPLATE", message, field="chat_template") from error

    def render(self, messages, tools=None, variables=None, add_generation_prompt=False):
        """(text, spans of the text inside {% generation %}). TemplateFailed."""
        context = {**self._globals, **self._special_tokens, **(variables or {})}
        context.update(
            messages=[_with_reasoning(message) for message in messages],
            tools=tools,
            documents=None,
            add_generation_prompt=add_generation_prompt,
        )
        try:
            pieces, spans = self._tracker.start()
            shared = self._template.new_context(context, shared=True)
            for piece in self._template.root_render_func(shared):
                pieces.append(piece)
            return "".join(pieces), spans
        except (MemoryError, PrepareError):  # Of this process's limits.
            raise
        except Exception as error:  # Whatever a stranger's program may do wrong.
            raise TemplateFailed(str(error) or type(error).__name__) from error

    def refusal(self, row, error):
        """The PrepareError of a row for which render() failed."""
        return bad_row(row, f"the chat template ({self.source}) refuses this row: {error}")

    def _strftime_now(self, format):
        self.prints_date = True
        return datetime.datetime.now().strftime(format)


def _with_reasoning(message):
    for name in REASONING:
        if message.get(name) is not None:
            return {"thinking": message[name], **message, "reasoning_content": message[name]}
    return message


def _environment(strftime_now):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["dict"] = _Dict()
    environment.globals["namespace"] = _Namespace
    return environment


def _to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message):
    raise jinja2.TemplateError(message)


class _Dict:
    """dict() without the type behind it."""

    def __call__(self, *args, **named):
        return dict(*args, **named)

    def fromkeys(self, *args):
        return dict.fromkeys(*args)


class _Namespace(jinja2.utils.Namespace):
    """namespace() that takes no name with an underscore in front: those are Python's own."""

    def __init__(*args, **named):
        self, *rest = args  # So that a template may have a variable called self.
        values = dict(*rest, **named)
        for name in values:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        _check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def _check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace takes no name like {name!r}")


class _Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: prints its body and remembers where it stands."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        self._pieces, self._spans = [], []

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def start(self):
        """(pieces, spans): the caller appends to pieces what the template yields, as it comes."""
        self._pieces, self._spans = [], []
        return self._pieces, self._spans

    def _body(self, caller):
        text = caller()
        begin = sum(map(len, self._pieces))
        self._spans.append((begin, begin + len(text)))
        return text
