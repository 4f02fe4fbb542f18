"""Plans that running jobs change: on an operator's word, for a job that waits, and back when it has
gone; through kills of daemon and workers between every two messages. At no look is more promised
than the device has, or less for a job than the larger of its plans. The worker trains nothing
(tests/server/testing/fake_worker.cc).
"""

import os
import signal
import unittest

from tests.harness.daemon import Failed, wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon

LONG = "steps=100000 step_ms=30"
# What is reserved is then each job's own.
SIZE = ("training.per_device_train_batch_size=8", "sharing=none")
SLOW_ORDER = f"{LONG} order_ms=1500"
ONE_THREAD = "devices:\n- {{name: cpu:0, capacity: {}, threads_per_job: 1}}\n"


class SqueezeTest(unittest.TestCase):
    """Devices are given in units of the plans of the one job that all submit."""

    @classmethod
    def setUpClass(cls):
        with_room = FakeDaemon(device="", settings=ONE_THREAD.format("1GiB"))
        done = with_room.submit_script("steps=1", *SIZE)  # Prepared: its lengths are known.
        with_room.wait_state(done, "SUCCEEDED")
        answer = with_room.json("plan", with_room.job_file(), *SIZE)
        with_room.close()
        sizes = [int(plan["peak_bytes"]) for plan in answer["plans"]]
        cls.most, cls.least = sizes[answer["chosen"]], min(sizes)

    def start(self, capacity, settings=""):
        self.capacity = capacity
        self.daemon = FakeDaemon(device="", settings=settings + ONE_THREAD.format(capacity))
        self.addCleanup(self.daemon.close)

    def submit(self, script, *changes):
        return self.daemon.submit_script(script, *SIZE, *changes)

    def running(self, script, *changes):
        """The id of a new job that has taken steps."""
        name = self.submit(script, *changes)
        self.daemon.wait_step(name, 2)
        return name

    def promised(self):
        """Bytes promised to each job; together never more than the device has."""
        (device,) = self.daemon.json("devices")["devices"]
        promised = {each["job"]: int(each["reserved_bytes"]) for each in device["reservations"]}
        self.assertLessEqual(int(device["reserved_bytes"]), self.capacity)
        self.assertEqual(int(device["reserved_bytes"]), sum(promised.values()))
        return promised

    def reserved(self, name=None):
        """Bytes promised to the job, or to all."""
        promised = self.promised()
        return promised[name] if name else sum(promised.values())

    def keeps_its_bytes(self, name):
        """Whether the job's first worker runs on; it has all its bytes then. The job is asked after
        its device, since a worker may end between the two questions."""
        promised = self.promised().get(name)
        job = self.daemon.job(name)
        if job["epoch"] != 1 or job["state"] != "RUNNING":
            return False
        self.assertEqual(promised, self.most)
        return True

    def settled(self, name, count):
        """The job as it has made so many changes, and is making none."""

        def done():
            self.reserved()
            job = self.daemon.job(name)
            changes = job["plan_changes"]
            return job if changes["count"] == count and not changes.get("pending") else None

        return wait_for(done, f"{name} to change its plan {count} times")

    def pending(self, name):
        """The order that the job has not answered."""
        return wait_for(lambda: self.daemon.job(name)["plan_changes"].get("pending"), "an order")

    def test_an_operator_squeezes_and_relaxes(self):
        self.start(3 * self.most)
        name = self.running(LONG)
        self.assertEqual(self.reserved(name), self.most)
        self.daemon.run("squeeze", name, self.least)
        squeezed = self.settled(name, 1)
        self.assertEqual(self.reserved(name), self.least)
        self.assertEqual(int(squeezed["memory"]["budget_bytes"]), self.least)
        self.assertEqual(squeezed["plan"]["name"], squeezed["memory"]["plan"])
        self.daemon.run("relax", name)
        relaxed = self.settled(name, 2)
        self.assertEqual(self.reserved(name), self.most)
        self.assertEqual(relaxed["epoch"], 1)
        first, second = relaxed["plan_changes"]["changes"]
        self.assertEqual(first["to"], second["from"])
        self.assertEqual(first["reason"], "squeezed by an operator")
        self.assertEqual(int(first["bytes"]), self.least)
        self.assertEqual(second["to"], relaxed["plan"]["name"])
        self.assertEqual(second["reason"], "relaxed by an operator")
        self.assertGreater(int(second["global_step"]), int(first["global_step"]))

    # It says what would do. A job that has less already stays as it is.
    def test_a_squeeze_that_no_plan_fits_names_the_smallest(self):
        self.start(3 * self.most)
        name = self.running(LONG)
        with self.assertRaises(Failed) as failed:
            self.daemon.run("squeeze", name, self.least - 1)
        self.assertIn(f"({self.least} bytes)", failed.exception.done.stderr)
        self.daemon.run("squeeze", name, self.most)
        self.assertEqual(self.daemon.job(name)["plan_changes"]["count"], 0)
        waiting = self.submit(LONG, "priority=-1000")
        self.daemon.run("cancel", waiting)
        with self.assertRaises(Failed) as failed:
            self.daemon.run("squeeze", waiting, self.least)
        self.assertRegex(failed.exception.done.stderr, "cannot squeeze job")

    # The first job has all that it likes, and the rest is too little for the second one.
    def test_a_neighbour_makes_room_and_gets_it_back(self):
        self.start(self.most + self.least - 1)
        first = self.running(LONG)
        second = self.running(LONG)
        squeezed = self.settled(first, 1)
        change = squeezed["plan_changes"]["changes"][0]
        self.assertEqual(change["reason"], f"makes room for {second}")
        self.assertLess(self.reserved(first), self.most)
        self.assertEqual(len(self.daemon.processes("fake-worker")), 2)
        self.daemon.run("cancel", second)
        self.daemon.wait_state(second, "CANCELLED")
        relaxed = self.settled(first, 2)
        self.assertEqual(relaxed["plan_changes"]["changes"][1]["reason"], "its device has room")
        self.assertEqual(self.reserved(first), self.most)

    # Room that nobody waits for is no reason to undo what an operator wants.
    def test_an_operators_squeeze_stays(self):
        self.start(self.most + self.least)
        first = self.running(LONG)
        self.daemon.run("squeeze", first, self.least)
        self.settled(first, 1)
        second = self.running(LONG)
        self.daemon.run("cancel", second)
        self.daemon.wait_state(second, "CANCELLED")
        third = self.running("steps=5")
        self.daemon.wait_state(third, "SUCCEEDED")
        self.assertEqual(self.reserved(), self.least)

    def test_nobody_is_squeezed_for_a_job_of_low_priority(self):
        self.start(self.most + self.least - 1)
        first = self.running(LONG, "priority=10")
        second = self.submit(LONG)
        wait_for(lambda: "waits for cpu:0" in self.daemon.job(second)["reason"], "why it waits")
        self.daemon.wait_step(first, int(self.daemon.job(first)["progress"]["global_step"]) + 10)
        self.assertEqual(self.daemon.job(first)["plan_changes"]["orders"], "0")
        self.assertEqual(self.daemon.job(second)["state"], "QUEUED")

    def test_nobody_is_squeezed_where_no_more_jobs_may_run(self):
        self.start(self.most + self.least - 1, ONE_AT_A_TIME)
        first = self.running(LONG)
        self.submit(LONG, "priority=10")
        self.daemon.wait_step(first, int(self.daemon.job(first)["progress"]["global_step"]) + 10)
        self.assertEqual(self.daemon.job(first)["plan_changes"]["orders"], "0")

    # Killed while the worker has not answered: what is promised is the larger plan, before and
    # after; the order is given again, and obeyed once.
    def test_a_daemon_killed_before_the_answer(self):
        self.start(3 * self.most)
        name = self.running(SLOW_ORDER)
        for count, words in enumerate((("squeeze", name, self.least), ("relax", name)), start=1):
            self.daemon.run(*words)
            self.pending(name)
            self.assertEqual(self.reserved(name), self.most)
            self.daemon.restart()
            self.assertEqual(self.reserved(name), self.most)
            job = self.settled(name, count)
            self.assertEqual(job["epoch"], 1)
            self.assertEqual(self.reserved(name), self.least if count == 1 else self.most)

    # The daemon is stopped while the order is on its way: the worker has answered, and says so
    # again with Hello to the next one.
    def test_an_answer_that_nobody_heard(self):
        self.start(3 * self.most)
        name = self.running(SLOW_ORDER)
        self.daemon.run("squeeze", name, self.least)
        self.pending(name)
        self.daemon.kill()
        step = self.daemon.steps(name)[-1]
        wait_for(lambda: self.daemon.steps(name)[-1] > step + 3, "steps after the change")
        self.daemon.start()
        self.assertEqual(self.settled(name, 1)["epoch"], 1)
        self.assertEqual(self.reserved(name), self.least)
        self.daemon.restart()  # What is in force is stored: nothing is said about it again.
        self.assertEqual(self.reserved(name), self.least)
        self.assertEqual(self.daemon.wait_heard(name, 0)["plan_changes"]["count"], 1)

    # Its bytes are promised until it is gone, then the job starts anew under the plan it likes.
    def test_a_worker_killed_before_its_answer(self):
        self.start(3 * self.most)
        name = self.running(f"{LONG} order_dies=1 order_ms=500 only_epoch=1")
        self.daemon.run("squeeze", name, self.least)
        while self.keeps_its_bytes(name):
            pass
        job = wait_for(lambda: self.second_attempt(name), "a second attempt")
        self.assertEqual(job["plan_changes"]["count"], 0)
        self.assertFalse(job["plan_changes"].get("pending"))
        self.assertEqual(self.reserved(name), self.most)

    def second_attempt(self, name):
        job = self.daemon.job(name)
        return job if job["epoch"] == 2 and job["state"] == "RUNNING" else None

    def test_a_worker_that_refuses_keeps_its_plan(self):
        self.start(3 * self.most)
        name = self.running(f"{LONG} order_refused=1")
        self.daemon.run("squeeze", name, self.least)
        self.settled(name, 0)
        self.assertEqual(self.reserved(name), self.most)
        with self.assertRaises(Failed) as failed:
            self.daemon.run("squeeze", name, self.least)
        self.assertIn("its worker keeps its plan", failed.exception.done.stderr)

    # It holds a byte more than it may: nothing of its bytes is given away while it lives.
    def test_a_worker_that_holds_too_much_is_ended(self):
        self.start(3 * self.most)
        name = self.running(f"{LONG} order_lies=1")
        self.daemon.run("squeeze", name, self.least)
        while self.keeps_its_bytes(name):
            pass
        wait_for(lambda: self.daemon.job(name)["epoch"] == 2, "a second attempt")

    # Eight jobs on room for a few, with kills of daemon and workers at any moment.
    def test_kills_at_any_moment(self):
        self.start(self.most + 2 * self.least)
        names = [self.submit(f"steps={60 + 20 * i} step_ms=20") for i in range(8)]
        kills, changes = 0, {}
        while not all(self.daemon.job(name)["state"] == "SUCCEEDED" for name in names):
            self.reserved()
            jobs = self.daemon.json("list", "--all")["jobs"]
            self.assertNotIn("FAILED", [job["state"] for job in jobs])
            for name in names:
                changes[name] = self.daemon.job(name)["plan_changes"]["count"]
            if kills < 6 and any(self.daemon.job(n)["plan_changes"].get("pending") for n in names):
                kills += 1
                if kills % 2:
                    self.daemon.restart()
                else:
                    os.kill(self.daemon.processes("fake-worker")[0], signal.SIGKILL)
        self.assertEqual(self.reserved(), 0)
        self.assertGreater(sum(changes.values()), 0)


if __name__ == "__main__":
    unittest.main()
