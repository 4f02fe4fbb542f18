"""The one error type of snug-prepare: what is wrong, in which file and line."""

import json


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

    def to_json(self):
        """One line; keys without a value are left out."""
        return json.dumps({key: value for key, value in vars(self).items() if value is not None})


def bad_row(row, message):
    """A BAD_DATASET error at a row: where = file and line."""
    return PrepareError("BAD_DATASET", message, file=row.file, line=row.line)
