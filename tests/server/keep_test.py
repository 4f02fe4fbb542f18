"""Jobs that are cancelled and kept: their workers export what there is. The worker trains nothing
(tests/server/testing/fake_worker.cc).
"""

import os
import signal
import unittest

from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon

ENDLESS = "steps=100000 step_ms=50"
KEPT = "cancelled; what there was is its output"


class KeepTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon(settings=ONE_AT_A_TIME)
        self.addCleanup(self.daemon.close)

    def running(self, script=ENDLESS, step=6):
        """A job that has taken so many steps."""
        name = self.daemon.submit_script(script)
        self.daemon.wait_step(name, step)
        return name

    def keep(self, name, code=0):
        """What is said to `cancel --keep`: on standard output, or of a refusal."""
        done = self.daemon.run("cancel", name, "--keep", code=code)
        return done.stdout if code == 0 else done.stderr

    def cancelled(self, name):
        """The job once it is cancelled: nothing of it runs, nothing is promised to it."""
        job = self.daemon.wait_state(name, "CANCELLED")
        self.assertEqual(self.daemon.processes("fake-worker"), [])
        (device,) = self.daemon.json("devices")["devices"]
        self.assertEqual(device["reserved_bytes"], "0")
        return job

    def check_output(self, name):
        """It is that of the last step that was made."""
        target = self.daemon.jobs / f"output-{name}"
        self.daemon.run("download", name, target)
        lines = (target / "metrics.jsonl").read_text().splitlines()
        self.assertEqual(len(lines), int(self.daemon.job(name)["progress"]["global_step"]))
        self.assertTrue((target / "adapter_model.safetensors").is_file())

    def test_what_there_is_is_exported_and_can_be_downloaded(self):
        name = self.running()
        self.assertEqual(self.keep(name), f"{name} CANCELLING\n")
        job = self.cancelled(name)
        self.assertEqual((job["reason"], job["keep"]), (KEPT, True))
        self.assertGreaterEqual(int(job["progress"]["global_step"]), 6)
        self.check_output(name)
        self.assertEqual(self.keep(name), f"{name} CANCELLED\n")  # Which it is.
        self.assertIn('snug_attempts_total{outcome="cancelled"} 1', self.daemon.metrics())
        self.daemon.restart()
        self.assertEqual(self.daemon.job(name)["reason"], KEPT)
        self.assertIn("all is well", self.daemon.run("doctor").stdout)
        self.daemon.run("delete", name)

    # The worker hears nothing before the daemon is killed; the next one tells it.
    def test_a_daemon_killed_meanwhile_keeps_in_its_next_life(self):
        name = self.running()
        pid = self.daemon.job(name)["worker_pid"]
        os.kill(pid, signal.SIGSTOP)
        self.keep(name)
        self.daemon.restart()
        self.assertEqual(self.daemon.job(name)["state"], "CANCELLING")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.cancelled(name)["reason"], KEPT)
        self.check_output(name)

    def test_a_worker_lost_meanwhile_leaves_no_output_and_the_reason_says_so(self):
        name = self.running()
        pid = self.daemon.job(name)["worker_pid"]
        os.kill(pid, signal.SIGSTOP)
        self.keep(name)
        os.kill(pid, signal.SIGKILL)
        reason = self.cancelled(name)["reason"]
        self.assertIn("cancelled without an output: its worker was lost: ", reason)
        self.assertIn("signal 9", reason)
        refused = self.daemon.run("download", name, self.daemon.jobs / "none", code=1)
        self.assertIn("it is CANCELLED", refused.stderr)

    def test_a_job_that_has_made_no_step_is_cancelled(self):
        loading = self.daemon.submit_script("load_ms=3000 " + ENDLESS)
        self.daemon.wait_state(loading, "RUNNING")
        queued = self.daemon.submit_script("steps=2")
        self.daemon.wait_state(queued, "QUEUED")
        self.assertEqual(self.keep(queued), f"{queued} CANCELLED\n")
        self.assertEqual(self.keep(loading), f"{loading} CANCELLING\n")
        job = self.cancelled(loading)
        self.assertEqual(job["reason"], "cancelled without an output: it had made no step")

    def test_a_paused_job_gets_a_worker_for_its_export(self):
        paused = self.running()
        self.daemon.run("pause", paused)
        step = int(self.daemon.wait_state(paused, "PAUSED")["progress"]["global_step"])
        self.assertEqual(self.keep(paused), f"{paused} QUEUED\n")
        job = self.cancelled(paused)
        self.assertEqual((job["reason"], job["keep"], job["epoch"]), (KEPT, True, 2))
        self.assertLessEqual(int(job["progress"]["global_step"]) - step, 1)
        self.check_output(paused)

    def test_one_that_waits_for_its_export_still_does_after_a_restart(self):
        waits = self.running()
        self.daemon.run("pause", waits)
        self.daemon.wait_state(waits, "PAUSED")
        other = self.daemon.submit_script(ENDLESS)  # Has the device.
        self.daemon.wait_state(other, "RUNNING")
        self.keep(waits)
        self.daemon.restart()
        self.assertEqual(self.daemon.job(waits)["state"], "QUEUED")
        self.daemon.run("cancel", other)
        self.assertEqual(self.cancelled(waits)["reason"], KEPT)
        self.check_output(waits)

    def test_what_has_ended_is_not_cancelled_by_it(self):
        cancelled = self.running()
        self.daemon.run("cancel", cancelled)
        self.assertIn("cannot cancel and keep", self.keep(cancelled, code=1))
        done = self.daemon.submit_script("steps=2")
        self.daemon.wait_state(done, "SUCCEEDED")
        self.assertIn("cannot cancel and keep", self.keep(done, code=1))


if __name__ == "__main__":
    unittest.main()
