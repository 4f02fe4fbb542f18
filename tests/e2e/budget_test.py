"""A budget, not a flag: what was predicted is enough to the byte, and one byte less is not
admitted."""

import json
import re
import unittest

from tests.harness import jobs, models
from tests.harness.binaries import DEVICE
from tests.harness.daemon import ENDED, Daemon, wait_for

# Four layers and rows of up to 400 tokens, so that plans differ by much more than a page.
SHAPE = models.Shape(layers=4, vocabulary=jobs.VOCABULARY, max_positions=512)
FREE = "memory.stash={}"
PINNED = 'memory.stash={"layers.*": recompute, "layers.1.*": keep}'
CHANGES = ("training.max_steps=3", "training.max_seq_length=400")


class BudgetTest(unittest.TestCase):
    """One daemon for budgets of a job; others whose device has the capacity in question."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        folder = cls.daemon.folder / "full"
        cls.file = jobs.full_folder(folder, lengths=range(100, 400, 10), shape=SHAPE)
        # The plan follows the lengths of the prepared dataset, so there must be one.
        cls.finish(cls.daemon, cls.daemon.submit(cls.file, *CHANGES))

    @staticmethod
    def finish(daemon, name):
        """Waits for the job's end, whatever it is."""

        def ended():
            job = daemon.job(name)
            return job if job["state"] in ENDED else None

        return wait_for(ended, "the job to end")

    def plans(self, daemon, stash):
        """The plans of the job, fastest first; those of the prepared dataset."""
        # The exit code says whether one fits; the table is printed either way.
        line = ("plan", self.file, *CHANGES, stash, "--output", "json")
        answer = json.loads(daemon.run(*line, code=None).stdout)
        self.assertEqual(answer["length_source"], "prepared dataset")
        return answer["plans"]

    def chosen(self, budget, *changes):
        """The plan that a job of this budget is given, or None."""
        changes = (*CHANGES, FREE, f"memory.budget={budget}", *changes)
        line = ("plan", self.file, *changes, "--output", "json")
        answer = json.loads(self.daemon.run(*line, code=None).stdout)
        return answer["plans"][answer["chosen"]] if answer["chosen"] >= 0 else None

    def outcome(self, daemon, stash, budget=None):
        """The ended job, or the error text when submit itself refused."""
        changes = (*CHANGES, stash, *([f"memory.budget={budget}"] if budget else []))
        done = daemon.run("submit", self.file, *changes, "--output", "json", code=None)
        if done.returncode:
            return {"state": "REFUSED", "error": done.stdout + done.stderr}
        return self.finish(daemon, json.loads(done.stdout)["id"])

    def assert_ran(self, job, plan):
        """It ran under the cap of this very plan, and took what was predicted to the byte: all of
        it (weights, gradients, optimizer, inputs, arena) is taken before the first step."""
        self.assertEqual(job["state"], "SUCCEEDED", job["error"])
        self.assertEqual(job["memory"]["plan"], plan["name"])
        peak = int(plan["peak_bytes"])
        self.assertEqual(int(job["memory"]["predicted_peak_bytes"]), peak)
        self.assertEqual(int(job["memory"]["measured_peak_bytes"]), peak)

    def assert_refused(self, job, smallest):
        """A typed refusal with the bytes that would be needed."""
        self.assertIn(job["state"], ("REFUSED", "FAILED"))
        text = json.dumps(job["error"])
        self.assertIn("PLAN_INFEASIBLE", text)
        self.assertIn(smallest["peak_bytes"], re.sub(r"(?<=\d)[,_'](?=\d)", "", text))

    def test_pinned_plan_runs_in_its_predicted_peak_and_not_in_a_byte_less(self):
        (plan,) = self.plans(self.daemon, PINNED)
        peak = int(plan["peak_bytes"])
        self.assert_ran(self.outcome(self.daemon, PINNED, peak), plan)
        self.assert_refused(self.outcome(self.daemon, PINNED, peak - 1), plan)

    def test_free_choice_takes_the_next_smaller_plan(self):
        plans = self.plans(self.daemon, FREE)
        names = [plan["name"] for plan in plans]
        for k in range(1, SHAPE.layers + 1):
            self.assertIn(f"recompute {k} of {SHAPE.layers}", names)
        self.assert_ran(self.outcome(self.daemon, FREE, plans[0]["peak_bytes"]), plans[0])
        slowest = 1.0
        by_bytes = sorted(plans, key=lambda plan: -int(plan["peak_bytes"]))
        for larger in by_bytes[:: max(1, len(plans) // 5)]:
            with self.subTest(larger["name"]):
                budget = int(larger["peak_bytes"]) - 1
                chosen = self.chosen(budget)
                if chosen is None:
                    continue
                self.assertLessEqual(int(chosen["peak_bytes"]), budget)
                for plan in plans:  # Nothing that fits is faster.
                    if int(plan["peak_bytes"]) <= budget:
                        self.assertGreaterEqual(plan["relative_work"], chosen["relative_work"])
                self.assertGreaterEqual(chosen["relative_work"], slowest)
                slowest = chosen["relative_work"]
                self.assert_ran(self.outcome(self.daemon, FREE, budget), chosen)

    def test_below_the_smallest_plan_is_refused_with_its_bytes(self):
        smallest = min(self.plans(self.daemon, FREE), key=lambda plan: int(plan["peak_bytes"]))
        job = self.outcome(self.daemon, FREE, int(smallest["peak_bytes"]) - 1)
        self.assert_refused(job, smallest)

    def test_sizes_that_are_left_to_the_daemon(self):
        rows, length = "training.per_device_train_batch_size", "training.max_seq_length"
        peaks = [int(plan["peak_bytes"]) for plan in self.plans(self.daemon, FREE)]
        budget = min(peaks) + (max(peaks) - min(peaks)) // 8
        for left, change in ((rows, FREE), (length, f"{rows}=32"), (rows, f"{length}=auto")):
            with self.subTest(left, change=change):
                line = (self.file, *CHANGES, FREE, f"memory.budget={budget}", change)
                ran = self.finish(self.daemon, self.daemon.submit(*line, f"{left}=auto"))
                self.assertEqual(ran["state"], "SUCCEEDED", ran["error"])
                self.assertLessEqual(int(ran["memory"]["measured_peak_bytes"]), budget)
                sizes = ran["spec"]["training"]
                found = {name: sizes[name.removeprefix("training.")] for name in (rows, length)}
                fixed = [f"{name}={value}" for name, value in found.items()]
                self.assertGreaterEqual(self.chosen(budget, *fixed)["relative_work"], 1.0)
                more = f"{left}={found[left] + 1}"
                self.assertIsNone(self.chosen(budget, *fixed, more))

    def daemon_with_spare(self, spare):
        """A daemon whose device has `spare` bytes more than the pinned plan needs, and that plan. A
        daemon measures its context anew, so the capacity is set until both agree."""
        capacity = int(self.plans(self.daemon, PINNED)[0]["peak_bytes"]) + spare
        for _ in range(10):
            small = Daemon(device=f"{DEVICE}={capacity}")
            self.addCleanup(small.close)
            # Prepares the dataset, whether it fits or not.
            self.outcome(small, 'memory.stash={"*": recompute}')
            (plan,) = self.plans(small, PINNED)
            if int(plan["peak_bytes"]) + spare == capacity:
                return small, plan
            capacity = int(plan["peak_bytes"]) + spare
        raise AssertionError("ten daemons in a row measured ten contexts")

    def test_a_device_of_the_predicted_peak_is_enough(self):
        small, plan = self.daemon_with_spare(0)
        self.assert_ran(self.outcome(small, PINNED), plan)

    def test_a_device_of_one_byte_less_is_not(self):
        small, plan = self.daemon_with_spare(-1)
        self.assert_refused(self.outcome(small, PINNED), plan)


if __name__ == "__main__":
    unittest.main()
