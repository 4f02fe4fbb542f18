"""Every family on instruction sets that are not this CPU's best, kernels and libraries: the
criteria of families_test in fp32, and in bf16 the first gradients' of bf16_test."""

import os
import tempfile
import unittest
from unittest import mock

from tests.e2e.cpu_isa_test import has
from tests.parity import bf16_test, cases, compare, families_test, oracle_test
from tests.parity.parity_test import STEPS, Runs, oracle

CASES = (*cases.FP32_CASES[2:5:2], *families_test.FULL.values(), *families_test.LORA.values())
NOTHING = {"losses": [], "gradients": [], "weights": []}


class RunsOn(Runs):
    """Probes with SNUG_CPU_ISA; without a set, on the best there is."""

    def __init__(self, folder, isa):
        super().__init__(f"{folder}/{isa}")
        self.isa = isa

    def _probe(self, case, plan="keep", steps=STEPS):
        with mock.patch.dict(os.environ):
            os.environ.pop("SNUG_CPU_ISA", None)
            if self.isa:
                os.environ["SNUG_CPU_ISA"] = self.isa
            return super()._probe(case, plan, steps)


@unittest.skipUnless(has("avx2") and has("fma"), "a CPU with AVX2 is needed")
class CpuIsaTest(unittest.TestCase):
    """The rows of a step are the same whatever the set: one reference serves all."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs = {isa: RunsOn(folder.name, isa) for isa in (None, "avx2", "baseline")}

    def test_every_family_matches_transformers_in_fp32(self):
        for case in CASES:
            runs = self.runs["avx2"]
            prepared, order = runs.prepared(case), runs.probed(case).rows
            theirs, truth = (oracle(prepared, order, exact=exact) for exact in (False, True))
            for isa in ("avx2", "baseline"):
                with self.subTest(case.name, isa=isa):
                    ours = self.runs[isa].probed(case)
                    self.assertEqual(ours.rows, order)
                    self.assertEqual(oracle_test.violations(ours, theirs, truth), NOTHING)

    def test_every_family_is_no_farther_from_float64_than_transformers_in_bf16(self):
        for case in bf16_test.FAMILIES:
            runs = self.runs["avx2"]
            prepared, order = runs.prepared(case), runs.probed(case, steps=1).rows
            theirs, truth = (oracle(prepared, order, exact=exact) for exact in (False, True))
            for isa in ("avx2", "baseline"):
                with self.subTest(case.name, isa=isa):
                    ours = self.runs[isa].probed(case, steps=1)
                    gradients = ours.gradients, theirs.gradients, truth.gradients
                    self.assertEqual(compare.gradients_differ_bf16(*gradients), [])

    @unittest.skipUnless(has("avx512_bf16"), "its best is one of the others")
    def test_the_variable_changes_what_is_computed(self):
        for case in (families_test.FULL["gemma2"], bf16_test.FAMILIES[0]):
            best, *others = (self.runs[isa].probed(case, steps=1) for isa in self.runs)
            for other in others:
                with self.subTest(case.name):
                    self.assertNotEqual(
                        [g.tobytes() for g in other.gradients.values()],
                        [g.tobytes() for g in best.gradients.values()],
                    )


if __name__ == "__main__":
    unittest.main()
