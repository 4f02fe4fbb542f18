"""A progress bar of a job, in a terminal or a notebook. Needs tqdm (snug-client[progress])."""

from __future__ import annotations

from snug.v1 import job_pb2
from tqdm.auto import tqdm

from snug_client.words import word_of


class Bar:
    """One bar: steps done of those planned, with state, loss and memory behind it."""

    def __init__(self, job_id: str):
        self._bar = tqdm(desc=job_id, unit="step", total=0)

    def show(self, job: job_pb2.Job) -> None:
        """Takes over a snapshot."""
        progress = job.progress
        self._bar.desc = f"{job.id} {word_of(job_pb2.Job.State.DESCRIPTOR, job.state).lower()}"
        if self._bar.total != progress.max_steps:
            self._bar.reset(total=progress.max_steps)  # A notebook's widget has a copy of it.
        self._bar.n = progress.global_step
        behind = {"loss": f"{progress.loss:.4f}"} if progress.global_step else {}
        if progress.HasField("eval_loss"):
            behind["eval_loss"] = f"{progress.eval_loss:.4f}"
        self._bar.set_postfix(behind, refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.close()
