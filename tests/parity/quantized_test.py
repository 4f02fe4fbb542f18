"""LoRA over a base in 4 or 8 bits, against bitsandbytes' formats.

The reference dequantises the base by the formats' definitions, in the arithmetic that these are
defined in (scales and levels are fp32), and trains on it with transformers and peft, in fp32 and in
float64. Nothing of Snug's kernels is in it. The criteria are those of parity_test; a reference over
the base as it was fails them.
"""

import tempfile
import unittest

import torch

from tests.harness import packed
from tests.parity import cases, families_test, oracle_test
from tests.parity.parity_test import Runs, oracle, request_of, run

CASES = (
    cases.Case("quantized-llama", cases.PLAIN, "all-linear", seed=61),
    cases.Case("quantized-tied", cases.LLAMA3, cases.QV, batch=12, seed=62),
    families_test.LORA["qwen2"],
)


def scales_of(absmax):
    """What double quantisation leaves of scales."""
    codes, scales, mean = packed.double_quantised(absmax)
    levels = packed.dynamic_map(True).float()
    return levels[codes] * scales.repeat_interleave(packed.GROUP)[: len(codes)] + mean


def nf4(weight):
    """quantize_4bit with quant_type nf4, blocksize 64 and compress_statistics, and back."""
    flat = weight.flatten()
    blocks = packed.in_groups(flat, packed.BLOCK)
    absmax = blocks.abs().amax(1)
    codes = packed.nearest(blocks / absmax.clamp_min(1e-30)[:, None], packed.NF4)
    values = packed.NF4[codes] * scales_of(absmax)[:, None]
    return values.flatten()[: len(flat)].view_as(weight)


def int8(weight):
    """int8_vectorwise_quant without outliers, and back."""
    absmax = weight.abs().amax(1, keepdim=True)
    scale = torch.full_like(absmax, 127.0) / absmax  # A number over a tensor is rounded twice.
    return (weight * scale).round() * absmax * (1.0 / 127.0)


def dequantised(quantise, skipped=None):
    """A change of a model: its linear modules hold what the format leaves, but for those that are
    skipped, and the head where nobody says what is."""

    def change(model, _rows):
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        matrices = {
            name.replace(".base_layer", ""): parameter
            for name, parameter in base.named_parameters()
            if parameter.ndim == 2 and "lora_" not in name
        }
        of_layers = [key for key in matrices if packed.LAYERS.fullmatch(key)]
        assert len(of_layers) >= 7 * len(base.model.layers), of_layers
        for key, parameter in matrices.items():
            if packed.quantises(key, skipped):
                parameter.data = quantise(parameter.data.float()).to(parameter.dtype)

    return change


class QuantizedTest(unittest.TestCase):
    """Each format in each case."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs = Runs(folder.name)

    def probed(self, case, kind):
        """A run over the quantised base, in the bytes that were predicted."""
        prepared = self.runs.prepared(case)
        spec = {**cases.job_spec(prepared), "quantization": kind}
        request = request_of(prepared, spec, prepared.folder / f"{self._testMethodName}-{kind}")
        request.steps = prepared.settings.steps
        return prepared, run(request)

    def violations(self, prepared, ours, change):
        theirs, truth = (
            oracle(prepared, ours.rows, exact=exact, change=change) for exact in (False, True)
        )
        return oracle_test.violations(ours, theirs, truth)

    def test_trains_as_over_the_dequantised_base(self):
        for case in CASES:
            for kind, quantise in (("NF4", nf4), ("INT8", int8)):
                with self.subTest(case.name, kind=kind):
                    prepared, ours = self.probed(case, kind)
                    found = self.violations(prepared, ours, dequantised(quantise))
                    self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})

    def over_codes(self, case, kind, **written):
        """A run over a checkpoint in codes."""
        prepared = self.runs.prepared(case)
        folder = prepared.folder / "-".join([self._testMethodName, kind, *written])
        packed.write(prepared.model, folder, kind, **written)
        spec = cases.job_spec(prepared)
        request = request_of(prepared, spec, prepared.folder / f"of-{folder.name}")
        request.model, request.steps = folder, prepared.settings.steps
        return prepared, run(request)

    def test_codes_of_a_checkpoint_are_taken_as_they_are(self):
        for case in CASES[:2]:
            for kind, quantise, written in (
                ("NF4", nf4, {}),
                ("NF4", nf4, {"nested": False}),
                ("INT8", int8, {}),
            ):
                with self.subTest(case.name, kind=kind, **written):
                    prepared, ours = self.over_codes(case, kind, **written)
                    found = self.violations(prepared, ours, dequantised(quantise))
                    self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})

    def test_modules_that_a_checkpoint_leaves_out_stay_as_they_are(self):
        skipped = ["lm_head", "model.layers.0.mlp", "o_proj"]
        prepared, ours = self.over_codes(CASES[0], "NF4", skipped=skipped)
        found = self.violations(prepared, ours, dequantised(nf4, skipped))
        self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})
        found = self.violations(prepared, ours, dequantised(nf4))
        self.assertTrue(all(found.values()), found)

    def test_a_head_that_a_checkpoint_has_in_codes_is_taken_as_it_is(self):
        skipped = ["model.layers.1.self_attn"]
        for case in (cases.ADAPTED_HEADS, CASES[0]):
            for kind, quantise in (("INT8", int8), ("NF4", nf4)):
                with self.subTest(case.name, kind=kind):
                    prepared, ours = self.over_codes(case, kind, skipped=skipped)
                    found = self.violations(prepared, ours, dequantised(quantise, skipped))
                    self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})
        found = self.violations(prepared, ours, dequantised(quantise, [*skipped, "lm_head"]))
        self.assertTrue(all(found.values()), found)

    def test_a_base_that_is_not_quantised_fails(self):
        for kind in ("NF4", "INT8"):
            with self.subTest(kind):
                prepared, ours = self.probed(CASES[0], kind)
                found = self.violations(prepared, ours, None)
                self.assertTrue(all(found.values()), found)


if __name__ == "__main__":
    unittest.main()
