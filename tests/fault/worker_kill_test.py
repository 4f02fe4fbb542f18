"""kill -9 of the worker: the next attempt goes on from the newest checkpoint to the same
weights."""

import json
import os
import re
import signal
import tempfile
import unittest

from tests.fault import runs
from tests.harness.daemon import Daemon, wait_for
from tests.harness.long_set import in_the_long_set

STEPS = 120  # Six checkpoints; the kill comes soon after one of the first.
CHECKPOINT = re.compile(r"step-(\d+)\.e(\d+)$")


def newest_checkpoint(daemon, name):
    """Step of the newest complete checkpoint, 0 when there is none."""
    folder = daemon.state / "jobs" / name / "checkpoints"
    names = [CHECKPOINT.match(path.name) for path in folder.glob("step-*")]
    return max((int(match[1]) for match in names if match), default=0)


class WorkerKillTest(unittest.TestCase):
    """Full fine-tuning, and LoRA with dropout in both number types."""

    def setUp(self):
        self.random = runs.seeded_random()
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def kill_and_check(self, make_job, *options):
        """Kills the worker somewhere between two checkpoints and follows the next attempt."""
        job = make_job(self.folder, STEPS, *options)
        undisturbed = runs.Undisturbed(self.daemon, job, STEPS)
        name = self.daemon.submit(*job)
        second = 2 * runs.SAVE_STEPS  # So that there is an older one, which must not be taken.
        wait_for(lambda: newest_checkpoint(self.daemon, name) >= second, "two checkpoints")
        beyond = newest_checkpoint(self.daemon, name) + self.random.randrange(1, runs.SAVE_STEPS)
        pid = self.daemon.wait_step(name, beyond)["worker_pid"]
        os.kill(pid, signal.SIGKILL)
        first = wait_for(lambda: self.finished_attempt(name), "the end of the first attempt")
        # The next attempt takes seconds to begin, so this is one of the first's.
        newest = newest_checkpoint(self.daemon, name)
        done = undisturbed.check(self, self.daemon, name, epoch=2)
        self.assertNotEqual(done["worker_pid"], pid)
        self.assertEqual(int(done["progress"]["resumed_from_step"]), newest)
        self.check_first_step(name, newest, first)

    def finished_attempt(self, name):
        """Lines of the first attempt's metrics.jsonl once its shim has written the exit record."""
        folder = self.daemon.attempt(name)
        if not (folder / "exit.json").is_file():
            return None
        return (folder / "metrics.jsonl").read_text().splitlines()

    def check_first_step(self, name, checkpoint, first):
        """The first step after the kill is the checkpoint's plus one, and not the first of all."""
        self.assertGreater(checkpoint, 0)
        self.assertEqual(checkpoint % runs.SAVE_STEPS, 0)
        second = (self.daemon.attempt(name, 2) / "metrics.jsonl").read_text().splitlines()
        # Kept lines are equal to the byte; a step that was run again has another step_seconds.
        own = [line for line in second if line not in first and '"loss"' in line]
        self.assertEqual(json.loads(own[0])["global_step"], checkpoint + 1)

    def test_full_job_goes_on_from_its_checkpoint(self):
        self.kill_and_check(runs.full_job)

    def test_lora_job_with_dropout_goes_on_from_its_checkpoint(self):
        self.kill_and_check(runs.lora_job, "fp32")

    @in_the_long_set
    def test_lora_job_in_bf16_goes_on_from_its_checkpoint(self):
        self.kill_and_check(runs.lora_job, "bf16")


if __name__ == "__main__":
    unittest.main()
