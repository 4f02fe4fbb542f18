"""Reads what was written for the tools that draw metrics, with these tools' own readers: of each
series (step, time in seconds, value), in the order of their steps."""

import collections
import dataclasses
import json
import os
import select
import socket
import struct

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

PROXIES = {}  # Of the environment of a program that Nobody watches.


@dataclasses.dataclass
class Run:
    id: str
    series: dict
    status: str = ""
    project: str = ""
    tags: object = None
    params: dict = None
    config: dict = None


class Nobody:
    """A proxy for all that speaks HTTP, at which nobody answers; it counts who calls."""

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY")
        PROXIES.update({name: address for name in names})
        return self

    def __exit__(self, *_):
        PROXIES.clear()
        self.socket.close()

    def calls(self):
        called = 0
        while select.select([self.socket], [], [], 0)[0]:
            self.socket.accept()[0].close()
            called += 1
        return called


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(one.step, one.wall_time, one.value) for one in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def mlflow(store):
    """The runs of a store, by the ids of their jobs."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store.absolute().as_uri())
    (experiment,) = (one for one in client.search_experiments() if one.name == "snug")
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        series = {
            key: [
                (one.step, one.timestamp / 1000, one.value)
                for one in client.get_metric_history(run.info.run_id, key)
            ]
            for key in run.data.metrics
        }
        found[run.data.tags["snug.job"]] = Run(
            run.info.run_id,
            series,
            status=run.info.status,
            tags=run.data.tags,
            params=run.data.params,
        )
    return found


def _records(path):
    """wandb's records, in the framing of LevelDB's logs: behind 7 bytes of the file's own, blocks
    of 32768 bytes; each piece has 7 bytes of checksum, length and kind, of which 1 is a whole
    record and 4 the last piece of one."""
    from wandb.proto import wandb_internal_pb2

    content = path.read_bytes()
    position, record = 7, b""
    while position + 7 <= len(content):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, position)
        record += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(record)
            record = b""


def _of_wandb(items):
    return {(one.key or "/".join(one.nested_key)): json.loads(one.value_json) for one in items}


def wandb(folder):
    """The one offline run in a folder. There is no reader of it in wandb's package but the one that
    sends it; the messages are the package's."""
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    series, found = collections.defaultdict(list), None
    for record in _records(path):
        if record.HasField("run"):
            one = record.run
            config = _of_wandb(one.config.update)
            found = Run(one.run_id, series, project=one.project, tags=list(one.tags), config=config)
        if record.HasField("history"):
            row = _of_wandb(record.history.item)
            for key, value in row.items():
                series[key].append((row["_step"], row["_timestamp"], value))
    return found
