"""The formats a row can have. Each is a file of this folder:

    NAME              what the job file's dataset_format calls it
    SHAPE             how it is written, for the message about a row that has none
    recognises(keys)  whether a record with these keys (and values) is of this format
    read(record)      the record as a form of rows.py, or an error that names the field

The first row decides, unless the job names a format; all rows of a file have one.
"""

from errors import PrepareError, bad_row
from formats import alpaca, messages, preference, pretokenized, prompt_completion, sharegpt, text

# In the order in which they are tried: tables often carry a column "text" or "prompt" beside the
# conversation it was made of.
FORMATS = {
    module.NAME: module
    for module in (pretokenized, messages, sharegpt, prompt_completion, alpaca, text)
}


def read_rows(records, name=None):
    """Yields the row of each record. `name`: the format, else it is recognised."""
    first = None
    for record in records:
        module = FORMATS[name] if name else _recognise(record)
        first = first or (module, record.line)
        if module is not first[0]:
            raise bad_row(
                record,
                f"this row is {module.NAME}, but line {first[1]} is {first[0].NAME}: "
                "all rows of a file must have one format",
            )
        row = module.read(record)
        row.format = module.NAME
        yield row


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
        f"unknown row format (keys: {keys}); accepted: {accepted}",
        file=record.file,
        line=record.line,
    )
