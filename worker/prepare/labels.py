"""What a document's or a token's label is: a class's id, or numbers, as the job's problem says.

single_label_classification: a class. multi_label_classification: a list of classes by their names,
or for each class a number, 1 where it is there and 0 where it is not. regression: a number, or a
list of as many as the head has outputs. Of tokens each has a class, or -100: none.

A name's id is its place among the job's label_names; without these what the model's label2id says,
where that has names of its own; without both, where rows have names, these are sorted, and there
must be as many of them as classes: of fewer nobody knows which is missing. Ids are taken as they
are. In tables ids and numbers may stand as text, and lists as JSON.
"""

import difflib
import itertools
import math
import struct

from errors import PrepareError, bad_row
from formats import classification, fields, images, pretokenized, tagged_tokens
from model import HEADS

IGNORED = -100  # A token without a class.
SHOWN_NAMES = 20


class Labels:
    """Of one class each. `names`: of the classes, by id; empty: rows have ids alone. `count`: of
    the classes."""

    problem = "single_label_classification"
    form = classification  # Of the rows.
    other_form = pretokenized  # That a job may name as well.

    def __init__(self, names, count):
        self.names, self.count = list(names), count
        self._ids = {name: number for number, name in enumerate(self.names)}

    def of(self, row):
        """What the head is held against: the row's class as a number."""
        return self._id_of(row, row.label)

    def _id_of(self, row, label, what='"label"'):
        if type(label) is not int and not (isinstance(label, str) and label):
            kind = fields.kind_of_value(label)
            raise bad_row(row, f"{what} must be a class, by its id or its name, this is {kind}")
        if isinstance(label, str) and label in self._ids:
            return self._ids[label]
        if _is_id(label):
            label = int(label)
        if isinstance(label, str):
            near = difflib.get_close_matches(label, self.names, 1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise bad_row(row, f'unknown label "{label}"{hint}; there are {self._known()}')
        if not 0 <= label < self.count:
            advice = f": set num_labels to {label + 1} or more" if label > 0 else ""
            raise bad_row(
                row,
                f"label {label} is outside 0 to {self.count - 1} (num_labels {self.count}){advice}",
            )
        return label

    def about(self):
        """What dataset.json says of them."""
        about = {"num_labels": self.count}
        if self.problem:
            about["problem_type"] = self.problem
        return {**about, "label_names": self.names} if self.names else about

    def warnings(self, rows):
        """`rows`: {id: how many rows have it}."""
        empty = [self._name(number) for number in range(self.count) if not rows[number]]
        if empty:
            shown = ", ".join(empty[:SHOWN_NAMES]) + (", ..." if len(empty) > SHOWN_NAMES else "")
            yield f"{len(empty)} of {self.count} classes have no row: {shown}"

    def _name(self, number):
        return self.names[number] if self.names else str(number)

    def _known(self):
        if not self.names:
            return f"ids 0 to {self.count - 1}"
        shown = ", ".join(self.names[:SHOWN_NAMES])
        return shown + (", ..." if len(self.names) > SHOWN_NAMES else "")


class SeveralLabels(Labels):
    """Of any number of classes each."""

    problem = "multi_label_classification"

    def of(self, row):
        """For each class 1.0 or 0.0."""
        labels = fields.as_structure(row.label)
        if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
            there = {self._id_of(row, label) for label in labels}
            return [float(number in there) for number in range(self.count)]
        numbers = _numbers(row, self.count)
        for number in numbers:
            if not 0.0 <= number <= 1.0:
                raise bad_row(row, f'"label" has {number}: a class is there (1) or not (0)')
        return numbers


class Numbers(Labels):
    """Of no class: what the head's outputs are to be."""

    problem = "regression"

    def of(self, row):
        """The numbers."""
        return _numbers(row, self.count)

    def warnings(self, rows):
        """None: no number has to be there."""
        return ()


class TokenLabels(Labels):
    """Of one class for each token that has one."""

    problem = None
    form = tagged_tokens

    def of(self, row):
        """The ids of the row's words or tokens, or IGNORED."""
        return [
            IGNORED if label == IGNORED else self._id_of(row, label, f"the label of {position}")
            for position, label in enumerate(row.label)
        ]


class ImageLabels(Labels):
    """Of one class each: its folder's name, or what a table has."""

    problem = None
    form = other_form = images


KINDS = {kind.problem: kind for kind in (Labels, SeveralLabels, Numbers)}
PROBLEMS = tuple(KINDS)
OF_TASKS = {"token_classification": TokenLabels, "image_classification": ImageLabels}


def _numbers(row, count):
    """The row's label as `count` numbers of float32."""
    value = fields.as_structure(row.label)
    values = value if isinstance(value, list) else [value]
    numbers = [_number(row, number) for number in values]
    if len(numbers) != count:
        message = f'"label" has {len(numbers)} numbers, num_labels is {count}'
        raise bad_row(row, message)
    return numbers


def _number(row, value):
    if type(value) in (int, float):
        try:
            (rounded,) = struct.unpack("f", struct.pack("f", float(value)))
        except OverflowError:
            rounded = math.inf
        if math.isfinite(rounded):
            return rounded
        raise bad_row(row, f'"label" has {value}, which is no finite number of float32')
    kind = fields.kind_of_value(value)
    raise bad_row(row, f'"label" must be a number, or a list of them, this has {kind}')


def _is_id(label):
    return isinstance(label, int) or (label.isdecimal() and label.isascii())


def classify(model, sources, options, most=None):
    """Makes the sources' rows documents, or words, with classes, where that is the task: gives
    their Labels, else None. `most`: of a source's rows, so many are asked for the classes'
    names."""
    if (options.task or model.task) not in HEADS.values():
        return None
    labels = _labels_of(model, sources, options, most)
    for source in sources:
        source.reader.classify(labels)
    if model.has_tokenizer and labels.form is not images:
        model.tokenizer.enable_truncation(options.max_seq_length)
        if labels.form is tagged_tokens:
            model.split_words()
    return labels


def _labels_of(model, sources, options, most):
    """Reads the rows' labels where nothing else names the classes."""
    kind = _kind(model, options)
    names = options.label_names or model.label_names
    if kind is ImageLabels and not options.label_names:
        names = _names_of_images(model, sources, options, most)
        if names and most is not None:  # There may be more.
            return kind(names, len(names))
    if names:
        _require(options, len(names), "label_names" if options.label_names else "num_labels")
        return kind(names, len(names))
    found = set() if kind is Numbers else _names_of_rows(sources, most, kind)
    if found:
        if most is None:  # All were read.
            advice = ": give the classes' names, in their order"
            _require(options, len(found), "label_names", advice)
        return kind(sorted(found), len(found))
    default = 1 if kind is Numbers and not model.task else model.num_labels
    return kind((), options.num_labels or default)


def _names_of_images(model, sources, options, most):
    """The model's own are of what it was trained on before: they hold where they have all that the
    rows have, or where rows have ids and nobody else names them."""
    found = _names_of_rows(sources, most, ImageLabels, ids_too=True)
    if found:
        return model.label_names if found <= set(model.label_names) else sorted(found)
    for source in sources:
        if names := source.class_names():
            return names
    return model.label_names if options.num_labels in (0, len(model.label_names)) else []


def _kind(model, options):
    """As transformers: one output without a word is a regression."""
    task = options.task or model.task
    if task in OF_TASKS:
        return OF_TASKS[task]
    if options.problem_type or options.num_labels != 1:
        return KINDS[options.problem_type or model.problem_type]
    return Numbers


def _require(options, count, field, advice=""):
    if options.num_labels in (0, count):
        return
    if count > options.num_labels:
        advice = f": set num_labels: {count}"
    message = f"{count} names of classes, but num_labels is {options.num_labels}{advice}"
    raise PrepareError("BAD_DATASET", message, field=field)


def _names_of_rows(sources, most, kind, ids_too=False):
    """`ids_too`: what is spelled as an id is a name."""
    names = set()
    for source in sources:
        for record, _ in itertools.islice(source.taken(), most):
            try:
                label = kind.form.label_of(record)
            except PrepareError:  # Told with all other bad rows.
                continue
            listed = fields.as_structure(label) if kind in (SeveralLabels, TokenLabels) else None
            for name in listed if isinstance(listed, list) else [label]:
                if isinstance(name, str) and name and (ids_too or not _is_id(name)):
                    names.add(name)
    return names
