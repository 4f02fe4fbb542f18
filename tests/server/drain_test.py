"""Devices that an operator keeps jobs off: what runs there goes on or moves, what waits goes
elsewhere. The worker trains nothing (tests/server/testing/fake_worker.cc).
"""

import os
import signal
import unittest

from tests.harness.daemon import Failed, wait_for
from tests.harness.fake_daemon import FakeDaemon

ENDLESS = "steps=100000 step_ms=50"


class DrainTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon(device="", flags=["--device", "cpu:0=1GiB", "--device=cpu:1=1GiB"])
        self.addCleanup(self.daemon.close)

    def devices(self):
        """Devices by their names."""
        return {device["name"]: device for device in self.daemon.json("devices")["devices"]}

    def running_on(self, device, script, step=6):
        """A job that has taken so many steps there; the other device is drained meanwhile."""
        other = {"cpu:0": "cpu:1", "cpu:1": "cpu:0"}[device]
        self.daemon.run("drain", other)
        name = self.daemon.submit_script(script)
        self.daemon.wait_step(name, step)
        self.assertEqual(self.daemon.job(name)["device"], device)
        self.daemon.run("undrain", other)
        return name

    def waits(self, name):
        """The reason of a job that waits, once it does."""
        self.daemon.wait_state(name, "QUEUED")
        return wait_for(
            lambda: (reason := self.daemon.job(name)["reason"]) != "waits to be placed" and reason,
            f"the reason of {name}",
        )

    def test_nothing_new_is_placed_there_and_what_runs_goes_on(self):
        stays = self.running_on("cpu:0", ENDLESS)
        done = self.daemon.run("drain", "cpu:0").stdout
        self.assertEqual(done, "cpu:0 drained, 1 job runs there\n")
        for _ in range(3):
            job = self.daemon.wait_state(self.daemon.submit_script("steps=1"), "SUCCEEDED")
            self.assertEqual(job["device"], "cpu:1")
        job = self.daemon.job(stays)
        self.assertEqual((job["state"], job["epoch"]), ("RUNNING", 1))
        devices = self.devices()
        self.assertEqual((devices["cpu:0"]["drained"], devices["cpu:1"]["drained"]), (True, False))
        table = self.daemon.run("devices").stdout
        self.assertIn("cpu:0: no job is placed there: it is drained", table)
        self.assertIn('snug_device_drained{device="cpu:0"} 1', self.daemon.metrics())

    def test_jobs_wait_until_a_device_is_undrained_and_it_stays_drained_over_a_restart(self):
        for device in ("cpu:0", "cpu:1"):
            self.daemon.run("drain", device)
        name = self.daemon.submit_script("steps=1")
        self.assertIn("it is drained", self.waits(name))
        self.daemon.restart()
        self.assertTrue(all(device["drained"] for device in self.devices().values()))
        self.assertIn("it is drained", self.waits(name))
        done = self.daemon.run("undrain", "cpu:1").stdout
        self.assertEqual(done, "cpu:1 in use, 0 jobs run there\n")
        self.assertEqual(self.daemon.wait_state(name, "SUCCEEDED")["device"], "cpu:1")
        self.daemon.restart()
        self.assertEqual([each["drained"] for each in self.devices().values()], [True, False])

    def test_a_running_job_moves_from_its_next_step(self):
        name = self.running_on("cpu:0", "steps=60 step_ms=50")
        self.daemon.run("drain", "cpu:0", "--move")
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual((job["device"], job["epoch"]), ("cpu:1", 2))
        self.assertEqual(self.daemon.steps(name, 2), list(range(1, 61)))
        last = self.daemon.steps(name, 1)[-1]
        self.assertEqual(int(job["progress"]["resumed_from_step"]), last)
        self.assertIn('snug_attempts_total{outcome="moved"} 1', self.daemon.metrics())
        self.assertIn('snug_attempts_total{outcome="lost"} 0', self.daemon.metrics())

    # Its worker hears nothing before the daemon is killed; the next one tells it.
    def test_a_daemon_killed_while_jobs_move_moves_them_in_its_next_life(self):
        name = self.running_on("cpu:0", "steps=100 step_ms=50")
        pid = self.daemon.job(name)["worker_pid"]
        os.kill(pid, signal.SIGSTOP)
        self.daemon.run("drain", "cpu:0", "--move")
        self.daemon.restart()
        os.kill(pid, signal.SIGCONT)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual((job["device"], job["epoch"]), ("cpu:1", 2))
        self.assertEqual(self.daemon.steps(name, 2), list(range(1, 101)))

    def test_an_unknown_device_is_refused_with_those_that_there_are(self):
        with self.assertRaises(Failed) as refused:
            self.daemon.run("drain", "gpu:7")
        said = refused.exception.done.stderr
        self.assertIn('device "gpu:7" is none of this daemon\'s: cpu:0, cpu:1', said)


if __name__ == "__main__":
    unittest.main()
