"""A job that is cancelled and kept gives what a job of as many steps gives."""

import unittest

from tests.fault import runs
from tests.harness.daemon import Daemon

CONSTANT = "training.lr_scheduler_type=constant"  # Its steps do not depend on how many follow.


class KeepTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def test_the_output_is_that_of_a_job_of_as_many_steps(self):
        file, *changes = runs.lora_job(self.daemon.folder / "lora", 100000, "bf16")
        name = self.daemon.submit(file, *changes, CONSTANT)
        self.daemon.wait_step(name, 3)
        self.daemon.run("cancel", name, "--keep")
        job = self.daemon.wait_state(name, "CANCELLED")
        self.assertEqual(job["reason"], "cancelled; what there was is its output")
        self.assertEqual(self.daemon.processes("snug-worker"), [])
        steps = int(job["progress"]["global_step"])
        # One that saves does so at its end.
        (newest, *_) = self.daemon.json("checkpoints", name)["checkpoints"]
        self.assertEqual(int(newest["global_step"]), steps)
        whole = self.daemon.submit(file, *changes, CONSTANT, f"training.max_steps={steps}")
        done = self.daemon.wait_state(whole, "SUCCEEDED")
        self.assertEqual(job["output"]["loss"], done["output"]["loss"])
        self.assertEqual(runs.learned(self.daemon, name), runs.learned(self.daemon, whole))
        for of in (runs.steps_of, runs.evaluations_of):
            self.assertEqual(of(self.daemon, name, 1), of(self.daemon, whole, 1))


if __name__ == "__main__":
    unittest.main()
