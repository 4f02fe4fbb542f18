"""Folders of runs: one of each job's id, all of them or none."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Sequence

from snug_client.errors import SnugError
from snug_client.metric_writers.run import Run


def write_folders(
    directory: pathlib.Path, runs: Sequence[Run], write: Callable[[pathlib.Path, Run], None]
) -> list[pathlib.Path]:
    """`write` fills a new folder with one run. A folder that is there already is left alone."""
    for run in runs:
        if (directory / run.job.id).exists():
            raise SnugError(f"{directory / run.job.id} is there already", code="ALREADY_EXISTS")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=directory) as temporary:
        made = pathlib.Path(temporary)
        for run in runs:
            (made / run.job.id).mkdir()
            write(made / run.job.id, run)
        return sorted(one.replace(directory / one.name) for one in made.iterdir())
