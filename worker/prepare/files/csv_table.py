"""CSV and TSV with a header line, UTF-8, quoted as RFC 4180 has it. A record's line is the one it
begins on. Cells are strings; lists and objects stand in them as JSON."""

import csv
import functools

from files.record import Record, bad, open_dataset, plain_name

MAX_CELL_BYTES = 64 << 20  # As a line of JSONL.


def count(path):
    return sum(1 for _ in read(path))


def read(path):
    csv.field_size_limit(MAX_CELL_BYTES)
    delimiter = "\t" if plain_name(path).endswith(".tsv") else ","
    with open_dataset(path) as file:
        reader = csv.reader(_decoded(file), delimiter=delimiter, strict=True)
        rows = _rows(path, reader)
        _, header = next(rows, (1, []))
        if len(set(header)) != len(header):
            raise bad(path, 1, "the header names a column twice: " + ", ".join(header))
        for line, cells in rows:
            yield Record(path, line, parse=functools.partial(_row, path, line, header, cells))


def _row(path, line, header, cells):
    if len(cells) != len(header):
        message = f"{len(cells)} cells, but the header has {len(header)} columns"
        raise bad(path, line, message)
    return dict(zip(header, cells))


def _decoded(file):
    # Line by line, so that the line of a byte that is wrong is known.
    for line, raw in enumerate(file):
        yield raw.decode("utf-8" if line else "utf-8-sig")


def _rows(path, reader):
    line = 1
    try:
        for cells in reader:
            if cells:  # A blank line has none.
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise bad(path, line, f"not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise bad(path, line, f"not UTF-8: {error.reason}") from error
