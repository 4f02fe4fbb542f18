"""All cases in bf16: no farther from float64 than transformers and peft in bf16.

First gradients, the losses of 20 steps, and what these changed; full fine-tuning with fp32 masters.
Float64 runs with the very weights that bf16 holds, rounded from its masters after each step, so
that what is left is the error of computing. Transformers' own error is a draw, too: from one of its
ways (attention fused or eager, rows together or apart) to another it changes by half.
"""

import dataclasses
import tempfile
import unittest

from tests.parity import cases, compare, families_test, oracle_test
from tests.parity.parity_test import Runs, oracle, request_of, run

FAMILIES = [
    dataclasses.replace(case, name=f"bf16-{case.name}", bf16=True, seed=case.seed + 20)
    for case in (*families_test.FULL.values(), *families_test.LORA.values())
]
CONTROLS = (
    ("lora-bf16-llama3-tied", oracle_test.without_rope_scaling),
    ("full-bf16-plain", oracle_test.without_loss_mask),
    ("bf16-full-llama", families_test.without_biases),
    ("bf16-full-mistral", families_test.without_window),
    ("bf16-lora-qwen2", families_test.without_biases),
    ("bf16-lora-qwen3", families_test.without_head_norms),
    ("bf16-lora-qwen3", oracle_test.without_rope_scaling),
    ("bf16-lora-gemma2", families_test.without_attention_softcap),
    ("bf16-full-gemma2", families_test.without_logit_softcap),
    ("bf16-full-gemma2", families_test.without_embedding_scale),
    ("bf16-lora-gemma2", families_test.without_post_norms),
    ("bf16-lora-gemma3", families_test.without_local_rope),
    ("bf16-full-gemma3", families_test.without_linear_scaling),
    ("bf16-lora-phi3", families_test.without_partial_rotation),
)


def eager(model, _rows):
    """Attention in steps, its softmax in fp32."""
    families_test.base_of(model).config._attn_implementation = "eager"


class Bf16Test(unittest.TestCase):
    """Cases of parity_test and families_test."""

    # controls_test, of the long set, takes all.
    of_llama = cases.BF16_CASES[1::2]
    families = FAMILIES[-1:]
    controls = CONTROLS[:1]

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs = Runs(folder.name)

    def compared(self, case, change=None):
        """Ours, three of transformers' ways, and float64, over the same batches. How far apart ways
        are that only round differently is what chance does to a run of bf16."""
        prepared, ours = self.runs.prepared(case), self.runs.probed(case)
        masters = case.targets is None

        def both(model, rows):
            eager(model, rows)
            if change:
                change(model, rows)

        whole = [[sum(step, [])] for step in ours.rows]
        ways = [
            oracle(prepared, ours.rows, change=change, masters=masters),
            oracle(prepared, whole, change=both, masters=masters),
            oracle(prepared, whole, change=change, masters=masters),
        ]
        truth = oracle(prepared, ours.rows, exact=True, change=change, masters=masters)
        return ours, ways, truth

    def violations(self, ours, ways, truth):
        """All criteria of bf16."""
        losses = [way.losses for way in ways]
        return {
            "gradients": compare.gradients_differ_bf16(
                ours.gradients, ways[0].gradients, truth.gradients
            ),
            "losses": compare.losses_are_farther(ours.losses, losses, truth.losses),
            "weights": compare.changes_differ(ours, ways, truth),
        }

    def test_no_farther_from_float64_than_transformers(self):
        for case in (*self.families, *self.of_llama):
            with self.subTest(case.name):
                ours, ways, truth = self.compared(case)
                found = self.violations(ours, ways, truth)
                self.assertEqual(found, {"gradients": [], "losses": [], "weights": []})
                if case in cases.BF16_CASES and case.targets is None:
                    # Weights that exist in bf16 alone lose most of a step: that is what must show.
                    without = oracle(self.runs.prepared(case), ours.rows)
                    self.assertTrue(compare.changes_differ(without, ways, truth))

    def test_packed_rows_are_no_farther_from_it(self):
        for case in self.families:
            with self.subTest(case.name):
                prepared = self.runs.prepared(case)
                spec = cases.job_spec(prepared, **families_test.PACKED)
                packed = run(request_of(prepared, spec, prepared.folder / "packed"))
                theirs, truth = (
                    oracle(prepared, packed.rows, exact=exact) for exact in (False, True)
                )
                gradients = packed.gradients, theirs.gradients, truth.gradients
                self.assertEqual(compare.gradients_differ_bf16(*gradients), [])

    def test_a_reference_without_one_trait_fails(self):
        by_name = {case.name: case for case in (*FAMILIES, *cases.BF16_CASES)}
        for name, change in self.controls:
            with self.subTest(name, change=change.__name__):
                found = self.violations(*self.compared(by_name[name], change))
                for what, sentences in found.items():
                    self.assertTrue(sentences, f"{what} do not show it")


if __name__ == "__main__":
    unittest.main()
