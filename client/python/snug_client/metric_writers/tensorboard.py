"""TensorBoard: one event file in a folder of the job's id."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from snug_client.metric_writers.folders import write_folders
from snug_client.metric_writers.run import Run, tagged


def write_tensorboard(directory: pathlib.Path, runs: Sequence[Run]) -> list[pathlib.Path]:
    """`tensorboard --logdir DIRECTORY` shows them."""
    return write_folders(directory, runs, _write)


def _write(folder, run):
    """Values are float32, as TensorBoard's scalars are."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    try:
        for line in run.lines:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in tagged(line)]
            summary = Summary(value=values)
            event = Event(wall_time=line["time"], step=line["global_step"], summary=summary)
            writer.add_event(event)
    finally:
        writer.close()
