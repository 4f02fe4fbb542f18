"""snugd with the fake worker (tests/server/testing/fake_worker.cc), and job files for it."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from tests.harness.binaries import ROOT
from tests.harness.daemon import Daemon, metric_lines

FAKE = os.environ.get("SNUG_FAKE_WORKER", str(ROOT / "build" / "tests" / "bin" / "fake-worker"))
ONE_AT_A_TIME = "max_jobs_per_device: 1\n"  # For tests in which a job must wait.


class FakeDaemon(Daemon):
    """Jobs do what their display_name says. `settings`: more of the daemon's configuration."""

    def __init__(self, device="cpu:0=1GiB", settings="", flags=(), under=()):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-fake-"))
        (folder / "config.yaml").write_text(f"worker: {FAKE}\n{settings}")
        self.jobs = folder
        subprocess.run([FAKE, "--write-model", folder / "model"], check=True)
        rows = ([3 + (7 * row + i) % 60 for i in range(30)] for row in range(20))
        lines = (json.dumps({"input_ids": ids, "labels": ids}) for ids in rows)
        (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
        super().__init__(device, ["--config", str(folder / "config.yaml"), *flags], under)

    def close(self):
        try:
            super().close()
        finally:
            shutil.rmtree(self.jobs, ignore_errors=True)

    def job_file(self):
        """A LoRA job on the model and the data that are there."""
        file = self.jobs / "job.yaml"
        file.write_text("model: ./model\ndataset: ./train.jsonl\nmethod: lora\n")
        return file

    def submit_script(self, script, *changes):
        """A job whose worker follows the script; its id."""
        script = f"display_name={script}"
        return self.submit(self.job_file(), script, "training.save_steps=5", *changes)

    def steps(self, name, epoch=1):
        """Steps of an attempt's metrics.jsonl, in the order of the lines."""
        lines = metric_lines(self.attempt(name, epoch) / "metrics.jsonl")
        return [line["global_step"] for line in lines]
