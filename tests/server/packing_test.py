"""Several jobs on one device: what is promised fits, workers outlive the daemon, threads are
divided. The worker trains nothing (tests/server/testing/fake_worker.cc).
"""

import os
import signal
import unittest

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon

LONG = "steps=100000 step_ms=50"
# What is reserved is then each job's own.
SIZE = ("training.per_device_train_batch_size=4", "sharing=none")
THREADS = len(os.sched_getaffinity(0))


class PackingTest(unittest.TestCase):
    """Devices are given in units of what one of the jobs needs at least."""

    def daemon_for(self, jobs, settings=""):
        """A daemon whose device holds so many jobs; a part of one is left over."""
        with_room = FakeDaemon()
        plans = with_room.json("plan", with_room.job_file(), *SIZE)["plans"]
        with_room.close()
        self.least = min(int(plan["peak_bytes"]) for plan in plans)
        self.most = max(int(plan["peak_bytes"]) for plan in plans)
        self.capacity = int((jobs + 0.5) * self.most)
        self.daemon = FakeDaemon(f"cpu:0={self.capacity}", settings)
        self.addCleanup(self.daemon.close)
        return self.daemon

    def submit(self, script, *changes):
        return self.daemon.submit_script(script, *SIZE, *changes)

    def reserved(self):
        """Bytes promised on the device, which are never more than it has."""
        (device,) = self.daemon.json("devices")["devices"]
        self.assertLessEqual(int(device["reserved_bytes"]), self.capacity)
        return int(device["reserved_bytes"])

    def running(self, names):
        """The jobs once all of them have taken a step."""
        return [self.daemon.wait_step(name, 1) for name in names]

    def test_as_many_jobs_run_at_once_as_fit(self):
        self.daemon_for(3)
        names = [self.submit(LONG) for _ in range(3)]
        jobs = self.running(names)
        self.assertEqual(len(self.daemon.processes("fake-worker")), 3)
        budgets = {job["id"]: int(job["memory"]["budget_bytes"]) for job in jobs}
        self.assertEqual(self.reserved(), sum(budgets.values()))
        (device,) = self.daemon.json("devices")["devices"]
        promised = {each["job"]: int(each["reserved_bytes"]) for each in device["reservations"]}
        self.assertEqual(promised, budgets)
        while self.capacity - self.reserved() >= self.least:  # A smaller plan fits what is left.
            names.append(self.submit(LONG))
            self.running(names)
        waits = self.submit("steps=3", "priority=-10")  # For which nobody is squeezed.
        wait_for(lambda: "waits for cpu:0: it needs" in self.daemon.job(waits)["reason"], "why")
        self.assertRegex(self.daemon.job(waits)["reason"], r"are free beside \d+ jobs$")
        self.daemon.run("cancel", names[1])
        self.daemon.wait_state(waits, "SUCCEEDED")
        for name in names[2:]:
            self.assertEqual(self.daemon.job(name)["state"], "RUNNING")

    def test_all_workers_are_adopted_with_their_bytes(self):
        self.daemon_for(3)
        names = [self.submit(LONG) for _ in range(3)]
        before = self.running(names)
        promised = self.reserved()
        for _ in range(3):
            steps = [self.daemon.steps(name)[-1] for name in names]
            self.daemon.restart()
            self.assertEqual(self.reserved(), promised)
            after = [self.daemon.wait_heard(*each) for each in zip(names, steps)]
            for old, new in zip(before, after):
                self.assertEqual((new["epoch"], new["worker_pid"]), (1, old["worker_pid"]))
        self.daemon.run("cancel", *names)
        for name in names:
            self.daemon.wait_state(name, "CANCELLED")
        self.assertEqual(self.reserved(), 0)

    # One is killed and comes back while others wait for its bytes: nothing is promised twice.
    def test_bytes_of_a_killed_worker_are_promised_once(self):
        self.daemon_for(2)
        names = [self.submit("steps=100 step_ms=20") for _ in range(6)]
        killed = 0
        while not all(self.daemon.job(name)["state"] == "SUCCEEDED" for name in names):
            self.reserved()
            workers = self.daemon.processes("fake-worker")
            if workers and killed < 4:
                os.kill(workers[0], signal.SIGKILL)
                killed += 1
        self.assertEqual(killed, 4)
        self.assertEqual(self.reserved(), 0)

    def test_a_users_budget_binds_beside_others(self):
        self.daemon_for(3)
        names = [self.submit(LONG), self.submit(LONG, f"memory.budget={self.least}")]
        given = [int(job["memory"]["budget_bytes"]) for job in self.running(names)]
        self.assertGreater(given[0], self.least)
        self.assertLessEqual(given[1], self.least)

    def test_the_second_job_has_half_of_the_threads(self):
        self.daemon_for(3)
        first, second = (self.running([self.submit(LONG)])[0] for _ in range(2))
        self.assertEqual(first["plan"]["threads"], THREADS)
        self.assertEqual(second["plan"]["threads"], max(1, THREADS // 2))


if __name__ == "__main__":
    unittest.main()
