"""snug-export-metrics: jobs' metrics for a tool that draws them.

    snug-export-metrics JOB... --to tensorboard|wandb|mlflow DIR

All jobs are written or none. A job that still runs is exported as far as it has come.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from snug_client.client import Client, default_server
from snug_client.errors import SnugError
from snug_client.metric_writers import WRITERS
from snug_client.metric_writers.run import Run


def export_metrics(
    client: Client, jobs: Sequence[str], to: str, directory: pathlib.Path
) -> list[pathlib.Path]:
    """Writes the metrics of jobs to new folders in `directory`; gives these folders."""
    if to not in WRITERS:
        known = ", ".join(sorted(WRITERS))
        raise SnugError(f"to must be one of {known}, not {to!r}", code="INVALID_ARGUMENT")
    runs = [Run(job, list(client.metrics(job.name or job.id))) for job in _each_once(client, jobs)]
    for run in runs:
        if not run.lines:
            raise SnugError(f"{run.job.id} has done no step yet", code="FAILED_PRECONDITION")
    return WRITERS[to](directory, runs)


def _each_once(client, jobs):
    """Jobs in the order they were named; one that is named twice is there once."""
    found = [client.get(job) for job in jobs]
    return list({job.name or job.id: job for job in found}.values())


def _arguments(words):
    parser = argparse.ArgumentParser(
        prog="snug-export-metrics",
        description="Writes jobs' metrics in the format of a tool that draws them.",
    )
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="Ids, or beginnings of them")
    parser.add_argument(
        "--to",
        nargs=2,
        metavar=("FORMAT", "DIR"),
        required=True,
        help=f"{', '.join(sorted(WRITERS))}, and where to: a run of each job is made there",
    )
    parser.add_argument(
        "--server", default=default_server(), help="unix:PATH or https://HOST:PORT; else as snug"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """The program. Gives its exit code."""
    arguments = _arguments(words)
    to, directory = arguments.to
    try:
        with Client(arguments.server) as client:
            folders = export_metrics(client, arguments.jobs, to, pathlib.Path(directory))
    except ModuleNotFoundError as error:
        print(f"snug-export-metrics: {error}: install snug-client[{to}]", file=sys.stderr)
        return 1
    except (SnugError, OSError) as error:
        print(f"snug-export-metrics: {error}", file=sys.stderr)
        return 1
    for folder in folders:
        print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
