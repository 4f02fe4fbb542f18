"""`snug plan`: what it says for scripts, of machines that are not here too, and from inside."""

import unittest
import xml.dom.minidom

from tests.harness import jobs
from tests.harness.daemon import Daemon

FREE = "memory.stash={}"
PLAN = {
    "name",
    "peak_bytes",
    "host_bytes",
    "relative_work",
    "step_seconds",
    "tokens_per_second",
    "fidelity",
    "memory",
    "kinds",
}


class PlanTest(unittest.TestCase):
    """One daemon, one job file; nothing runs."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.file = jobs.full_folder(cls.daemon.folder / "full")

    def plan(self, *flags):
        """The answer as JSON."""
        return self.daemon.json("plan", self.file, FREE, *flags)

    def test_every_plan_has_the_documented_keys(self):
        answer = self.plan()
        slowest = 0.0
        for plan in answer["plans"]:
            with self.subTest(plan["name"]):
                self.assertEqual(set(plan), PLAN)
                self.assertEqual(plan["fidelity"], "exact")
                self.assertLessEqual(set(plan["kinds"]), {"keep", "recompute", "chunk"})
                self.assertAlmostEqual(sum(plan["kinds"].values()), 1.0, places=9)
                self.assertGreaterEqual(plan["step_seconds"], slowest)
                self.assertGreater(plan["tokens_per_second"], 0.0)
                slowest = plan["step_seconds"]
        self.assertEqual(answer["rates"], "measured" if answer["device"] == "cpu:0" else "kind")
        self.assertEqual(answer["refusal"], "")
        self.assertNotIn("max", answer)

    def test_a_pinned_plan_says_how_much_it_keeps(self):
        stash = 'memory.stash={"layers.0.*": recompute}'
        (plan,) = self.daemon.json("plan", self.file, stash)["plans"]
        self.assertAlmostEqual(plan["kinds"]["recompute"], 0.5, places=6)

    def test_a_larger_budget_is_never_slower(self):
        smallest = min(int(plan["peak_bytes"]) for plan in self.plan()["plans"])
        largest = max(int(plan["peak_bytes"]) for plan in self.plan()["plans"])
        slowest = None
        for i in range(9):
            budget = smallest + (largest - smallest) * i // 8
            answer = self.plan(f"--device-memory={budget}")
            self.assertEqual(int(answer["device_capacity_bytes"]), budget)
            chosen = answer["plans"][answer["chosen"]]
            self.assertLessEqual(int(chosen["peak_bytes"]), budget)
            if slowest is not None:
                self.assertLessEqual(chosen["step_seconds"], slowest)
            slowest = chosen["step_seconds"]

    def test_max_fits_and_one_more_does_not(self):
        budget = 2 * max(int(plan["peak_bytes"]) for plan in self.plan()["plans"])
        machine = f"--device-memory={budget}"
        largest = self.plan("--max", machine)["max"]
        each = largest.pop("by_fidelity")
        self.assertEqual(list(each), ["exact", "unbiased", "approximate"])
        self.assertEqual(largest, each["exact"])
        key = "training.per_device_train_batch_size"
        for fidelity, settings in each.items():
            with self.subTest(fidelity):
                rows, asked = settings[key.split(".")[1]], (f"memory.fidelity={fidelity}", machine)
                self.assertIsInstance(rows, int)
                self.assertGreaterEqual(self.plan(f"{key}={rows}", *asked)["chosen"], 0)
                self.assertEqual(self.plan(f"{key}={rows + 1}", *asked)["chosen"], -1)
        steps = largest["gradient_accumulation_steps"]
        answer = self.plan(f"training.gradient_accumulation_steps={steps}", machine)
        self.assertGreaterEqual(answer["chosen"], 0)

    def test_a_machine_that_is_not_here(self):
        answer = self.plan("--device-kind", "h200", "--device-memory", "24GiB")
        self.assertEqual(int(answer["device_capacity_bytes"]), 24 << 30)
        self.assertEqual((answer["device"], answer["rates"]), ("gpu:h200", "kind"))
        done = self.daemon.run("plan", self.file, "--device-kind", "abacus", code=1)
        self.assertIn("is none of cpu, h200, h100", done.stderr)

    def test_the_chosen_plan_from_inside(self):
        tape = self.daemon.run("plan", self.file, FREE, "--tape").stdout
        self.assertRegex(tape, r"^arena of \d+ bytes\n +0 block 0 forward ")
        drawn = self.daemon.run("plan", self.file, FREE, "--explain").stdout
        self.assertIn("> forward, < backward", drawn)
        path = self.daemon.folder / "plan.svg"
        self.daemon.run("plan", self.file, FREE, "--explain", "--svg", path)
        picture = xml.dom.minidom.parse(str(path))
        self.assertGreater(len(picture.getElementsByTagName("polygon")), 3)


if __name__ == "__main__":
    unittest.main()
