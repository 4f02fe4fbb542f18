"""One job as the writers see it: its settings, and series named as transformers' reports are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from snug.v1 import job_pb2

from snug_client.words import word_of

# What says where and when a value was measured, rather than what.
_PLACE = frozenset({"global_step", "time"})

# Of a spec, what is not about the training: a webhook's address may hold a secret, and labels as
# well as the name are those of the run.
_NOT_SETTINGS = frozenset({"display_name", "labels", "webhook"})


@dataclasses.dataclass(frozen=True)
class Run:
    job: job_pb2.Job
    lines: Sequence[Mapping[str, Any]]  # Of its metrics.jsonl; at least one.

    @property
    def name(self) -> str:
        return self.job.display_name or self.job.id

    def settings(self) -> dict[str, Any]:
        """What the job trained and how, by the fields' paths: {"training.max_steps": 6}. Lists and
        maps are values."""
        found = dict(_fields(self.job.spec, ""))
        return {path: value for path, value in found.items() if path not in _NOT_SETTINGS}


def tagged(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The series and values of a line, named as transformers' own reports are: train/loss,
    eval/loss. The epoch of an evaluation is left out: the train lines have it."""
    evaluation = "eval_loss" in line
    for key, value in line.items():
        if key in _PLACE or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if key.startswith("eval_"):
            yield "eval/" + key.removeprefix("eval_"), float(value)
        elif not evaluation:
            yield f"train/{key}", float(value)


def _fields(message, prefix):
    whole = MessageToDict(message, preserving_proto_field_name=True)
    for field, value in message.ListFields():
        path = prefix + field.name
        if field.message_type is None and isinstance(value, (bool, int, float, str)):
            # JSON has 64-bit integers as text.
            yield path, word_of(field.enum_type, value) if field.enum_type else value
        elif isinstance(whole[field.name], dict) and hasattr(value, "ListFields"):
            yield from _fields(value, f"{path}.")
        else:
            yield path, whole[field.name]
