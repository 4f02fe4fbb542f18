"""A job that is cancelled and kept gives what a job of as many steps gives."""

import unittest

from tests.fault import runs
from tests.harness.daemon import Daemon

CONSTANT = "training.lr_scheduler_type=constant"  # Its steps do not depend on how many follow.


class KeepTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

        job = runs.lora_job(self.daemon.folder / "lora", 100000, "bf16")
        self.file, *self.changes = *job, CONSTANT
        self.name = self.daemon.submit(self.file, *self.changes)
        self.daemon.wait_step(self.name, 3)

    def check(self):
        """Cancels the job and keeps it; gives the job of as many steps that it is held against."""
        self.daemon.run("cancel", self.name, "--keep")
        job = self.daemon.wait_state(self.name, "CANCELLED")
        self.assertEqual(job["reason"], "cancelled; what there was is its output")
        self.assertEqual(self.daemon.processes("snug-worker"), [])
        steps = int(job["progress"]["global_step"])
        # One that saves does so at its end.
        (newest, *_) = self.daemon.json("checkpoints", self.name)["checkpoints"]
        self.assertEqual(int(newest["global_step"]), steps)
        whole = self.daemon.submit(self.file, *self.changes, f"training.max_steps={steps}")
        done = self.daemon.wait_state(whole, "SUCCEEDED")
        self.assertEqual(job["output"]["loss"], done["output"]["loss"])
        self.assertEqual(runs.learned(self.daemon, self.name), runs.learned(self.daemon, whole))
        return whole

    def test_the_output_is_that_of_a_job_of_as_many_steps(self):
        whole = self.check()
        for of in (runs.steps_of, runs.evaluations_of):
            self.assertEqual(of(self.daemon, self.name, 1), of(self.daemon, whole, 1))

    def test_that_of_a_paused_job_is_as_well(self):
        self.daemon.run("pause", self.name)
        self.daemon.wait_state(self.name, "PAUSED")
        self.check()


if __name__ == "__main__":
    unittest.main()
