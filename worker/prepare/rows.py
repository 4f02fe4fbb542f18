"""The forms that a dataset's rows take, whatever format they were written in. What a form's tokens
are, and which of them are trained, is said in tokenise.py."""

import dataclasses

from files.record import Record


@dataclasses.dataclass
class Row:
    """`record`: where it stands; `unused`: keys of the record that nothing reads; `format`: its
    name, as formats.read_rows found it."""

    record: Record
    unused: tuple
    format: str = dataclasses.field(default="", init=False)

    @property
    def file(self):
        return self.record.file

    @property
    def line(self):
        return self.record.line


@dataclasses.dataclass
class Text(Row):
    """A completion to be learned behind a prompt, which may be empty."""

    prompt: str
    completion: str


@dataclasses.dataclass
class Chat(Row):
    """A conversation, to be rendered by a chat template.

    weights      one per message: of each of its tokens; 0 for all but the assistant's
    prompt       messages of the prompt, when the row says where it ends; what follows is trained
    variables    more that the template may read ("chat_template_kwargs")
    own_template the name of a template of ours, for a model that has none
    """

    messages: list
    weights: list
    prompt: int | None = None
    tools: list | None = None
    variables: dict = dataclasses.field(default_factory=dict)
    own_template: str | None = None


@dataclasses.dataclass
class Tokens(Row):
    """Token ids, and for each the weight of predicting it."""

    ids: list
    weights: list


@dataclasses.dataclass
class Target(Row):
    """A target and the source that it is made of: `texts` or `ids`, the source's first. Of a
    target's ids those that are -100 are not trained."""

    texts: tuple | None = None
    ids: tuple | None = None


@dataclasses.dataclass
class Masked(Row):
    """A text, or its ids, of which tokens are hidden and found again."""

    text: str = ""
    ids: list | None = None


@dataclasses.dataclass
class Labelled(Row):
    """A document and its label: `texts`, one or two, or `ids`. `label`: as the row has it, until
    labels.py has made an id or a list of numbers of it."""

    label: int | float | str | list
    texts: list | None = None
    ids: list | None = None


@dataclasses.dataclass
class Picture(Row):
    """An image, `source`: its file, or the bytes of one, and `label`: its class's name or id until
    labels.py has told its id."""

    label: int | str
    source: str | bytes


@dataclasses.dataclass
class Tagged(Row):
    """`words`, or `ids`, and `label`: the class of each, by id or name until labels.py has told its
    id, or -100."""

    label: list
    words: list | None = None
    ids: list | None = None
