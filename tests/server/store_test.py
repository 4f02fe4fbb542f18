"""snugd over its store: what it has lost is told, copies are taken and put back, the queue keeps
its order over a restart, and what users change of jobs that there are stays changed.

What the worker does is said in the job's display_name (tests/server/testing/fake_worker.cc).
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import unittest

from tests.harness.binaries import binary
from tests.harness.daemon import Failed, wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon

ENDLESS = "steps=100000 step_ms=50"


class StoreTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon(settings=ONE_AT_A_TIME)
        self.addCleanup(self.daemon.close)

    def ended(self, script, *changes):
        """A job that has succeeded; its id."""
        name = self.daemon.submit_script(script, *changes)
        self.daemon.wait_state(name, "SUCCEEDED")
        return name

    def submit_typed(self, text):
        """A job file on standard input; the job's id."""
        line = [str(binary("snug")), "--server", f"unix:{self.daemon.socket}", "submit", "-"]
        done = subprocess.run(line, input=text, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def start_once(self, *flags):
        """Starts snugd over the state folder and waits for its end; its code and what it said."""
        command = [binary("snugd"), "--state-dir", self.daemon.state, "--metrics-port", "0"]
        command += ["--socket", self.daemon.socket, "--device", self.daemon.device]
        command += [*self.daemon.flags, *flags]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    def refused(self, words):
        """The daemon does not start, and says why."""
        code, text = self.start_once()
        self.assertEqual(code, 65, text)
        self.assertIn(words, text)

    def test_a_store_that_has_lost_something_is_not_served(self):
        self.ended("steps=1")
        self.daemon.kill()
        wal, database = self.daemon.state / "snug.db-wal", self.daemon.state / "snug.db"
        shutil.move(wal, self.daemon.folder / "wal")
        self.refused("and has")
        shutil.move(database, self.daemon.folder / "database")
        self.refused("is missing or empty, and has held 1 jobs")
        shutil.move(self.daemon.folder / "wal", wal)
        shutil.move(self.daemon.folder / "database", database)
        self.daemon.start()  # Put back, it is whole again.
        self.assertEqual(len(self.daemon.json("list", "--all")["jobs"]), 1)

    def test_a_removed_state_folder_ends_the_daemon_before_it_acknowledges(self):
        self.daemon.state.rename(self.daemon.folder / "away")
        with self.assertRaises(Failed):
            self.daemon.submit_script("steps=1")
        self.assertEqual(self.daemon.process.wait(60), 74)

    def test_a_backup_is_taken_while_serving_and_put_back(self):
        first = self.ended("steps=1")
        copy = self.daemon.folder / "backup.db"
        self.daemon.run("backup", copy)
        self.daemon.run("backup", copy, code=1)  # Nothing is overwritten.
        self.ended("steps=2")
        self.daemon.kill(signal.SIGTERM)
        code, text = self.start_once("--restore", copy)
        self.assertEqual(code, 0, text)
        self.daemon.start()
        self.assertEqual([job["id"] for job in self.daemon.json("list", "--all")["jobs"]], [first])
        self.assertEqual(len(list(self.daemon.state.glob("snug.db.replaced-*[0-9Z]"))), 1)
        self.assertIn("all is well", self.daemon.run("doctor").stdout)

    def test_the_doctor_names_a_damaged_spec(self):
        name = self.ended("steps=1")
        self.assertIn("all is well", self.daemon.run("doctor").stdout)
        self.daemon.kill(signal.SIGTERM)
        with sqlite3.connect(self.daemon.state / "snug.db") as database:
            database.execute("UPDATE jobs SET spec_sha256 = 'x' || spec_sha256")
        database.close()
        self.daemon.start()
        done = self.daemon.run("doctor", code=1)
        self.assertIn(f"spec_sha256: {name}: ", done.stdout)
        refused = self.daemon.run("get", name, code=1)
        self.assertIn("is not the one that was accepted", refused.stderr)

    # As if one more attempt had been promised bytes that the device has not.
    def test_a_start_and_the_doctor_name_bytes_that_there_are_not(self):
        name = self.daemon.submit_script(ENDLESS)
        self.daemon.wait_state(name, "RUNNING")
        self.daemon.kill()
        with sqlite3.connect(self.daemon.state / "snug.db") as database:
            database.execute("UPDATE reservations SET bytes = bytes + (1 << 40)")
        database.close()
        self.daemon.start()
        self.assertIn("promises_within_capacity: cpu:0: ", self.daemon.log.read_text())
        done = self.daemon.run("doctor", code=1)
        self.assertIn("promises_within_capacity: cpu:0: ", done.stdout)

    # Ids sort the other way round than the jobs came; the one of higher priority came last.
    def test_the_queue_keeps_its_order_over_a_kill(self):
        names = [self.daemon.submit_script(ENDLESS)]
        self.daemon.wait_state(names[0], "RUNNING")
        for letter in "zyxwv":
            names.append(self.daemon.submit_script(f"{letter} steps=1"))
        names.append(self.daemon.submit_script("a steps=1", "priority=7"))
        for name in names[1:]:
            self.daemon.wait_state(name, "QUEUED")
        told = self.daemon.job(names[-2])["reason"]
        self.assertIn("5 jobs are ahead of it", told)
        self.daemon.kill()
        for pid in self.daemon.processes():
            os.kill(pid, signal.SIGKILL)
        self.daemon.start()
        self.daemon.run("cancel", names[0])
        jobs = [self.daemon.wait_state(name, "SUCCEEDED") for name in names[1:]]
        jobs.sort(key=lambda job: job["start_time"])
        self.assertEqual([job["id"] for job in jobs], [names[-1], *names[1:-1]])

    # Nothing that the plans came from is there any more until the job runs: they were stored with
    # it. Whoever wanted to read the model again would hold the job, and never place it.
    def test_a_restart_places_a_job_by_its_stored_plans(self):
        busy = self.daemon.submit_script(ENDLESS)
        self.daemon.wait_state(busy, "RUNNING")
        waits = self.daemon.submit_script("steps=200 step_ms=50")
        self.daemon.wait_state(waits, "QUEUED")
        self.daemon.kill()
        (self.daemon.jobs / "model" / "config.json").rename(self.daemon.jobs / "config.json")
        self.daemon.start()
        self.daemon.run("cancel", busy)

        def runs():
            job = self.daemon.job(waits)
            self.assertNotIn("is held", job["reason"])
            self.assertIn(job["state"], ("QUEUED", "STARTING", "RUNNING"), job)
            return job["state"] == "RUNNING"

        wait_for(runs, "it to run")
        (self.daemon.jobs / "config.json").rename(self.daemon.jobs / "model" / "config.json")
        self.assertEqual(self.daemon.wait_state(waits, "SUCCEEDED")["epoch"], 1)

    def test_lists_by_state_label_name_limit_and_order(self):
        red = self.ended("steps=1", "labels.team=red")
        blue = self.ended("steps=2", "labels.team=blue")
        busy = self.daemon.submit_script(ENDLESS, "labels.team=red")

        def listed(*words):
            return [job["id"] for job in self.daemon.json("list", *words)["jobs"]]

        self.assertEqual(listed(), [busy])
        self.assertEqual(listed("--all"), [busy, blue, red])
        self.assertEqual(listed("--all", "--sort", "-created"), [red, blue, busy])
        self.assertEqual(listed("--all", "--limit", 2), [busy, blue])
        self.assertEqual(listed("--state", "succeeded"), [blue, red])
        self.assertEqual(listed("--all", "--label", "team=red"), [busy, red])
        self.assertEqual(listed("--all", "--name", "steps=2"), [blue])
        self.assertEqual(listed("--all", "--sort", "name")[0], red)
        self.assertIn("no such jobs", self.daemon.run("list", "--state", "FAILED").stdout)
        self.daemon.restart()  # Ended ones come from the store, with a new daemon as with the old.
        self.assertEqual(listed("--all"), [busy, blue, red])

    def test_labels_and_priority_change(self):
        busy = self.daemon.submit_script(ENDLESS)
        self.daemon.wait_state(busy, "RUNNING")
        first, second = (self.daemon.submit_script(f"{x} steps=1") for x in "ab")
        for name in (first, second):
            self.daemon.wait_state(name, "QUEUED")
        self.daemon.run("update", second, "priority=5", "labels.owner=ann")
        job = self.daemon.job(second)
        self.assertEqual((job["priority"], job["labels"]), (5, {"owner": "ann"}))
        self.assertEqual(job["spec"]["priority"], 0)  # What was asked for stays.
        self.daemon.run("cancel", busy)
        jobs = [self.daemon.wait_state(name, "SUCCEEDED") for name in (first, second)]
        self.assertLess(jobs[1]["start_time"], jobs[0]["start_time"])
        self.daemon.run("update", first, "labels.owner=bob")
        self.daemon.run("update", second, "labels.owner=")
        self.assertEqual(self.daemon.job(second)["labels"], {})
        done = self.daemon.run("update", first, "priority=1", code=1)
        self.assertIn("it is SUCCEEDED", done.stderr)
        self.daemon.restart()
        self.assertEqual(self.daemon.job(first)["labels"], {"owner": "bob"})

    def test_a_job_runs_again_and_its_spec_submits_again(self):
        name = self.ended("steps=3", "labels.a=b \N{GRINNING FACE}")
        again = self.daemon.run("rerun", name).stdout.strip()
        job = self.daemon.wait_state(again, "SUCCEEDED")
        self.assertEqual(job["parent_job"], name)
        self.assertEqual(job["spec"], self.daemon.job(name)["spec"])
        file = self.daemon.jobs / "again.json"
        spec = self.daemon.job(name)["spec"]
        file.write_text(json.dumps(spec))
        for again in (self.daemon.submit(file), self.submit_typed(json.dumps(spec))):
            job = self.daemon.wait_state(again, "SUCCEEDED")
            self.assertEqual(job["spec"], spec)
        # Its resource name is as good as its id.
        self.assertEqual(self.daemon.job(job["name"])["id"], job["id"])

    def test_a_deleted_job_is_gone_with_its_files(self):
        busy = self.daemon.submit_script(ENDLESS)
        self.daemon.run("delete", busy, code=1)
        self.daemon.run("cancel", busy)
        self.daemon.wait_state(busy, "CANCELLED")
        name = self.ended("steps=1")
        self.assertTrue((self.daemon.state / "jobs" / name).is_dir())
        self.daemon.run("delete", name, busy)
        self.assertIn("JOB_NOT_FOUND", self.daemon.run("get", name, "-o", "json", code=1).stderr)
        self.assertFalse((self.daemon.state / "jobs" / name).exists())
        wait_for(lambda: not list((self.daemon.state / "trash").iterdir()), "the trash to be empty")
        self.daemon.restart()
        self.assertEqual(self.daemon.json("list", "--all")["jobs"], [])
        self.assertIn("all is well", self.daemon.run("doctor").stdout)


if __name__ == "__main__":
    unittest.main()
