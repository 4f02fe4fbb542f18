"""Images of a class each: files in folders that have the classes' names, or rows of a table with an
image's bytes, as the datasets library has them: {"image": {"bytes", "path"}, "label"}.

Rows have this format where the job's task is image_classification, and only there. What the model
reads of an image, images.py says.
"""

import difflib

from errors import bad_row
from files.record import kind_of_value
from rows import Picture

NAME = "images"
SHAPE = 'FOLDER/CLASS/NAME.jpg (.png, .webp), or {"image": {"bytes"}, "label"} of a table'
KEYS = ("image", "label")


def recognises(values):
    """Nothing: the task says so."""
    return False


def read(record):
    image = _cell(record, "image")
    if isinstance(image, str):
        return Picture(record, (), label=label_of(record), source=image)
    content = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(content, bytes):
        kind = kind_of_value(content)
        raise bad_row(record, f'"image" must have the image\'s bytes, this is {kind}')
    return Picture(record, (), label=label_of(record), source=content)


def label_of(record):
    """A file's is the name of its folder."""
    return _cell(record, "label")


def _cell(record, key):
    values = record.values
    if key not in values:
        near = difflib.get_close_matches(key, [str(name) for name in values], 1, cutoff=0.4)
        hint = f'; did you mean "{near[0]}"? (columns gives it our name)' if near else ""
        raise bad_row(record, f'no "{key}"{hint}; a row is {SHAPE}')
    return values.cell(key) if hasattr(values, "cell") else values[key]
