"""The command line: list, get, watch, logs, cancel, plan, and what they print for scripts."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from tests.harness import jobs
from tests.harness.binaries import binary
from tests.harness.daemon import Daemon, wait_for

LONG = "training.max_steps=100000"


class CommandsTest(unittest.TestCase):
    """One daemon, one job folder; every test submits what it needs and leaves nothing running."""

    @classmethod
    def setUpClass(cls):
        settings = pathlib.Path(tempfile.mkdtemp(prefix="snug-"))
        cls.addClassCleanup(shutil.rmtree, settings)
        (settings / "snugd.yaml").write_text("max_jobs_per_device: 1\n")  # So that others wait.
        cls.daemon = Daemon(flags=("--config", settings / "snugd.yaml"))
        cls.addClassCleanup(cls.daemon.close)
        cls.file = jobs.full_folder(cls.daemon.folder / "full")

    def listed(self, *flags):
        """Jobs by id, as `snug list` gives them."""
        return {job["id"]: job for job in self.daemon.json("list", *flags)["jobs"]}

    def cancel(self, *names):
        """Cancels jobs and waits until they have ended."""
        for name in names:
            self.daemon.run("cancel", name)
        for name in names:
            self.daemon.wait_state(name, "CANCELLED")

    def test_a_job_always_shows_its_fields(self):
        name = self.daemon.submit(self.file, LONG)
        job = self.daemon.job(name)
        self.cancel(name)
        self.assertEqual(job["error"], {})
        for field in ("id", "display_name", "state"):
            self.assertTrue(job[field], field)
        self.assertLessEqual({"global_step", "max_steps", "loss"}, set(job["progress"]))
        memory = {"budget_bytes", "predicted_peak_bytes", "measured_peak_bytes", "plan"}
        self.assertLessEqual(memory, set(job["memory"]))

    def test_a_running_job_is_cancelled_with_its_processes(self):
        name = self.daemon.submit(self.file, LONG)
        self.daemon.wait_step(name, 1)
        self.assertTrue(self.daemon.processes("snug-worker"))
        self.daemon.run("cancel", name)
        self.daemon.run("watch", name, code=2)
        self.assertEqual(self.daemon.job(name)["state"], "CANCELLED")
        wait_for(lambda: not self.daemon.processes("snug-worker"), "the worker to end")

    def test_a_job_that_waits_says_why(self):
        first = self.daemon.submit(self.file, LONG)
        self.daemon.wait_step(first, 1)
        second = self.daemon.submit(self.file, LONG)
        self.daemon.wait_state(second, "QUEUED")
        wait_for(lambda: self.daemon.job(second).get("reason"), "the reason why it waits")
        self.cancel(second, first)

    def test_list_shows_live_jobs_and_with_all_every_job(self):
        done = self.daemon.submit(self.file, "training.max_steps=2")
        self.daemon.wait_state(done, "SUCCEEDED")
        live = self.daemon.submit(self.file, LONG)
        self.assertIn(live, self.listed())
        self.assertNotIn(done, self.listed())
        self.assertLessEqual({done, live}, set(self.listed("--all")))
        self.assertIn(live, self.daemon.run("list").stdout)
        self.cancel(live)

    def test_the_beginning_of_an_id_is_enough(self):
        name = self.daemon.submit(self.file, "training.max_steps=2")
        self.daemon.wait_state(name, "SUCCEEDED")
        others = [other for other in self.listed("--all") if other != name]
        length = next(n for n in range(1, 65) if not any(o[:n] == name[:n] for o in others))
        self.assertEqual(self.daemon.job(name[:length])["id"], name)

    def test_a_job_that_does_not_exist_is_named(self):
        for command in (("get",), ("watch",), ("cancel",), ("logs",)):
            done = self.daemon.run(*command, "no-such-job", code=None)
            self.assertNotEqual(done.returncode, 0, command)
            self.assertIn("no-such-job", done.stderr, command)

    def test_watch_prints_every_change_for_scripts_and_logs_are_the_workers(self):
        name = self.daemon.submit(self.file, "training.max_steps=5")
        lines = self.daemon.run("watch", name, "--output", "json").stdout.splitlines()
        self.assertEqual(json.loads(lines[-1])["state"], "SUCCEEDED")
        worker_log = (self.daemon.attempt(name) / "worker.log").read_text()
        self.assertTrue(worker_log)
        self.assertEqual(self.daemon.run("logs", name).stdout.strip(), worker_log.strip())

    def test_plan_lists_plans_fastest_first_and_makes_no_job(self):
        before = set(self.listed("--all"))
        answer = self.daemon.json("plan", self.file, "memory.stash={}")
        peaks = [int(plan["peak_bytes"]) for plan in answer["plans"]]
        names = [plan["name"] for plan in answer["plans"]]
        self.assertLessEqual({"keep", "recompute 1 of 2", "recompute 2 of 2"}, set(names))
        work = [plan["relative_work"] for plan in answer["plans"]]
        self.assertEqual(work, sorted(work))
        self.assertEqual(work[0], 1.0)
        chosen = answer["plans"][int(answer["chosen"])]
        for name in ("context", "weights", "gradients", "optimizer", "stash"):
            self.assertGreater(int(chosen["memory"][f"{name}_bytes"]), 0, name)
        self.assertLessEqual(max(peaks), int(answer["device_capacity_bytes"]))
        self.assertIn(answer["length_source"], ("max_seq_length", "prepared dataset"))
        self.assertEqual(set(self.listed("--all")), before)
        table = self.daemon.run("plan", self.file, "memory.stash={}").stdout
        self.assertIn("recompute ", table)

    def test_plan_lists_the_sites_with_their_bytes(self):
        answer = self.daemon.json("plan", self.file, "--sites")
        sites = {site["name"]: site for site in answer["sites"]}
        self.assertTrue(all(name.startswith("layers.") for name in sites), sites)
        self.assertTrue(any(name.startswith("layers.1.") for name in sites), sites)
        self.assertTrue(all(int(site["bytes"]) > 0 for site in sites.values()), sites)

    def test_a_wrong_server_says_how_to_start_a_daemon(self):
        line = [str(binary("snug")), "--server", "unix:/nonexistent/snug.sock", "list"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("snugd", done.stderr)
        self.assertIn("/nonexistent/snug.sock", done.stderr)


if __name__ == "__main__":
    unittest.main()
