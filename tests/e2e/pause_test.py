"""A job that is paused at random moments, and resumed: its weights, losses and evaluations are
those of a run that nobody disturbs."""

import time
import unittest

from tests.fault import runs
from tests.harness.daemon import Daemon

STEPS = 120


class PauseTest(unittest.TestCase):
    def setUp(self):
        self.random = runs.seeded_random()
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def check(self, job):
        """Twice paused, it ends in its third attempt as the undisturbed one."""
        undisturbed = runs.Undisturbed(self.daemon, job, STEPS)
        name = self.daemon.submit(*job)
        for step in (1, STEPS // 2):
            self.daemon.wait_step(name, step)
            time.sleep(self.random.uniform(0.0, 0.3))
            self.daemon.run("pause", name)
            self.daemon.wait_state(name, "PAUSED")
            self.assertEqual(self.daemon.processes("snug-worker"), [])
            self.daemon.run("resume", name)
        undisturbed.check(self, self.daemon, name, epoch=3)

    def test_a_full_job(self):
        self.check(runs.full_job(self.daemon.folder / "full", STEPS))

    def test_a_lora_job_with_dropout_and_evaluations(self):
        self.check(runs.lora_job(self.daemon.folder / "lora", STEPS, "bf16"))


if __name__ == "__main__":
    unittest.main()
