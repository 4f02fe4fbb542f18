"""The cap is enforced: a worker runs under exactly the bytes that were predicted, and not under one
less."""

import re
import unittest

from tests.harness import assignments, jobs, models
from tests.harness.daemon import Daemon

SHAPE = models.Shape(layers=3, vocabulary=jobs.VOCABULARY, max_positions=512)
KEEP, RECOMPUTE = (f'memory.stash={{"*": {kind}}}' for kind in ("keep", "recompute"))


class CapTest(unittest.TestCase):
    """A finished job's assignment, given to a worker again under another cap."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.full = jobs.full_folder(cls.daemon.folder / "full", shape=SHAPE)
        cls.lora = jobs.lora_folder(cls.daemon.folder / "lora", shape=SHAPE)

    def run_under(self, name, cap):
        """The worker that finished under this cap, and its result."""
        first = self.daemon.attempt(name)
        folder = first.parent / f"cap-{cap}"
        assignments.write_changed(first, folder, cap_bytes=cap)
        return assignments.run(folder)

    def check(self, *job):
        """Predicted, measured and enforced are one number. Gives it, and the weights' share."""
        name = self.daemon.submit(*job, "training.max_steps=2")
        memory = self.daemon.wait_state(name, "SUCCEEDED")["memory"]
        peak = int(memory["predicted_peak_bytes"])
        self.assertEqual(int(memory["measured_peak_bytes"]), peak)
        # What the kernel has seen of the process meanwhile.
        looks = memory["looks"]
        self.assertEqual([look["steps"] for look in looks], ["0", "1", "2"][: len(looks)])
        self.assertGreater(min(int(look["seen_bytes"]) for look in looks), 0)
        self.assertEqual(memory["warning"], "")

        done, result = self.run_under(name, peak)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(result["outcome"], "SUCCEEDED")
        self.assertEqual(int(result["measured_peak_bytes"]), peak)

        done, result = self.run_under(name, peak - 1)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(result["outcome"], "FAILED")
        self.assertEqual(result["failure_class"], "OUT_OF_MEMORY")
        self.assertEqual(result["error"]["reason"], "OUT_OF_MEMORY")
        return peak, int(re.search(r"weights_bytes: (\d+)", self.assignment(name))[1])

    def assignment(self, name):
        return assignments.read(self.daemon.attempt(name))

    def test_a_plan_of_other_bytes_is_refused(self):
        """A worker that holds other bytes than its plan says does not run, and is not tried again
        with more memory."""
        name = self.daemon.submit(self.lora, KEEP, "training.max_steps=2")
        self.daemon.wait_state(name, "SUCCEEDED")
        first = self.daemon.attempt(name)
        folder = first.parent / "promised"
        assignments.write_changed(first, folder)
        text = assignments.read(folder)
        weights = int(re.search(r"weights_bytes: (\d+)", text)[1])
        assignments.write_text(
            folder, text.replace(f"weights_bytes: {weights}", f"weights_bytes: {weights - 64}")
        )
        done, result = assignments.run(folder)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(result["failure_class"], "USER")
        self.assertEqual(result["error"]["reason"], "INTERNAL")
        self.assertEqual(
            result["error"]["message"],
            f"weights: {weights - 64} bytes by the plan, {weights} by the worker",
        )

    def test_full_job(self):
        kept, _ = self.check(self.full, KEEP)
        self.assertLess(self.check(self.full, RECOMPUTE)[0], kept)
        self.assertLess(self.check(self.full, KEEP, "training.optim=adamw_8bit")[0], kept)

    def test_quantised_base(self):
        """Codes take what was predicted for them; embedding, head and norms stay as they are."""
        job = (self.lora, RECOMPUTE, "training.precision=fp32")
        _, plain = self.check(*job)
        _, int8 = self.check(*job, "quantization=int8")
        _, nf4 = self.check(*job, "quantization=nf4")
        heads = SHAPE.heads * SHAPE.head_width, SHAPE.kv_heads * SHAPE.head_width
        elements = SHAPE.layers * SHAPE.width * (2 * sum(heads) + 3 * SHAPE.mlp_width)
        for saved, codes in ((plain - int8, 1), (plain - nf4, 0.5)):
            # What is left are scales, and what rounds buffers up.
            self.assertLess(saved, (4 - codes) * elements)
            self.assertGreater(saved, (4 - codes - 0.15) * elements)

    def test_lora_job(self):
        for precision in ("fp32", "bf16"):
            with self.subTest(precision):
                job = (self.lora, f"training.precision={precision}")
                kept, _ = self.check(*job, KEEP)
                self.assertLess(self.check(*job, RECOMPUTE)[0], kept)


if __name__ == "__main__":
    unittest.main()
