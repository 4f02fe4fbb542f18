"""The formats that metrics of jobs are exported to, each through its own library's writer.

A writer is a function (folder, job, lines): it writes the lines of one job's metrics.jsonl as one
run. What it needs is an extra of the package: snug-client[tensorboard].
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from snug.v1 import job_pb2

# What says where and when a value was measured, rather than what.
_PLACE = frozenset({"global_step", "time"})


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


def write_tensorboard(
    folder: pathlib.Path, job: job_pb2.Job, lines: Sequence[Mapping[str, Any]]
) -> None:
    """One event file. Its values are float32, as TensorBoard's scalars are."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / job.id))
    try:
        for line in lines:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in tagged(line)]
            summary = Summary(value=values)
            event = Event(wall_time=line["time"], step=line["global_step"], summary=summary)
            writer.add_event(event)
    finally:
        writer.close()


WRITERS = {"tensorboard": write_tensorboard}
