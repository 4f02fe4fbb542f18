"""MLflow's file store: an experiment "snug" with a run for each job. Nothing is sent anywhere."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence

from snug_client.client import state_of
from snug_client.errors import SnugError
from snug_client.metric_writers.run import Run, tagged

_EXPERIMENT = "snug"
_JOB = "snug.job"  # The tag that has the job's id.
_STATUS = {"SUCCEEDED": "FINISHED", "FAILED": "FAILED", "CANCELLED": "KILLED"}

# MLflow's own limits of one call, and of one parameter's text.
_BATCH_METRICS = 1000
_BATCH_PARAMS = 100
_PARAM_CHARACTERS = 6000


def write_mlflow(directory: pathlib.Path, runs: Sequence[Run]) -> list[pathlib.Path]:
    """`mlflow ui --backend-store-uri DIRECTORY` shows them. The directory is the store; one that is
    there gets more runs."""
    client = _client(directory)
    experiment = _experiment(client)
    for run in runs:
        if client.search_runs([experiment], f"tags.`{_JOB}` = '{run.job.id}'"):
            message = f"{directory} has a run of {run.job.id} already"
            raise SnugError(message, code="ALREADY_EXISTS")
    made = []
    try:
        for run in runs:
            made.append(_begin(client, experiment, run))
            _write(client, made[-1], run)
    except BaseException:
        for run_id in made:
            client.delete_run(run_id)
        raise
    return [directory / experiment / run_id for run_id in made]


def _client(directory):
    """What the library reads of the environment is set before it is imported: it reports how it is
    used unless told not to, and asks to be told that a store of files is meant."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=directory.absolute().as_uri())


def _experiment(client):
    found = client.get_experiment_by_name(_EXPERIMENT)
    return found.experiment_id if found else client.create_experiment(_EXPERIMENT)


def _begin(client, experiment, run):
    tags = {**run.job.labels, _JOB: run.job.id, "snug.state": _state(run)}
    begin = _milliseconds(run.lines[0]["time"])
    made = client.create_run(experiment, start_time=begin, tags=tags, run_name=run.name)
    return made.info.run_id


def _write(client, run_id, run):
    from mlflow.entities import Metric, Param

    metrics = [
        Metric(tag, value, _milliseconds(line["time"]), line["global_step"])
        for line in run.lines
        for tag, value in tagged(line)
    ]
    params = [Param(path, _text(value)) for path, value in run.settings().items()]
    for batch in _batches(metrics, _BATCH_METRICS):
        client.log_batch(run_id, metrics=batch)
    for batch in _batches(params, _BATCH_PARAMS):
        client.log_batch(run_id, params=batch)
    end = _milliseconds(run.lines[-1]["time"])
    if _state(run) in _STATUS:
        client.set_terminated(run_id, status=_STATUS[_state(run)], end_time=end)


def _state(run):
    return state_of(run.job)


def _milliseconds(seconds):
    return round(seconds * 1000)


def _text(value):
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= _PARAM_CHARACTERS:
        return text
    end = f"... ({len(text)} characters)"
    return text[: _PARAM_CHARACTERS - len(end)] + end


def _batches(values, size):
    return [values[at : at + size] for at in range(0, len(values), size)]
