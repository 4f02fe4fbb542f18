"""The worker on a GPU that is emulated: kernels' CUDA sources run on the host, the host cannot
touch the device's memory, products are a loop in float64. The losses of two steps and the gradients
of the first are held against transformers and peft by the criteria of the CPU's tests, and what is
allocated against what was predicted. (Weights are not: after so few steps AdamW still moves
elements without a gradient by their noise.) It is logic that is tested, not speed; ATen's flash
attention has no emulation, so that our own kernel stands for it.
"""

import os
import tempfile
import unittest

os.environ["SNUG_TEST_DEVICE"] = "gpu:0"
os.environ["SNUG_TEST_EMULATED"] = "1"

# pylint: disable=wrong-import-position
from tests.parity import cases, compare, families_test, swin_test
from tests.parity.image_cases import ImageCasesTest
from tests.parity.parity_test import Runs, oracle

STEPS = 2
LENGTHS = (5, 17, 33, 2)  # An emulated thread costs a microsecond.
FP32 = (
    cases.FP32_CASES[2],
    cases.ADAPTED_HEADS,
    families_test.FULL["gemma2"],
    families_test.LORA["qwen2"],
    families_test.LORA["phi3"],
)
BF16 = (families_test.LORA["gemma3"], *cases.BF16_CASES[:2])


class ShortRuns(Runs):
    """Rows of a few tokens."""

    def _prepare(self, case):
        return cases.prepare(case, f"{self.folder}/{case.name}", LENGTHS)


class EmulatedGpuTest(unittest.TestCase):
    """Each case on gpu:0."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs = ShortRuns(folder.name)

    def probed(self, case, plan="keep"):
        """What the probe did, which took the memory that was predicted."""
        ours = self.runs.probed(case, plan, STEPS)
        memory = ours.memory
        self.assertEqual(memory["measured_peak_bytes"], memory["predicted_peak_bytes"])
        return ours

    def test_fp32_matches_transformers(self):
        for case in FP32:
            with self.subTest(case.name):
                prepared, ours = self.runs.prepared(case), self.probed(case)
                theirs, truth = (oracle(prepared, ours.rows, exact=e) for e in (False, True))
                gradients = ours.gradients, theirs.gradients, truth.gradients
                self.assertEqual(compare.losses_differ(ours.losses, theirs.losses), [])
                self.assertEqual(compare.gradients_differ(*gradients), [])

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        case = cases.FP32_CASES[2]
        kept, again = (self.probed(case, plan).gradients for plan in ("keep", "mixed"))
        self.assertEqual(compare.keys_differ(again, kept), [])
        changed = [key for key in kept if kept[key].tobytes() != again[key].tobytes()]
        self.assertEqual(changed, [])

    def test_bf16_is_no_farther_from_float64_than_transformers(self):
        for case in BF16:
            with self.subTest(case.name):
                prepared, ours = self.runs.prepared(case), self.probed(case)
                theirs, truth = (oracle(prepared, ours.rows, exact=e) for e in (False, True))
                gradients = ours.gradients, theirs.gradients, truth.gradients
                self.assertEqual(compare.gradients_differ_bf16(*gradients), [])


class EmulatedStagesTest(ImageCasesTest):
    """Images in stages: windows, their biases, merged patches."""

    FILES = swin_test.SwinTest.FILES
    random_model = staticmethod(swin_test.random_model)

    def test_swin_matches_transformers(self):
        for case in (swin_test.SMALL, swin_test.LORA["all"]):
            with self.subTest(case.name):
                ours = self.probed(case, steps=1)
                memory = ours.memory
                self.assertEqual(memory["measured_peak_bytes"], memory["predicted_peak_bytes"])
                theirs, truth = self.oracles(case, ours.rows)
                gradients = ours.gradients, theirs.gradients, truth.gradients
                self.assertEqual(compare.losses_differ(ours.losses, theirs.losses), [])
                self.assertEqual(compare.gradients_differ(*gradients), [])


if __name__ == "__main__":
    unittest.main()
