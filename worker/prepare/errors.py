"""What is wrong with the input: the one error type of snug-prepare, and rows that were refused."""

import json

NAMED_ROWS = 10  # Of those that are bad; the others are counted.


class PrepareError(Exception):
    """Input that cannot be prepared. `reason` is a name others match on, `message` is for people.

    reason  BAD_DATASET, BAD_MODEL: the user's files; PREPARE_LIMIT: memory or time ran out
    field   the field of the job's specification that named the file
    """

    def __init__(self, reason, message, field="dataset", file=None, line=None):
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.file = file
        self.line = line

    def __reduce__(self):  # Another process raises it again.
        return PrepareError, (self.reason, self.message, self.field, self.file, self.line)

    def to_json(self):
        """One line; keys without a value are left out."""
        return json.dumps({key: value for key, value in vars(self).items() if value is not None})


class BadRows:
    """Rows that cannot be trained on: all are counted, the first are kept."""

    def __init__(self):
        self.count = 0
        self.first = []

    def add(self, error):
        """Takes the error of one row; one that is not about a row is raised."""
        if error.reason != "BAD_DATASET" or error.line is None:
            raise error
        self.count += 1
        if len(self.first) < NAMED_ROWS:
            self.first.append(error)

    def merge(self, other):
        """Adds those of the rows that follow."""
        self.count += other.count
        self.first += other.first[: NAMED_ROWS - len(self.first)]

    def require_none(self, rows):
        """PrepareError with the first of them when there are any. `rows`: all that were read."""
        if not self.count:
            return
        first = self.first[0]
        if self.count == 1:
            raise first
        lines = [f"{self.count} of {rows} rows are bad"]
        if self.count > len(self.first):
            lines[0] += f"; the first {len(self.first)}"
        lines += [f"{error.file}:{error.line}: {error.message}" for error in self.first]
        raise PrepareError("BAD_DATASET", "\n  ".join(lines), first.field, first.file, first.line)


def bad_row(row, message):
    """A BAD_DATASET error at a row: where = file and line."""
    return PrepareError("BAD_DATASET", message, file=row.file, line=row.line)
