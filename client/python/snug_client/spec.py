"""A job as a mapping, with the keys and words of a job file, as the daemon's JobSpec.

Paths are resolved against the working directory. What only the command line does is not done here:
ids of the Hugging Face hub are not looked up in its cache, and no file is read.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from snug.v1 import job_pb2

from snug_client.errors import FieldError, SnugError
from snug_client.words import names_by_word

_JOB = re.compile(
    r"(tenants/[^/]+/jobs/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?(/checkpoints/[1-9][0-9]*)?"
)
_FILE = re.compile(r"(tenants/[^/]+/datasets/)?file-[0-9a-f]{24}")
_BAD = "BAD_JOB_FILE"


def _refuse(field: str, message: str) -> SnugError:
    text = f"{field}: {message}" if field else message
    return SnugError(
        text, code="INVALID_ARGUMENT", reason=_BAD, fields=[FieldError(field, message)]
    )


def _enum_word(word: Any, field: FieldDescriptor, path: str) -> Any:
    if not isinstance(word, str):
        return word
    names = names_by_word(field.enum_type)
    if word.upper() not in names:
        known = ", ".join(name.lower() for name in names if not name.endswith("UNSPECIFIED"))
        raise _refuse(path, f"must be one of {known}, not {word!r}")
    return names[word.upper()]


def _map_value(value: Any, field: FieldDescriptor, path: str) -> Any:
    kind = field.message_type.fields_by_name["value"]
    if not isinstance(value, Mapping):
        raise _refuse(path, "must be a mapping")
    return {str(key): _one(entry, kind, f"{path}.{key}") for key, entry in value.items()}


def _one(value: Any, field: FieldDescriptor, path: str) -> Any:
    if field.enum_type is not None:
        return _enum_word(value, field, path)
    if field.message_type is not None:
        return _message(value, field.message_type, path)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is_repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):
        return field.is_repeated
    return field.label == FieldDescriptor.LABEL_REPEATED  # Of protobuf before 6.


def _field_value(value: Any, field: FieldDescriptor, path: str) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map_value(value, field, path)
    if not _is_repeated(field):
        return _one(value, field, path)
    values = value if isinstance(value, (list, tuple)) else [value]
    return [_one(entry, field, f"{path}[{i}]") for i, entry in enumerate(values)]


def _message(value: Any, descriptor: Descriptor, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _refuse(path, "must be a mapping")
    names = descriptor.fields_by_name
    found = {}
    for key, entry in value.items():
        at = f"{path}.{key}" if path else str(key)
        if key not in names:
            near = difflib.get_close_matches(str(key), list(names), 1)
            raise _refuse(at, "no such key" + (f"; did you mean {near[0]}?" if near else ""))
        if entry is not None:
            found[key] = _field_value(entry, names[key], at)
    return found


def _resolved(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else path


def _made(path: str) -> str:
    """A path; or what a job made, by the job's id or its name, or by a checkpoint of it."""
    is_job = _JOB.fullmatch(path) and not os.path.exists(path)
    return path if is_job else _resolved(path)


def _dataset(dataset: str) -> str:
    """A path; or a file that was sent to the daemon, by its id or its name."""
    sent = _FILE.fullmatch(dataset) and not os.path.exists(dataset)
    return dataset if sent else _resolved(dataset)


def to_spec(job: Mapping[str, Any]) -> job_pb2.JobSpec:
    """The JobSpec of a job file's keys. Raises SnugError, with the field, for what is none."""
    spec = job_pb2.JobSpec()
    try:
        json_format.ParseDict(_message(job, spec.DESCRIPTOR, ""), spec)
    except json_format.ParseError as error:
        raise _refuse("", str(error)) from error
    spec.model = _made(spec.model)
    spec.dataset, spec.eval_dataset = _dataset(spec.dataset), _dataset(spec.eval_dataset)
    for source in spec.datasets:
        source.path = _dataset(source.path)
    if spec.lora.init_adapter:
        spec.lora.init_adapter = _made(spec.lora.init_adapter)
    return spec
