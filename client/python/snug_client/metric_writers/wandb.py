"""Weights & Biases: a run in its offline format, which `wandb sync` sends later, from anywhere.

Nothing is asked for and nothing is sent: the mode is offline, and the library's reports of its own
errors are off.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Sequence

from snug_client.metric_writers.folders import write_folders
from snug_client.metric_writers.run import Run, tagged

_PROJECT = "snug"
_TAG_CHARACTERS = 64  # wandb's own limit. A longer label is in the run's configuration alone.
_CACHE = ".cache"


def write_wandb(directory: pathlib.Path, runs: Sequence[Run]) -> list[pathlib.Path]:
    """`wandb sync DIRECTORY/*/wandb/offline-run-*` sends them."""
    return write_folders(directory, runs, _write)


def _write(folder, run):
    wandb = _library(folder)
    settings = wandb.Settings(
        mode="offline",
        silent=True,
        console="off",
        # What it would say of this machine and of this program is not of the job.
        disable_code=True,
        disable_git=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    labels = [f"{key}={value}" for key, value in sorted(run.job.labels.items())]
    one = wandb.init(
        dir=str(folder),
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        id=run.job.id,
        name=run.name,
        tags=[label for label in labels if len(label) <= _TAG_CHARACTERS],
        config={**run.settings(), "labels": dict(run.job.labels)},
        settings=settings,
    )
    for line in run.lines:
        # Lines of one step, as that of training and that of an evaluation, are one row of wandb's.
        one.log({**dict(tagged(line)), "_timestamp": line["time"]}, step=line["global_step"])
    one.finish()
    wandb.teardown()
    shutil.rmtree(folder / _CACHE)


def _library(folder):
    """What it reads of the environment when it is imported is set before that."""
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    os.environ["WANDB_CACHE_DIR"] = str(folder / _CACHE)
    import wandb

    return wandb
