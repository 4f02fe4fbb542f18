"""The formats a row can have. Each is a file of this folder:

    NAME              what the job file's dataset_format calls it
    SHAPE             how it is written, for the message about a row that has none
    recognises(keys)  whether a record with these keys (and values) is of this format
    read(record)      the record as a form of rows.py, or an error that names the field

The first row decides, unless the job names a format; all rows of a file have one. Of a
classification the task decides: rows are classification.py's, tagged_tokens.py's or images.py's; so
it does of sources and targets, which are source_target.py's, and of masked.py's texts.
"""

from errors import PrepareError, bad_row
from formats import (
    alpaca,
    classification,
    images,
    masked,
    messages,
    preference,
    pretokenized,
    prompt_completion,
    sharegpt,
    source_target,
    tagged_tokens,
    text,
)

# In the order in which they are tried: tables often carry a column "text" or "prompt" beside the
# conversation it was made of.
FORMATS = {
    module.NAME: module
    for module in (pretokenized, messages, sharegpt, prompt_completion, alpaca, text)
}


# Those that a job can name.
NAMED = {**FORMATS, **{m.NAME: m for m in (classification, tagged_tokens, images)}}

# All that a record can be read by; the job's columns give these names to others.
FIELDS = {"messages", *prompt_completion.CHAT_KEYS, *alpaca.KEYS, *sharegpt.KEYS, *messages.KEYS}
FIELDS |= {"text", *classification.KEYS, *pretokenized.KEYS, *pretokenized.DATUM_KEYS}
FIELDS |= {*tagged_tokens.KEYS, *source_target.KEYS, *images.KEYS}


class RowReader:
    """Reads the rows of one source, which all have one format: `name`, or the first row's."""

    def __init__(self, name=""):
        self._named = NAMED[name] if name else None
        self._labels = None
        self._first = None  # (format, line)

    @property
    def format(self):
        module = self._named or (self._first and self._first[0])
        return module.NAME if module else ""

    def classify(self, labels):
        """Rows are what the labels are of (`labels.form`), which knows the classes' ids."""
        if self._named not in (None, labels.form, labels.other_form):
            message = f"dataset_format: {self.format} rows have no classes; leave it out"
            raise PrepareError("BAD_DATASET", message, field="dataset_format")
        self._named, self._labels = labels.form, labels

    def make_targets(self):
        """Rows are sources and targets."""
        if self._named not in (None, source_target, prompt_completion, pretokenized):
            message = f"dataset_format: {self.format} rows have no source and target; leave it out"
            raise PrepareError("BAD_DATASET", message, field="dataset_format")
        self._named = source_target

    def mask(self):
        """Rows are texts of which tokens are hidden."""
        if self._named not in (None, text, pretokenized):
            message = f"dataset_format: task: masked_lm reads no {self.format} rows; leave it out"
            raise PrepareError("BAD_DATASET", message, field="dataset_format")
        self._named = masked

    def settle(self, record):
        """The first row's format is that of all. PrepareError for a row that is of none."""
        if self._named is None:
            self._first = (_recognise(record), record.line)

    def read(self, record):
        """The record's row. PrepareError names what is wrong with it."""
        module = self._named or self._checked(record, _recognise(record))
        row = module.read(record)
        row.format = module.NAME
        if self._labels is not None:
            row.label = self._labels.of(row)
        return row

    def _checked(self, record, module):
        first, line = self._first
        if module is not first:
            raise bad_row(
                record,
                f"this row is {module.NAME}, but line {line} is {first.NAME}: "
                "all rows of a file must have one format",
            )
        return module


def _recognise(record):
    preference.refuse(record)
    for module in FORMATS.values():
        if module.recognises(record.values):
            return module
    preference.refuse(record, preference.PROMPTS)
    keys = ", ".join(sorted(map(str, record.values))) or "none"
    accepted = "; ".join(f"{module.NAME}: {module.SHAPE}" for module in FORMATS.values())
    raise PrepareError(
        "BAD_DATASET",
        f"unknown row format (keys: {keys}); accepted: {accepted}; names of your own go into the "
        'job\'s columns, as columns: {"prompt": "Question", "completion": "Reply"}',
        file=record.file,
        line=record.line,
    )
