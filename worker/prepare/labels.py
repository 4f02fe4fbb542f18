"""Which id a class has.

A name's id is its place among the job's label_names; without these what the model's label2id says,
where that has names of its own; without both, where rows have names, these are sorted, and there
must be as many of them as classes: of fewer nobody knows which is missing. Ids are taken as they
are. In tables ids may stand as text.
"""

import difflib
import itertools

from errors import PrepareError, bad_row
from formats import classification

SHOWN_NAMES = 20


class Labels:
    """`names`: of the classes, by id; empty: rows have ids alone. `count`: of the classes."""

    def __init__(self, names, count):
        self.names, self.count = list(names), count
        self._ids = {name: number for number, name in enumerate(self.names)}

    def id_of(self, row):
        """The row's class as a number."""
        label = row.label
        if isinstance(label, str) and label in self._ids:
            return self._ids[label]
        if isinstance(label, str) and label.isdecimal() and label.isascii():
            label = int(label)
        if isinstance(label, str):
            near = difflib.get_close_matches(label, self.names, 1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise bad_row(row, f'unknown label "{label}"{hint}; there are {self._known()}')
        if not 0 <= label < self.count:
            message = f"label {label} is outside 0 to {self.count - 1} (num_labels {self.count})"
            raise bad_row(row, message)
        return label

    def about(self):
        """What dataset.json says of them."""
        about = {"num_labels": self.count}
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


def classify(model, sources, options, most=None):
    """Makes the sources' rows documents with a class, where that is the task: gives their Labels,
    else None. `most`: of a source's rows, so many are asked for the classes' names."""
    if not (options.task or model.classifies):
        return None
    labels = _labels_of(model, sources, options, most)
    for source in sources:
        source.reader.classify(labels)
    if model.has_tokenizer:
        model.tokenizer.enable_truncation(options.max_seq_length)
    return labels


def _labels_of(model, sources, options, most):
    """Reads the rows' labels where nothing else names the classes."""
    names = options.label_names or model.label_names
    if names:
        _require(options, len(names), "label_names" if options.label_names else "num_labels")
        return Labels(names, len(names))
    found = _names_of_rows(sources, most)
    if found:
        if most is None:  # All were read.
            advice = ": give the classes' names, in their order"
            _require(options, len(found), "label_names", advice)
        return Labels(sorted(found), len(found))
    return Labels((), options.num_labels or model.num_labels)


def _require(options, count, field, advice=""):
    if options.num_labels in (0, count):
        return
    message = f"{count} names of classes, but num_labels is {options.num_labels}{advice}"
    raise PrepareError("BAD_DATASET", message, field=field)


def _names_of_rows(sources, most):
    names = set()
    for source in sources:
        for record, _ in itertools.islice(source.taken(), most):
            try:
                label = classification.label_of(record)
            except PrepareError:  # Told with all other bad rows.
                continue
            if isinstance(label, str) and not (label.isdecimal() and label.isascii()):
                names.add(label)
    return names
