"""Where a job's rows come from: files in an order, each source with its columns, its share of the
epoch and its cap.

A source's first `max_samples` rows are taken, each `weight` times an epoch: at 2.5, every row twice
and every second one once more; at 0.5, every second one. Which rows these are follows from the
weight alone.
"""

import collections.abc
import dataclasses
import difflib
import fractions
import json
import os

import files
import formats
import images
from errors import PrepareError
from files import folder, given
from files.record import Record


TABLES = (".parquet", ".arrow")  # That may have images in them.


@dataclasses.dataclass
class Source:
    """`paths`: files and folders as the daemon found them; `name`: how the job names them; `field`:
    the field of the job that does."""

    paths: list
    name: str = ""
    field: str = "dataset"
    split: str = ""
    config: str = ""
    columns: dict = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    max_samples: int = 0  # 0: all.
    format: str = ""  # Empty: the first row tells.

    def __post_init__(self):
        self.name = self.name or self.paths[0]
        self.files = [file for path in self.paths for file in self._found(path)]
        self.times = fractions.Fraction(str(self.weight))
        self.reader = formats.RowReader(self.format)
        self._check_columns()

    def _found(self, path):
        try:
            return self._files_of(path)
        except OSError as error:
            message = f"cannot open: {error.strerror}"
            raise PrepareError("BAD_DATASET", message, field=self.field, file=path) from error

    def _files_of(self, path):
        if given.is_folder(path):
            if self.format == formats.images.NAME and not images.holds_tables(path, TABLES):
                return images.files_of(path, folder.SPLIT_WORDS, self.split)
            return folder.data_files(path, self.split, self.config)
        if self.format == formats.images.NAME and not path.lower().endswith(TABLES):
            message = "is no folder with one of images for each class, no parquet and no arrow file"
            raise PrepareError("BAD_DATASET", message, field=self.field, file=path)
        if self.split:
            message = f'a file has no splits; the job names "{self.split}"'
            raise PrepareError("BAD_DATASET", message, field="dataset_split", file=path)
        return [path]

    def class_names(self):
        """Those that the first file's table says of its labels, by id; none: it says none."""
        kind = files.kind_of(self.files[0])
        if not hasattr(kind, "schema_of"):
            return []
        schema = kind.schema_of(self.files[0])
        return files.arrow.class_names(schema, self.columns.get("label", "label"))

    def count(self):
        """Rows that are taken, of one epoch each counted once."""
        rows = sum(files.kind_of(path).count(path) for path in self.files)
        rows = min(rows, self.max_samples or rows)
        return rows if self.times >= 1 else int(rows * self.times)

    def taken(self):
        """(record, how often it is taken) of each row that is."""
        for number, record in enumerate(self.records()):
            if number == self.max_samples != 0:
                return
            times = 1
            if self.times != 1:
                times = int((number + 1) * self.times) - int(number * self.times)
            if times:
                yield record, times

    def records(self):
        for path in self.files:
            for record in files.kind_of(path).read(path):
                yield self._mapped(record) if self.columns else record

    def settle(self):
        """Finds out the format by the first row that can be read, and checks the columns there."""
        for record in self.records():
            try:
                record.values
            except PrepareError:  # Told with all other bad rows.
                if self.columns:
                    self._check_first(record)
                continue
            self.reader.settle(record)
            return

    def _mapped(self, record):
        return Record(record.file, record.line, parse=lambda: self._rename(record))

    def _rename(self, record):
        missing = [theirs for theirs in self.columns.values() if theirs not in record.values]
        if missing:
            raise _MissingColumn(record, missing[0])
        return _Renamed(record.values, self.columns)

    def _check_first(self, record):
        """The first row of all lacks a column: the job is wrong, not the row."""
        try:
            record.values
        except _MissingColumn as error:
            hint = near(error.column, error.keys)
            there = ", ".join(sorted(error.keys))
            message = f'no column "{error.column}"{hint or ";"} the first row has: {there}'
            field = "columns" if self.field == "dataset" else f"{self.field}.columns"
            raise PrepareError(
                "BAD_DATASET", message, field, file=record.file, line=record.line
            ) from error
        except PrepareError:
            return

    def _check_columns(self):
        for ours in self.columns:
            if ours not in formats.FIELDS:
                message = f'columns: "{ours}" is no field of a format{near(ours, formats.FIELDS)}'
                raise PrepareError("BAD_DATASET", message, "columns", file=self.name)


class _MissingColumn(PrepareError):
    def __init__(self, record, column):
        message = f'no column "{column}"'
        super().__init__("BAD_DATASET", message, file=record.file, line=record.line)
        self.column, self.keys = column, [str(key) for key in record.values]


class _Renamed(collections.abc.Mapping):
    """A row's values under our names; theirs are gone, the others stay."""

    def __init__(self, values, columns):
        self._values, self._columns = values, columns
        gone = set(columns.values())
        self._rest = [key for key in values if key not in gone and key not in columns]

    def __getitem__(self, key):
        return self._values[self._theirs(key)]

    def cell(self, key):
        """As it is in the table, or in a record of no table."""
        read = getattr(self._values, "cell", self._values.__getitem__)
        return read(self._theirs(key))

    def __contains__(self, key):
        return key in self._columns or key in self._rest

    def _theirs(self, key):
        if key in self._columns:
            return self._columns[key]
        if key not in self._rest:
            raise KeyError(key)
        return key

    def __iter__(self):
        yield from self._columns
        yield from self._rest

    def __len__(self):
        return len(self._columns) + len(self._rest)


def near(name, names):
    """The nearest of the names as a question, or nothing."""
    found = difflib.get_close_matches(name.lower(), [str(n) for n in names], 1, cutoff=0.5)
    return f'; did you mean "{found[0]}"?' if found else ""


def sources_of(options, task=""):
    """The sources that the command line names: --dataset alone, or --sources, a file of JSON: a
    list of objects of Source's fields. `task`: that of the model, where the job names none."""
    entries = [{"paths": [options.dataset], "format": options.format or ""}]
    if options.sources:
        with open(options.sources, encoding="utf-8") as file:
            entries = json.load(file)
    if (options.task or task) == "image_classification":
        entries = [_of_images(entry) for entry in entries]
    return [Source(**entry) for entry in entries]


def _of_images(entry):
    named = entry.get("format") or formats.images.NAME
    if named != formats.images.NAME:
        message = f"dataset_format: {named} rows are no images; leave it out"
        raise PrepareError("BAD_DATASET", message, field="dataset_format")
    return {**entry, "format": named}
