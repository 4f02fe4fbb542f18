"""Dataset files: which kind one is, and its records one by one. Any of them but parquet and arrow,
which compress by themselves, may be compressed by gzip or Zstandard.

A kind is a file of this folder with read(path), which yields Records, and count(path). The suffix
of the name decides; a file without a known one is known by its first bytes. What a record means is
said in formats/.
"""

import os

from errors import PrepareError
from files import arrow, csv_table, image, json_array, jsonl, parquet, plain_text
from files.record import open_dataset, plain_name

# A .json file may be an array or one object a line: its first character tells.
KINDS = {
    ".jsonl": jsonl,
    ".ndjson": jsonl,
    ".json": None,
    ".csv": csv_table,
    ".tsv": csv_table,
    ".parquet": parquet,
    ".arrow": arrow,
    ".txt": plain_text,
    ".jpg": image,
    ".jpeg": image,
    ".png": image,
    ".webp": image,
}
MAGIC = {b"PAR1": parquet, b"ARROW1": arrow}
SNIFF_BYTES = 4096  # White space that may stand before the first character.


def kind_of(path):
    """The module that reads the file. PrepareError(BAD_DATASET) when nothing does."""
    suffix = os.path.splitext(plain_name(path))[1]
    return KINDS.get(suffix) or _sniff(path)


def _sniff(path):
    with open_dataset(path) as file:
        head = file.read(SNIFF_BYTES)
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if first == b"[":
        return json_array
    if first == b"{" or plain_name(path).endswith(".json") or not first:
        return jsonl
    raise PrepareError(
        "BAD_DATASET",
        "not a known kind of file: neither its name (" + ", ".join(KINDS) + ") nor its beginning "
        "tells what it is",
        file=path,
    )
