"""A job that is cut short and extended gives what one run of all its steps gives."""

import unittest

from tests.fault import runs
from tests.harness.daemon import Daemon

STEPS = 60
CONSTANT = "training.lr_scheduler_type=constant"  # Else the learning rates know of all steps.


class ExtendTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def check(self, whole, parent):
        """The parent and what extends it are together the whole, bit for bit."""
        begin = int(self.daemon.json("checkpoints", parent)["checkpoints"][0]["global_step"])
        extend = ("extend", parent, "--steps", STEPS - begin)
        child = self.daemon.run(*extend).stdout.strip()
        done = self.daemon.wait_state(child, "SUCCEEDED")
        self.assertEqual(int(done["progress"]["resumed_from_step"]), begin)
        later = [line for line in whole.steps if line[0] > begin]
        self.assertEqual(runs.steps_of(self.daemon, child, 1), later)
        later = [line for line in whole.evaluations if line[0] > begin]
        self.assertEqual(runs.evaluations_of(self.daemon, child, 1), later)
        self.assertEqual(runs.learned(self.daemon, child), whole.weights)

    def test_one_that_has_succeeded_and_one_that_was_cancelled_and_kept(self):
        job = (*runs.lora_job(self.daemon.folder / "lora", STEPS, "bf16"), CONSTANT)
        whole = runs.Undisturbed(self.daemon, job, STEPS)
        parent = self.daemon.submit(*job, "training.max_steps=25")
        self.daemon.wait_state(parent, "SUCCEEDED")
        self.check(whole, parent)
        kept = self.daemon.submit(*job)
        self.daemon.wait_step(kept, 3)
        self.daemon.run("cancel", kept, "--keep")
        self.daemon.wait_state(kept, "CANCELLED")
        self.check(whole, kept)


if __name__ == "__main__":
    unittest.main()
