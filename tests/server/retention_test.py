"""What the daemon removes of ended jobs, and what it keeps for those that refer to them. The worker
trains nothing (tests/server/testing/fake_worker.cc).
"""

import os
import time
import unittest

from tests.harness.daemon import Failed, wait_for
from tests.harness.fake_daemon import FakeDaemon

ENDLESS = "steps=100000 step_ms=50"
EACH_SECOND = "retention: {{{}, sweep_seconds: 1}}\n"


class RetentionTest(unittest.TestCase):
    def keep(self, limits):
        """A daemon that holds ended jobs to these limits, each second."""
        self.daemon = FakeDaemon(settings=EACH_SECOND.format(limits))
        self.addCleanup(self.daemon.close)

    def ended(self, script="steps=6", *changes):
        """A job that has succeeded; its id."""
        name = self.daemon.submit_script(script, *changes)
        self.daemon.wait_state(name, "SUCCEEDED")
        return name

    def prepared(self, rows, script="steps=2"):
        """A job that is trained with a dataset of so many rows of its own: its id, and the folder
        that the dataset was prepared in."""
        path = self.daemon.jobs / f"rows-{rows}.jsonl"
        path.write_text('{"input_ids": [5, 6, 7], "labels": [5, 6, 7]}\n' * rows)
        folder = self.daemon.state / "datasets"
        before = set(folder.iterdir())
        name = self.daemon.submit_script(script, f"dataset={path}")
        self.daemon.wait_state(name, "RUNNING" if script == ENDLESS else "SUCCEEDED")
        (new,) = set(folder.iterdir()) - before
        return name, new

    def use(self, *folders):
        """Makes the prepared datasets so many hours old, in this order."""
        for folder, hours in folders:
            used = time.time() - hours * 3600
            os.utime(folder, (used, used))

    def jobs(self):
        """Ids of all jobs, newest first."""
        return [job["id"] for job in self.daemon.json("list", "--all")["jobs"]]

    def folder(self, name):
        """All that a job has on the disk."""
        return self.daemon.state / "jobs" / name

    def metric(self, name):
        """The value of a series."""
        lines = self.daemon.metrics().splitlines()
        return float(next(line for line in lines if line.startswith(name + " ")).split()[-1])

    def swept(self):
        """Waits for a whole sweep that began after this."""
        for _ in range(2):
            before = self.metric("snug_retention_swept_timestamp_seconds")
            wait_for(
                lambda was=before: self.metric("snug_retention_swept_timestamp_seconds") > was,
                "a sweep of ended jobs",
            )

    def test_the_newest_jobs_stay_and_of_the_others_nothing(self):
        self.keep("jobs: {count: 2}")
        names = [self.ended() for _ in range(5)]
        self.swept()
        self.assertEqual(self.jobs(), names[:2:-1])
        for name in names[:3]:
            self.assertFalse(self.folder(name).exists())
            with self.assertRaises(Failed):
                self.daemon.job(name)
        self.assertEqual(list((self.daemon.state / "trash").iterdir()), [])
        self.assertEqual(self.metric('snug_retention_removed_total{what="job"}'), 3)
        self.assertGreater(self.metric("snug_retention_removed_bytes_total"), 0)
        self.assertEqual(self.metric('snug_jobs{state="SUCCEEDED"}'), 2)
        self.assertEqual(self.daemon.run("doctor").returncode, 0)
        self.daemon.restart()  # The store and its witness agree.
        self.assertEqual(self.jobs(), names[:2:-1])

    def test_datasets_that_no_job_was_prepared_with_go(self):
        self.keep("datasets: {age: 2h}")
        names, prepared = zip(*(self.prepared(rows) for rows in (3, 4, 5, 6)))
        # The first keeps its job; the second was used just now, the third is too young.
        for name in names[1:]:
            self.daemon.run("delete", name)
        self.use(*zip(prepared, (9, 0, 1.5, 9)))
        self.swept()
        self.assertEqual([path.exists() for path in prepared], [True, True, True, False])
        self.assertEqual(self.metric('snug_retention_removed_total{what="dataset"}'), 1)
        self.assertEqual(self.daemon.run("doctor").returncode, 0)
        again = self.ended("steps=2", f"dataset={self.daemon.jobs / 'rows-6.jsonl'}")
        self.assertTrue(prepared[3].exists())
        self.assertEqual(self.daemon.job(again)["state"], "SUCCEEDED")

    # Of three that no job needs the newest stays beside the oldest of all, which a job trains with.
    # They grow old one by one, the oldest first: no sweep in between finds another one the newest.
    def test_the_newest_datasets_stay_and_those_of_jobs(self):
        self.keep("datasets: {count: 1}")
        _, needed = self.prepared(3, ENDLESS)
        names, (oldest, older, newest) = zip(*(self.prepared(rows) for rows in (4, 5, 6)))
        for name in names:
            self.daemon.run("delete", name)
        self.use((needed, 9), (oldest, 4), (older, 3), (newest, 2))
        self.swept()
        there = [path.exists() for path in (needed, oldest, older, newest)]
        self.assertEqual(there, [True, False, False, True])
        self.assertEqual(self.metric('snug_retention_removed_total{what="dataset"}'), 2)

    # Each is some 400 KB: there is room for one of them, and what a job needs stays all the same.
    def test_datasets_stay_as_far_as_their_bytes_go(self):
        self.keep("datasets: {bytes: 600KiB}")
        names, folders = zip(*(self.prepared(rows) for rows in (10_000, 10_001, 10_002)))
        needed, older, newest = folders
        for name in names[1:]:
            self.daemon.run("delete", name)
        self.use((needed, 9), (older, 3), (newest, 2))
        self.swept()
        there = [path.exists() for path in (needed, older, newest)]
        self.assertEqual(there, [True, False, True])
        self.assertGreater(self.metric("snug_retention_removed_bytes_total"), 300_000)
        self.assertEqual(self.daemon.run("doctor").returncode, 0)

    def test_checkpoints_and_logs_go_and_the_output_stays(self):
        self.keep("checkpoints: {count: 1}, logs: {bytes: 4KiB}")
        first, second = self.ended(), self.ended()
        self.swept()
        self.assertEqual(self.daemon.json("checkpoints", first)["checkpoints"], [])
        self.assertNotEqual(self.daemon.json("checkpoints", second)["checkpoints"], [])
        self.assertEqual(list(self.folder(first).glob("checkpoints*")), [])
        with self.assertRaises(Failed) as refused:
            self.daemon.run("extend", first, "--steps", "3")
        self.assertIn("has no checkpoint to go on from", refused.exception.done.stderr)
        logs = [list(self.folder(name).glob("attempts/*/worker.log")) for name in (first, second)]
        self.assertEqual([len(found) for found in logs], [0, 0])
        self.assertEqual(self.daemon.run("logs", first).stdout, "")
        for name in (first, second):
            target = self.daemon.jobs / f"output-{name}"
            self.daemon.run("download", name, target)
            self.assertTrue((target / "metrics.jsonl").is_file())
        self.assertEqual(self.daemon.run("doctor").returncode, 0)

    def test_an_old_job_goes_and_one_that_runs_does_not(self):
        self.keep("jobs: {age: 2s}")
        running = self.daemon.submit_script(ENDLESS)
        self.daemon.wait_step(running, 6)
        old = self.ended()
        wait_for(lambda: old not in self.jobs(), f"{old} to be removed")
        self.daemon.run("pause", running)
        self.daemon.wait_state(running, "PAUSED")
        time.sleep(2.5)
        self.swept()
        self.assertEqual(self.jobs(), [running])
        self.assertNotEqual(self.daemon.json("checkpoints", running)["checkpoints"], [])

    def test_what_an_extension_or_a_rerun_came_from_stays_until_that_has_gone(self):
        self.keep("jobs: {count: 1}, checkpoints: {count: 1}, logs: {count: 1}")
        parent = self.ended("step_ms=20", "training.max_steps=6")
        child = self.daemon.json("extend", parent, "--steps", "100000")["id"]
        self.daemon.wait_step(child, 12)
        other = self.ended()
        again = self.daemon.json("rerun", other)["id"]
        self.daemon.wait_state(again, "SUCCEEDED")
        self.swept()
        self.assertEqual(self.jobs(), [again, other, child, parent])
        self.assertNotEqual(self.daemon.json("checkpoints", parent)["checkpoints"], [])
        self.assertEqual(self.metric("snug_retention_held_jobs"), 2)
        self.daemon.run("cancel", child)
        newest = self.ended()
        wait_for(lambda: self.jobs() == [newest], "all others to be removed")

    def test_files_that_were_sent_go_once_no_job_names_them(self):
        self.keep("files: {count: 1}, jobs: {count: 1}")
        ids = []
        for letter in "abc":
            file = self.daemon.jobs / f"{letter}.jsonl"
            file.write_text((self.daemon.jobs / "train.jsonl").read_text() + "\n")
            ids.append(self.daemon.run("files", "upload", file).stdout.strip())
        named = self.ended("steps=1", f"dataset={ids[0]}")

        def left():
            return {file["id"] for file in self.daemon.json("files", "list")["files"]}

        wait_for(lambda: left() == {ids[0], ids[2]}, f"{ids[1]} to be removed", 60)
        self.swept()
        self.assertEqual(left(), {ids[0], ids[2]})
        self.assertGreaterEqual(self.metric('snug_retention_removed_total{what="file"}'), 1)
        newest = self.ended()  # Which takes the place of the job that named it.
        wait_for(lambda: self.jobs() == [newest], f"{named} to be removed")
        wait_for(lambda: left() == {ids[2]}, f"{ids[0]} to be removed", 60)


if __name__ == "__main__":
    unittest.main()
