"""Dropout of adapters, as a distribution: its mean and variance over seeds and steps.

Masks are ours and not torch's, so single draws cannot be compared. Where B is zero, dropout touches
neither losses nor the gradients of what comes before, and the gradient of B is linear in the mask:
its mean and its variance are sums over tokens, taken here from transformers and peft in float64.
Where B is not zero, losses are compared with those of as many draws of peft. So are those with
noise on the embeddings, over rows of one length, where transformers' noise is the paper's, and
those with dropout of attention.

That a resumed run with dropout goes on to the bit: worker/train/run_attempt_test,
fault/worker_kill_test.
"""

import json
import tempfile
import unittest

import numpy as np
import torch
from peft.tuners.lora import LoraLayer
from safetensors.numpy import load_file, save_file
from transformers.integrations.neftune import activate_neftune

from tests.harness import models
from tests.harness.binaries import probe_binary
from tests.harness.long_set import in_the_long_set
from tests.parity import cases, families_test, reference
from tests.parity.parity_test import request_of
from tests.parity.probe import probe

RATE = 0.3
SEEDS = 16
DRAWS = 200  # Of losses.
NOISE = 15.0  # A third of a scaled embedding, or so.


def job_spec(prepared, rate, **training):
    """One optimizer step over all rows in micro-batches; learning rate zero."""
    spec = cases.job_spec(prepared, learning_rate=0.0, weight_decay=0.0, **training)
    if prepared.adapter:
        spec["lora"]["lora_dropout"] = rate
    return spec


def without_up(prepared):
    """Sets every B of the prepared adapter to zero."""
    file = prepared.adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    zero = {key: np.zeros_like(t) if "lora_B" in key else t for key, t in tensors.items()}
    save_file(zero, file, metadata={"format": "pt"})


def drop_attention(prepared, rate):
    """Sets the rate in config.json, which is where both sides have it from."""
    file = prepared.model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "attention_dropout": rate}))


def rows_of(prepared):
    """Rows as the oracle takes them."""
    return [(ids, list(weights)) for ids, weights in prepared.rows]


class Watched:
    """What a LoRA module read, and the gradient of what it gave."""

    def __init__(self, module):
        self.module, self.z, self.dy = module, None, None
        module.register_forward_hook(self._forward)

    def _forward(self, _module, inputs, output):
        self.z = inputs[0].detach().flatten(0, 1)
        output.register_hook(self._backward)

    def _backward(self, dy):
        self.dy = dy.flatten(0, 1)

    def moments(self, rate):
        """Of dB = s sum_t dy_t (A drop(z_t))^T: mean, and variance element by element."""
        a = self.module.lora_A["default"].weight
        scale = self.module.scaling["default"]
        mean = scale * self.dy.T @ (self.z @ a.T)
        spread = self.dy.square().T @ (self.z.square() @ a.square().T)
        spread = scale**2 * rate / (1 - rate) * spread
        return mean.detach().numpy(), spread.detach().numpy()


def moments_of(prepared, rate):
    """{key of B: (mean, variance)} of the gradient of one step over the rows."""
    model = models.load_model(prepared.model, torch.float32, prepared.adapter)
    model = reference.exact(model)
    watched = {
        f"{name}.lora_B.weight": Watched(module)
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    rows = rows_of(prepared)
    divisor = sum(sum(weights) for _, weights in rows)
    reference.batch_loss(model, rows, divisor).backward()
    return {key: w.moments(rate) for key, w in watched.items()}


def losses_of_peft(prepared, rate=0.0, noise=0.0):
    """Of the whole dataset, DRAWS times."""
    model = models.load_model(prepared.model, torch.float32, prepared.adapter)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.lora_dropout["default"] = torch.nn.Dropout(rate)
    if noise:
        activate_neftune(model, noise)
    rows = rows_of(prepared)
    divisor = sum(sum(weights) for _, weights in rows)
    torch.manual_seed(7)
    with torch.no_grad():
        return [reference.batch_loss(model, rows, divisor).item() for _ in range(DRAWS)]


def unlike(ours, theirs):
    """What shows that two samples of a loss are not of one distribution: beyond four deviations of
    what chance does to the difference of means, or to the ratio of variances."""
    ours, theirs = np.array(ours), np.array(theirs)
    deviation = np.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / len(ours))
    means = abs(ours.mean() - theirs.mean()) / deviation
    ratio = np.log(ours.var(ddof=1) / theirs.var(ddof=1)) / np.sqrt(4 / len(ours))
    print(f"means {means:.2f} deviations apart, variances {ratio:.2f}")
    found = [f"means are {means:.1f} deviations apart"] if means > 4 else []
    return found + ([f"variances are {ratio:.1f} deviations apart"] if abs(ratio) > 4 else [])


def off_the_moments(gradients, moments):
    """How draws of dB, one dict per seed, differ from the moments: both figures are 1 but for
    chance. First the square of the mean's error over its variance, second the sample variance over
    the variance, both as means over all elements."""
    errors, spreads = [], []
    for key, (mean, variance) in moments.items():
        drawn = np.stack([g[key].astype(np.float64) for g in gradients])
        seen = variance > 1e-6 * variance.max()  # The others are next to nothing.
        errors.append(((drawn.mean(0) - mean) ** 2 * len(drawn) / variance)[seen])
        spreads.append((drawn.var(0, ddof=1) / variance)[seen])
    return np.concatenate(errors).mean(), np.concatenate(spreads).mean()


class DropoutTest(unittest.TestCase):
    """A Llama with adapters everywhere, and fused projections."""

    CASES = (cases.FP32_CASES[6], families_test.LORA["phi3"])

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def gradients(self, prepared, rate):
        """Of B, one dict per seed."""
        found = []
        for seed in range(SEEDS):
            spec = job_spec(prepared, rate, seed=seed + 1)
            request = request_of(prepared, spec, prepared.folder / f"{rate}-{seed}")
            found.append(probe(probe_binary(), request).gradients)
        return [{key: g for key, g in one.items() if "lora_B" in key} for one in found]

    def test_gradients_have_the_mean_and_variance_of_the_mask(self):
        for case in self.CASES:
            with self.subTest(case.name):
                prepared = cases.prepare(case, f"{self.folder}/{case.name}")
                without_up(prepared)
                drawn = self.gradients(prepared, RATE)
                moments = moments_of(prepared, RATE)
                self.assertEqual(set(drawn[0]), set(moments))
                error, spread = off_the_moments(drawn, moments)
                print(f"{case.name}: error {error:.3f}, spread {spread:.3f}")
                self.assertLess(abs(error - 1), 0.15)
                self.assertLess(abs(spread - 1), 0.1)
                # Of another rate the variance is another, of unscaled masks the mean.
                _, spread = off_the_moments(drawn, moments_of(prepared, 0.25))
                self.assertGreater(abs(spread - 1), 0.1)
                unscaled = [{key: 0.7 * g for key, g in one.items()} for one in drawn]
                error, _ = off_the_moments(unscaled, moments)
                self.assertGreater(abs(error - 1), 0.15)

    def losses(self, prepared, rate, **training):
        """Of the whole dataset at DRAWS steps that change nothing."""
        rows = len(prepared.rows)
        cut = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": 1}
        spec = job_spec(prepared, rate, **cut, max_steps=DRAWS, **training)
        request = request_of(prepared, spec, prepared.folder / "draws")
        request.steps = DRAWS
        found = probe(probe_binary(), request).losses
        self.assertEqual(len(set(found)), DRAWS)  # A mask of its own for each step.
        return found

    def test_losses_are_distributed_as_those_of_peft(self):
        for case in self.CASES:
            with self.subTest(case.name):
                prepared = cases.prepare(case, f"{self.folder}/losses-{case.name}")
                ours = self.losses(prepared, RATE)
                self.assertEqual(unlike(ours, losses_of_peft(prepared, RATE)), [])
                self.assertTrue(unlike(ours, losses_of_peft(prepared, 0.1)))

    # Gemma scales its embeddings, and transformers adds the noise behind that.
    @in_the_long_set
    def test_losses_with_noise_are_distributed_as_those_of_transformers(self):
        gemmas = families_test.FULL["gemma2"], families_test.LORA["gemma3"]
        for case in (cases.FP32_CASES[6], *gemmas):
            with self.subTest(case.name):
                prepared = cases.prepare(case, f"{self.folder}/noise-{case.name}", [33] * 6)
                ours = self.losses(prepared, 0.0, neftune_noise_alpha=NOISE)
                self.assertEqual(unlike(ours, losses_of_peft(prepared, noise=NOISE)), [])
                self.assertTrue(unlike(ours, losses_of_peft(prepared, noise=0.3 * NOISE)))

    @in_the_long_set
    def test_losses_with_dropped_attention_are_distributed_as_those_of_transformers(self):
        for case in (families_test.FULL["mistral"], families_test.LORA["gemma2"]):
            with self.subTest(case.name):
                prepared = cases.prepare(case, f"{self.folder}/attention-{case.name}")
                drop_attention(prepared, RATE)
                ours = self.losses(prepared, 0.0)
                self.assertEqual(unlike(ours, losses_of_peft(prepared)), [])
                drop_attention(prepared, 0.1)
                self.assertTrue(unlike(ours, losses_of_peft(prepared)))


if __name__ == "__main__":
    unittest.main()
