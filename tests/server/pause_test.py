"""Pausing and resuming: what becomes of the attempt, its bytes, its place in the queue. The worker
trains nothing (tests/server/testing/fake_worker.cc).
"""

import os
import signal
import time
import unittest

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon

ENDLESS = "steps=100000 step_ms=50"


class PauseTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon(settings=ONE_AT_A_TIME)
        self.addCleanup(self.daemon.close)

    def running(self, script, step=6):
        """A job that has taken so many steps."""
        name = self.daemon.submit_script(script)
        self.daemon.wait_step(name, step)
        return name

    def paused(self, name):
        """The job once it is paused: nothing of it runs, nothing is promised to it."""
        job = self.daemon.wait_state(name, "PAUSED")
        self.assertEqual(self.daemon.processes("fake-worker"), [])
        (device,) = self.daemon.json("devices")["devices"]
        self.assertEqual(device["reserved_bytes"], "0")
        return job

    def goes_on(self, name, steps):
        """Resumed, it ends in its second attempt with every step once; where that began."""
        self.daemon.run("resume", name)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], 2)
        self.assertEqual(self.daemon.steps(name, 2), list(range(1, steps + 1)))
        return int(job["progress"]["resumed_from_step"])

    def test_a_paused_job_goes_on_from_the_step_at_which_it_was_paused(self):
        name = self.running("steps=60 step_ms=50")
        self.assertEqual(self.daemon.run("pause", name).stdout, f"{name} PAUSING\n")
        job = self.paused(name)
        last = self.daemon.steps(name)[-1]
        self.assertEqual(job["reason"], f"paused; goes on from its checkpoint of step {last}")
        self.assertIn('snug_attempts_total{outcome="paused"} 1', self.daemon.metrics())
        self.daemon.run("pause", name)  # Which it is.
        self.assertEqual(self.goes_on(name, 60), last)

    def test_checkpoints_are_listed_and_downloaded_while_it_runs_and_is_paused(self):
        name = self.running(ENDLESS)
        there = self.daemon.json("checkpoints", name)["checkpoints"]
        self.assertEqual(there[-1]["global_step"], "5")
        target = self.daemon.jobs / "running"
        self.daemon.run("download", name, target, "--checkpoint", 5)
        self.assertTrue((target / "weights").read_text().startswith("step 5 "))
        self.assertEqual(self.daemon.job(name)["state"], "RUNNING")
        self.daemon.run("pause", name)
        self.paused(name)
        last = self.daemon.steps(name)[-1]
        there = self.daemon.json("checkpoints", name)["checkpoints"]
        steps = [int(each["global_step"]) for each in there]
        self.assertEqual(steps, sorted({last, *range(5, last, 5)}, reverse=True))
        target = self.daemon.jobs / "checkpoint"
        self.daemon.run("download", name, target, "--checkpoint", last)
        self.assertTrue((target / "weights").read_text().startswith(f"step {last} "))
        self.assertTrue((target / "MANIFEST.json").is_file())
        self.assertEqual(int(there[0]["bytes"]), sum(f.stat().st_size for f in target.iterdir()))
        other = self.daemon.jobs / "other"
        refused = self.daemon.run("download", name, other, "--checkpoint", 3, code=1).stderr
        self.assertIn("has no checkpoint of step 3; it has", refused)

    def test_its_device_is_anothers_meanwhile(self):
        first = self.running(ENDLESS)
        second = self.daemon.submit_script("steps=3")
        self.daemon.run("pause", first)
        self.daemon.wait_state(second, "SUCCEEDED")
        self.assertEqual(self.paused(first)["state"], "PAUSED")

    def test_a_restart_leaves_it_paused(self):
        name = self.running("steps=60 step_ms=50")
        self.daemon.run("pause", name)
        last = self.daemon.steps(name)[-1]
        self.paused(name)
        self.daemon.restart()
        self.paused(name)
        self.assertGreaterEqual(self.goes_on(name, 60), last)

    # The worker hears nothing before the daemon is killed; the next one tells it.
    def test_a_daemon_killed_while_pausing_pauses_in_its_next_life(self):
        name = self.running("steps=100 step_ms=50")
        pid = self.daemon.job(name)["worker_pid"]
        os.kill(pid, signal.SIGSTOP)
        self.daemon.run("pause", name)
        self.assertEqual(self.daemon.job(name)["state"], "PAUSING")
        self.daemon.restart()
        self.assertEqual(self.daemon.job(name)["state"], "PAUSING")
        os.kill(pid, signal.SIGCONT)
        self.paused(name)
        self.goes_on(name, 100)

    def test_a_worker_lost_while_pausing_leaves_its_last_checkpoint(self):
        name = self.running("steps=60 step_ms=50", step=7)
        pid = self.daemon.job(name)["worker_pid"]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)  # It stands still now.
        saved = (self.daemon.state / "jobs" / name / "checkpoints").glob("step-*.e1")
        before = max(int(folder.name[5:11]) for folder in saved)
        self.daemon.run("pause", name)
        os.kill(pid, signal.SIGKILL)
        job = self.paused(name)
        self.assertEqual(
            job["reason"],
            f"paused; its worker was lost; goes on from its checkpoint of step {before}",
        )
        self.assertEqual(self.goes_on(name, 60), before)

    def test_a_queued_job_is_paused_at_once_and_keeps_its_place(self):
        busy = self.running(ENDLESS)
        older, younger = (self.daemon.submit_script("steps=2") for _ in range(2))
        for name in (older, younger):
            self.daemon.wait_state(name, "QUEUED")
        self.assertEqual(self.daemon.run("pause", older).stdout, f"{older} PAUSED\n")
        self.assertEqual(self.daemon.run("resume", older).stdout, f"{older} QUEUED\n")
        self.daemon.run("cancel", busy)
        jobs = [self.daemon.wait_state(name, "SUCCEEDED") for name in (older, younger)]
        self.assertLess(jobs[0]["start_time"], jobs[1]["start_time"])

    # Whether or not its dataset is prepared by then.
    def test_a_new_job_can_be_paused(self):
        for _ in range(3):
            name = self.daemon.submit_script("steps=2 step_ms=1000")
            self.daemon.run("pause", name)
            self.daemon.wait_state(name, "PAUSED", "SUCCEEDED")
            self.daemon.run("resume", name, code=None)
            self.daemon.wait_state(name, "SUCCEEDED")

    def test_a_paused_job_can_be_cancelled(self):
        name = self.running(ENDLESS)
        self.daemon.run("pause", name)
        self.paused(name)
        self.daemon.run("cancel", name)
        self.assertEqual(self.daemon.job(name)["state"], "CANCELLED")

    # A worker that does not obey is ended when it is cancelled.
    def test_a_pausing_job_can_be_cancelled(self):
        name = self.running("deaf=1 " + ENDLESS)
        self.daemon.run("pause", name)
        self.assertEqual(self.daemon.job(name)["state"], "PAUSING")
        self.daemon.run("cancel", name)
        self.daemon.wait_state(name, "CANCELLED")
        wait_for(lambda: not self.daemon.processes("fake-worker"), "the worker to end")

    def test_only_what_runs_is_paused_and_only_what_is_paused_resumed(self):
        name = self.running("steps=8")
        refused = self.daemon.run("resume", name, code=1)
        self.assertIn("cannot resume", refused.stderr)
        self.daemon.wait_state(name, "SUCCEEDED")
        for word in ("pause", "resume"):
            self.assertIn(f"cannot {word}", self.daemon.run(word, name, code=1).stderr)


if __name__ == "__main__":
    unittest.main()
