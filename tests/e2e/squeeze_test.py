"""A job that is squeezed and relaxed while it trains ends with the bytes that it reaches
undisturbed, through kills of the daemon; and its worker holds no more than it is promised."""

import json
import unittest

from tests.fault import runs
from tests.harness.daemon import ENDED, Daemon, wait_for
from tests.harness.long_set import in_the_long_set

STEPS = 300
MARGIN = 1.05
FREE = "memory.stash={}"  # Nothing is pinned.
# One thread, as many as undisturbed: nothing rounds differently.
SETTINGS = "devices:\n- {name: cpu:0, capacity: 4GiB, threads_per_job: 1}\n"


class SqueezeTest(unittest.TestCase):
    def setUp(self):
        self.random = runs.seeded_random()
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.restart_with(SETTINGS)

    def change(self, name, count, *words):
        """Gives an order, one time in two with a kill of the daemon behind it; the job as it has
        obeyed, or has ended before that."""
        done = self.daemon.run(*words, "--output", "json", code=None)
        if done.returncode != 0 or not json.loads(done.stdout)["plan_changes"].get("pending"):
            return self.daemon.job(name)
        if self.random.random() < 0.5:
            self.daemon.restart()

        def obeyed():
            job = self.daemon.job(name)
            return job if job["plan_changes"]["count"] >= count or job["state"] in ENDED else None

        return wait_for(obeyed, f"{words} to be obeyed")

    def same_bits(self, job):
        """Bytes within which the fastest of the job's plans has no loop over rows, by more than the
        rates of two lives of a daemon differ: sums of rows in parts round differently. Of the plans
        that an order takes one of; for a budget `snug plan` finds others."""
        plans = self.daemon.json("plan", *job)["plans"]

        def fastest_within(size, loops):
            fits = (plan for plan in plans if int(plan["peak_bytes"]) <= size)
            seconds = (plan["step_seconds"] for plan in fits if ("chunk" in plan["kinds"]) == loops)
            return min(seconds, default=float("inf"))

        sizes = sorted({int(plan["peak_bytes"]) for plan in plans})[:-1]
        return [s for s in sizes if fastest_within(s, False) * MARGIN < fastest_within(s, True)]

    def check(self, job):
        undisturbed = runs.Undisturbed(self.daemon, job, STEPS)
        sizes = self.same_bits(job)
        self.assertGreater(len(sizes), 2)
        name = self.daemon.submit(*job)
        self.daemon.wait_step(name, 1)
        count, taken = 0, set()
        while self.daemon.job(name)["state"] not in ENDED:
            for words in (["squeeze", name, self.random.choice(sizes)], ["relax", name]):
                now = self.change(name, count + 1, *words)
                count = now["plan_changes"]["count"]
                taken.add(now["memory"]["plan"])
                measured = int(now["memory"]["measured_peak_bytes"])
                self.assertLessEqual(measured, int(now["memory"]["budget_bytes"]))
        # Rates may have changed meanwhile, on a busy machine, and with them what is fastest.
        loops = sorted(plan for plan in taken if "chunk" in plan)
        with self.subTest(loops=loops):
            changes = undisturbed.check(self, self.daemon, name, 1, bits=not loops)["plan_changes"]
        self.assertGreaterEqual(changes["count"], 2)  # On a busy machine no more.
        for each in changes["changes"]:
            self.assertLessEqual(int(each["measured_bytes"]), int(each["bytes"]))
            self.assertNotEqual(each["from"], each["to"])

    @in_the_long_set
    def test_a_full_job(self):
        self.check((*runs.full_job(self.daemon.folder / "full", STEPS), FREE))

    def test_a_lora_job_with_dropout_and_evaluations(self):
        self.check(runs.lora_job(self.daemon.folder / "lora", STEPS, "bf16"))


if __name__ == "__main__":
    unittest.main()
