"""snugd, its shims and a worker that trains nothing: lives of jobs, attempts and daemons.

What the worker does is said in the job's display_name (tests/server/testing/fake_worker.cc).
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)

    def ended(self, name, state):
        """The job once it has ended, in this state."""
        states = ("SUCCEEDED", "FAILED", "CANCELLED")
        job = self.daemon.wait_state(name, *states)
        self.assertEqual(job["state"], state, job)
        return job

    def test_job_runs_to_its_end_and_is_downloaded(self):
        name = self.daemon.submit_script("steps=8")
        job = self.ended(name, "SUCCEEDED")
        self.assertEqual(int(job["progress"]["global_step"]), 8)
        self.assertEqual(job["memory"]["plan"], "keep")
        target = self.daemon.jobs / "out"
        self.daemon.run("download", name, target)
        for file in ("adapter_config.json", "adapter_model.safetensors", "metrics.jsonl"):
            self.assertTrue((target / file).is_file(), file)
        self.assertIn("fake worker, from step 0", self.daemon.run("logs", name).stdout)

    # F-06
    def test_worker_outlives_killed_daemons_and_is_adopted(self):
        name = self.daemon.submit_script("steps=200 step_ms=50")
        pid = self.daemon.wait_step(name, 1)["worker_pid"]
        for _ in range(3):
            time.sleep(random.uniform(0.0, 0.3))
            self.daemon.kill()
            at_the_kill = self.daemon.steps(name)[-1]
            self.daemon.start()
            job = self.daemon.wait_heard(name, at_the_kill)
            told = (job["state"], job["epoch"], job["worker_pid"])
            self.assertEqual(told, ("RUNNING", 1, pid))
        self.ended(name, "SUCCEEDED")
        self.assertEqual(self.daemon.steps(name), list(range(1, 201)))

    # F-04
    def test_daemon_killed_right_after_submit_starts_one_worker(self):
        name = self.daemon.submit_script("steps=20 step_ms=50")
        wait_for(lambda: (self.daemon.attempt(name) / "assignment.binpb").is_file(), "a launch")
        self.daemon.restart()
        job = self.ended(name, "SUCCEEDED")
        self.assertLessEqual(job["epoch"], 2)
        self.assertEqual(self.daemon.steps(name, job["epoch"]), list(range(1, 21)))
        self.assertEqual(self.daemon.processes("fake-worker"), [])

    def test_worker_that_finishes_while_the_daemon_is_down_is_not_lost(self):
        name = self.daemon.submit_script("steps=40 step_ms=50")
        self.daemon.wait_step(name, 1)
        self.daemon.kill()
        wait_for((self.daemon.attempt(name) / "exit.json").is_file, "the worker to finish")
        self.daemon.start()
        self.assertEqual(self.ended(name, "SUCCEEDED")["epoch"], 1)

    # The daemon first hears of a worker that is at step 4 already: no step is ever shown with
    # another step's loss (the fake's is 4 / step).
    def test_steps_are_never_shown_with_another_loss(self):
        name = self.daemon.submit_script("steps=30 step_ms=50 hello_at=4")
        line = [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snug"), "--server"]
        line += [f"unix:{self.daemon.socket}", "watch", name, "--output", "json"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as watch:
            self.daemon.wait_step(name, 10)
            self.daemon.restart()
            self.ended(name, "SUCCEEDED")
            lines = watch.communicate(timeout=30)[0].splitlines()
        progress = [json.loads(line)["progress"] for line in lines]
        self.assertEqual(int(progress[-1]["global_step"]), 30)
        for at in progress:
            step = int(at["global_step"])
            self.assertAlmostEqual(at["loss"], 4 / step if step else 0, msg=at)

    # F-01
    def test_killed_worker_goes_on_from_its_checkpoint(self):
        name = self.daemon.submit_script("steps=20 crash_at=13 only_epoch=1")
        job = self.ended(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], 2)
        self.assertEqual(int(job["progress"]["resumed_from_step"]), 10)
        self.assertEqual(self.daemon.steps(name, 2), list(range(1, 21)))

    # F-24
    def test_damaged_checkpoint_is_passed_over(self):
        name = self.daemon.submit_script("steps=40 step_ms=50")
        self.daemon.wait_step(name, 12)
        pid = self.daemon.job(name)["worker_pid"]
        os.kill(pid, signal.SIGSTOP)
        checkpoints = self.daemon.state / "jobs" / name / "checkpoints"
        newest = sorted(checkpoints.glob("step-*.e1"))[-1]
        (newest / "weights").write_text("something else")
        os.kill(pid, signal.SIGKILL)
        job = self.ended(name, "SUCCEEDED")
        self.assertEqual(int(job["progress"]["resumed_from_step"]), int(newest.name[5:11]) - 5)

    def test_killed_shim_takes_its_worker_with_it(self):
        name = self.daemon.submit_script("steps=40 step_ms=50")
        first = self.daemon.wait_step(name, 6)["worker_pid"]
        (shim,) = self.daemon.processes("snug-shim")
        os.kill(shim, signal.SIGKILL)
        job = self.ended(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], 2)
        self.assertNotIn(first, self.daemon.processes())
        self.assertEqual(self.daemon.steps(name, 2), list(range(1, 41)))

    def test_jobs_own_failure_is_not_tried_again(self):
        job = self.ended(self.daemon.submit_script("steps=9 nan_at=4"), "FAILED")
        self.assertEqual(job["epoch"], 1)
        self.assertEqual(job["error"]["reason"], "NON_FINITE")
        self.assertIn("step 4", job["error"]["message"])

    # F-28
    def test_out_of_memory_is_planned_again_with_more_room(self):
        name = self.daemon.submit_script("steps=9 oom_at=4 only_epoch=1")
        job = self.ended(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], 2)
        memory = job["memory"]
        self.assertGreater(int(memory["budget_bytes"]), int(memory["predicted_peak_bytes"]))

    # F-28
    def test_third_out_of_memory_is_the_last(self):
        job = self.ended(self.daemon.submit_script("steps=9 oom_at=4"), "FAILED")
        self.assertEqual(job["epoch"], 3)
        self.assertEqual(job["error"]["reason"], "OUT_OF_MEMORY")

    # F-39
    def test_end_without_output_is_a_failure(self):
        job = self.ended(self.daemon.submit_script("steps=3 no_output=1"), "FAILED")
        self.assertEqual(job["error"]["reason"], "NO_ARTIFACT")

    # F-37
    def test_nonsense_on_the_link_costs_the_connection_only(self):
        name = self.daemon.submit_script("steps=20 garbage=5")
        self.assertEqual(self.ended(name, "SUCCEEDED")["epoch"], 1)
        self.assertIn("snug_link_errors_total 1", self.daemon.metrics())

    def test_cancel_survives_a_restart_and_a_deaf_worker(self):
        name = self.daemon.submit_script("steps=10000 step_ms=50 deaf=1")
        self.daemon.wait_step(name, 1)
        self.daemon.run("cancel", name)
        self.daemon.restart()
        self.ended(name, "CANCELLED")
        self.assertEqual(self.daemon.processes("fake-worker"), [])

    def test_job_too_large_is_refused_with_its_bytes(self):
        with self.assertRaises(Exception) as refused:
            self.daemon.submit_script("steps=1", "memory.budget=1MiB")
        text = refused.exception.done.stderr + refused.exception.done.stdout
        self.assertIn("PLAN_INFEASIBLE", text)
        self.assertRegex(text, r"\d{7} bytes")

    # F-12
    def test_second_daemon_on_the_same_state_is_refused(self):
        command = [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snugd"), *self.daemon.flags]
        command += ["--state-dir", self.daemon.state, "--socket", self.daemon.folder / "t"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertIn(f"pid {self.daemon.process.pid}", done.stderr)
        self.assertEqual(self.daemon.run("list").returncode, 0)

    # F-68
    def test_sigterm_ends_the_daemon_and_not_the_worker(self):
        name = self.daemon.submit_script("steps=60 step_ms=50")
        pid = self.daemon.wait_step(name, 1)["worker_pid"]
        line = [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snug"), "--server"]
        line += [f"unix:{self.daemon.socket}", "watch", name, "--output", "json"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watch:
            watch.stdout.readline()
            self.assertEqual(self.daemon.kill(signal.SIGTERM), 0)
            self.assertFalse(self.daemon.socket.exists())
            self.assertIn(pid, self.daemon.processes("fake-worker"))
            self.daemon.start()
            self.assertEqual(self.ended(name, "SUCCEEDED")["epoch"], 1)
            watch.kill()


class OneAtATimeTest(unittest.TestCase):
    """A device that runs one job at a time, so that others wait."""

    def setUp(self):
        self.daemon = FakeDaemon(settings=ONE_AT_A_TIME)
        self.addCleanup(self.daemon.close)

    def ended(self, name, state):
        job = self.daemon.wait_state(name, "SUCCEEDED", "FAILED", "CANCELLED")
        self.assertEqual(job["state"], state, job)
        return job

    def test_queue_by_priority_and_the_reason_to_wait(self):
        first = self.daemon.submit_script("steps=60 step_ms=50")
        self.daemon.wait_step(first, 1)
        low = self.daemon.submit_script("steps=2")
        high = self.daemon.submit_script("steps=2", "priority=5")
        self.daemon.wait_state(high, "QUEUED")
        job = self.daemon.wait_state(low, "QUEUED")
        wait_for(lambda: "cpu:0" in self.daemon.job(low)["reason"], f"a reason: {job['reason']}")
        self.daemon.run("cancel", first)
        started = [self.ended(name, "SUCCEEDED")["start_time"] for name in (high, low)]
        self.assertLess(started[0], started[1])

    def test_cancel_in_every_state(self):
        running = self.daemon.submit_script("steps=1000 step_ms=50")
        queued = self.daemon.submit_script("steps=2")
        self.daemon.wait_step(running, 1)
        self.daemon.wait_state(queued, "QUEUED")
        for name in (queued, running):
            self.daemon.run("cancel", name)
            self.ended(name, "CANCELLED")
        self.daemon.run("cancel", running)
        self.assertEqual(self.daemon.processes("fake-worker"), [])
        done = self.daemon.submit_script("steps=1")
        self.ended(done, "SUCCEEDED")
        self.assertNotEqual(self.daemon.run("cancel", done, code=None).returncode, 0)


if __name__ == "__main__":
    unittest.main()
