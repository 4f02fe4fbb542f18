"""Snug's fine-tuning jobs from Python: see Client."""

from snug_client.client import ENDED, Client, default_server, state_of
from snug_client.errors import FieldError, JobFailed, SnugError
from snug_client.spec import to_spec

__all__ = [
    "ENDED",
    "Client",
    "FieldError",
    "JobFailed",
    "SnugError",
    "default_server",
    "state_of",
    "to_spec",
]
