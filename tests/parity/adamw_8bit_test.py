"""AdamW with moments in 8 bits, against bitsandbytes' definition in float64.

The reference computes the model in float64 and keeps each moment, between two steps, as the nearest
of 256 levels times the largest magnitude of its block of 256 elements (Dettmers et al. 2022; in
bitsandbytes `create_dynamic_map`, `quantize_blockwise` and the blockwise optimizers, which move a
weight by the new moments before these are rounded). Tensors of fewer than 4096 elements and the
embedding keep their moments as they are, as with transformers' Trainer.

A gradient in fp32 and one in float64 now and then round to two neighbouring levels, so that weights
agree less closely than under moments in fp32: to TOLERANCE of what 20 steps change. What the
rounding itself does to the same weights is at least FACTOR times as much.
"""

import functools
import tempfile
import unittest

import torch

from tests.harness import models, packed
from tests.parity import cases, compare, reference
from tests.parity.parity_test import Runs, request_of, run

BLOCK = 256
LEAST_CODED = 4096
TOLERANCE = 4e-3  # Relative L2 of what the steps changed, per tensor; 2.3e-3 is the largest seen.
FACTOR = 3.0
LOSS_TOLERANCE = 2e-5  # Relative, every step.
CASES = (
    cases.Case("adamw-8bit-full", cases.PLAIN, seed=51),
    cases.Case("adamw-8bit-tied", cases.LLAMA3, batch=12, seed=52),
    cases.Case("adamw-8bit-lora", cases.PLAIN, "all-linear", rank=64, alpha=96, seed=53),
)


def rounded(moment, levels):
    """Each block divided by its largest magnitude, to the nearest level, and back."""
    flat = moment.flatten()
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK)
    scale = blocks.abs().amax(1, keepdim=True)
    shares = torch.where(scale > 0, blocks / scale, torch.zeros_like(blocks))
    middles = (levels[:-1] + levels[1:]) / 2
    return (levels[torch.bucketize(shares, middles)] * scale).flatten()[: len(flat)].view_as(moment)


class BlockwiseAdamW(torch.optim.Optimizer):
    """Loshchilov and Hutter's AdamW with the moments of large tensors rounded after each step.
    `plain`: parameters whose moments are not."""

    def __init__(self, groups, plain, **settings):
        super().__init__(groups, settings)
        self.plain = {id(p) for p in plain}
        self.levels = packed.dynamic_map(True), packed.dynamic_map(False)

    @torch.no_grad()
    def step(self, closure=None):
        """One update of all parameters."""
        for group in self.param_groups:
            for p in group["params"]:
                self._update(p, group)

    def _update(self, p, group):
        (beta1, beta2), state = group["betas"], self.state[p]
        state["step"] = state.get("step", 0) + 1
        m = beta1 * state.get("m", 0) + (1 - beta1) * p.grad
        v = beta2 * state.get("v", 0) + (1 - beta2) * p.grad**2
        p.mul_(1 - group["lr"] * group["weight_decay"])
        root = (v / (1 - beta2 ** state["step"])).sqrt() + group["eps"]
        p.sub_(group["lr"] * m / (1 - beta1 ** state["step"]) / root)
        if p.numel() >= LEAST_CODED and id(p) not in self.plain:
            m, v = rounded(m, self.levels[0]), rounded(v, self.levels[1])
        state["m"], state["v"] = m, v


def exact_run(prepared, order, eight_bits):
    """The reference in float64, with moments in 8 bits or as they are."""
    rows = [(ids, list(weights)) for ids, weights in prepared.rows]
    model = reference.exact(models.load_model(prepared.model, torch.float32, prepared.adapter))
    plain = [model.get_input_embeddings().weight]
    make = functools.partial(BlockwiseAdamW, plain=plain) if eight_bits else torch.optim.AdamW
    return reference.train(model, cases.in_order(rows, order), prepared.settings, make=make)


def change_distance(ours, reference_run, key):
    """How far apart two runs' changes of a tensor are."""
    start = reference_run.initial[key]
    return compare.distance(ours.weights[key] - start, reference_run.weights[key] - start)


class AdamW8BitTest(unittest.TestCase):
    """Both directions: as near to the definition as this, and far from moments in fp32."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs = Runs(folder.name)

    def test_follows_the_definition(self):
        for case in CASES:
            with self.subTest(case.name):
                prepared = self.runs.prepared(case)
                spec = cases.job_spec(prepared, optim="adamw_8bit")
                request = request_of(prepared, spec, prepared.folder / "eight")
                request.steps = prepared.settings.steps
                ours = run(request)
                exact, whole = (exact_run(prepared, ours.rows, bits) for bits in (True, False))
                differ = compare.losses_differ(ours.losses, exact.losses, LOSS_TOLERANCE)
                self.assertEqual(differ, [])
                coded = 0
                for key, value in exact.weights.items():
                    near, far = (change_distance(ours, other, key) for other in (exact, whole))
                    self.assertLess(near, TOLERANCE, key)
                    if value.size >= LEAST_CODED and not key.endswith("embed_tokens.weight"):
                        self.assertGreater(far, FACTOR * TOLERANCE, key)
                        coded += 1
                self.assertGreaterEqual(coded, 4)

    def test_takes_a_quarter_of_the_bytes(self):
        """Full fine-tuning: what 8 bits save of the two moments, as the probe measures it."""
        prepared = self.runs.prepared(CASES[0])
        peaks = {}
        for optim in ("adamw_torch", "adamw_8bit"):
            spec = cases.job_spec(prepared, optim=optim)
            peaks[optim] = run(request_of(prepared, spec, prepared.folder / optim)).memory
        shapes = models.random_model(cases.PLAIN, 1).state_dict()
        coded = [
            tensor.numel()
            for key, tensor in shapes.items()
            if tensor.numel() >= LEAST_CODED and "embed_tokens" not in key
        ]
        saved = sum(8 * n - 2 * (n + 64 * -(-(4 * -(-n // BLOCK)) // 64)) for n in coded)
        peak = {name: memory["measured_peak_bytes"] for name, memory in peaks.items()}
        self.assertEqual(peak["adamw_torch"] - peak["adamw_8bit"], saved)


if __name__ == "__main__":
    unittest.main()
