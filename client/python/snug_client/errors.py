"""What goes wrong, as exceptions. The daemon sends google.rpc details with every refusal; their
reason and fields are attributes here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import grpc
from google.rpc import error_details_pb2, status_pb2

_DETAILS = "grpc-status-details-bin"


class FieldError(NamedTuple):
    """One bad field of a job: its path ("training.learning_rate"), and what is wrong with it."""

    field: str
    message: str


class SnugError(Exception):
    """A call that the daemon, or this client, refused.

    code: the gRPC status's name, "INVALID_ARGUMENT"; reason: UPPER_SNAKE, empty where the daemon
    gave none; field: of the first of `fields`, empty where the error is about none.
    """

    def __init__(
        self, message: str, *, code: str = "", reason: str = "", fields: Sequence[FieldError] = ()
    ):
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.fields = list(fields)
        self.field = self.fields[0].field if self.fields else ""


class JobFailed(SnugError):
    """A job that was waited for has failed or was cancelled. `job` is its last state."""

    def __init__(self, job):
        error = job.error
        fields = [FieldError(error.field, error.message)] if error.field else []
        message = error.message or job.reason or f"job {job.id} has not succeeded"
        super().__init__(f"{job.id}: {message}", reason=error.reason, fields=fields)
        self.job = job


def _path(field: str) -> str:
    for prefix in ("job.", "spec."):
        field = field[len(prefix) :] if field.startswith(prefix) else field
    return field


def from_rpc(error: grpc.RpcError) -> SnugError:
    """The exception for a failed call, with what its details say."""
    metadata = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(metadata.get(_DETAILS, b""))
    reason, fields = "", []
    for detail in status.details:
        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(request):
            violations = request.field_violations
            fields += [FieldError(_path(one.field), one.description) for one in violations]
    code = error.code().name
    return SnugError(error.details() or code, code=code, reason=reason, fields=fields)
