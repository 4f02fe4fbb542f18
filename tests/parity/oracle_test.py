"""The oracle alone: it accepts another correct implementation and refuses a wrong one.

The part of Snug is played by transformers itself on another road: one row at a time, eager
attention, nothing padded. Each feature that the parity tests are for is then switched off in
the reference, one by one, and every comparison must notice.
"""

import tempfile
import unittest

import torch
from peft.tuners.lora import LoraLayer

from tests.harness import datasets, models
from tests.parity import cases, compare, reference


def other_road(prepared):
    """Losses, gradients and weights of the same job without padding, row by row."""
    model = models.load_model(prepared.model, torch.float32, prepared.adapter)
    model.config._attn_implementation = "eager"
    steps = [[[row] for row in prepared.rows]] * prepared.settings.steps
    return reference.train(model, steps, prepared.settings)


def violations(ours, theirs, truth):
    """All criteria of the fp32 parity test."""
    left_out = compare.silent_tensors(truth.gradients)
    if left_out:
        print("without a gradient, so left out of the weights:", *sorted(left_out))
    return {
        "losses": compare.losses_differ(ours.losses, theirs.losses),
        "gradients": compare.gradients_differ(ours.gradients, theirs.gradients, truth.gradients),
        "weights": compare.weights_differ(ours, theirs, truth, left_out),
    }


def without_rope_scaling(model, _rows):
    """Rotary frequencies as if config.json had no scaling."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    rotary = base.model.rotary_emb
    rotary.inv_freq, factor = rotary.compute_default_rope_parameters(base.config)
    rotary.attention_scaling = factor  # yarn's, of cosines and sines.
    base.config.rope_parameters["rope_type"] = "default"


def without_loss_mask(_model, rows):
    """Every token but a row's first is trained."""
    for ids, weights in rows:
        weights[:] = [0.0] + [1.0] * (len(ids) - 1)


def without_alpha(model, _rows):
    """The adapter is added with factor one."""
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling["default"] = 1.0


def without_own_alphas(model, _rows):
    """Every module is scaled by the adapter's one alpha."""
    config = model.peft_config["default"]
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling["default"] = config.lora_alpha / module.r["default"]


def without_saved_modules(model, _rows):
    """modules_to_save are those of the base, and stay."""
    for name, weight in model.named_parameters():
        if "modules_to_save" in name:
            weight.requires_grad_(False)


def without_adapted_embedding(model, _rows):
    """The embedding's adapter is there, but hardly added."""
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer) and name.endswith("embed_tokens"):
            module.scaling["default"] *= 1e-3


class OracleTest(unittest.TestCase):
    """Small models; the same criteria as in parity_test."""

    def setUp(self):
        torch.manual_seed(0)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def reference_of(self, prepared, exact=False, change=None):
        """The reference's run, with one feature switched off if asked."""
        rows = [(ids, list(weights)) for ids, weights in prepared.rows]
        model = models.load_model(prepared.model, torch.float32, prepared.adapter)
        if change:
            change(model, rows)
        model = reference.exact(model) if exact else model
        order = cases.file_order(prepared.case, len(rows), prepared.settings.steps)
        return reference.train(model, cases.in_order(rows, order), prepared.settings)

    def test_another_correct_implementation_passes(self):
        for case in cases.FP32_CASES[::2]:
            with self.subTest(case.name):
                prepared = cases.prepare(case, f"{self.folder.name}/{case.name}")
                theirs = self.reference_of(prepared)
                truth = self.reference_of(prepared, exact=True)
                found = violations(other_road(prepared), theirs, truth)
                self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})

    def assert_noticed(self, case, change):
        """A reference with a feature off differs in losses, gradients and weights."""
        prepared = cases.prepare(case, f"{self.folder.name}/{case.name}")
        theirs = self.reference_of(prepared, change=change)
        truth = self.reference_of(prepared, exact=True, change=change)
        found = violations(other_road(prepared), theirs, truth)
        for what, sentences in found.items():
            self.assertTrue(sentences, f"{what} do not show it")

    def test_missing_llama3_scaling_is_noticed(self):
        self.assert_noticed(cases.FP32_CASES[2], without_rope_scaling)

    def test_missing_linear_scaling_is_noticed(self):
        self.assert_noticed(cases.FP32_CASES[7], without_rope_scaling)

    def test_missing_loss_mask_is_noticed(self):
        self.assert_noticed(cases.FP32_CASES[0], without_loss_mask)

    def test_missing_alpha_is_noticed(self):
        self.assert_noticed(cases.FP32_CASES[4], without_alpha)

    def test_loss_is_that_of_transformers_with_the_tokens_of_the_whole_step(self):
        model = models.random_model(cases.PLAIN, 4)
        rows = datasets.random_rows(4, [5, 30, 17], cases.PLAIN.vocabulary)
        ids, labels, mask = reference.pad(rows)
        theirs = model(
            input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=torch.tensor(99)
        ).loss
        self.assertEqual(reference.batch_loss(model, rows, 99).item(), theirs.item())

    def test_exact_frequencies_are_those_of_transformers(self):
        for rope in models.ROPES:
            config = models.config_of(models.Shape(rope=rope))
            rotary = models.AutoModelForCausalLM.from_config(config).model.rotary_emb
            gap = compare.distance(rotary.inv_freq, reference.exact_frequencies(config))
            self.assertLess(gap, 1e-6, rope)

    def test_both_spellings_of_config_are_one_model_to_transformers(self):
        model = models.random_model(cases.LLAMA3, 3)
        new = models.write_model(model, f"{self.folder.name}/v5")
        old = models.write_model(model, f"{self.folder.name}/v4", spelling=4)
        self.assertIn("rope_scaling", (old / "config.json").read_text())
        ids = torch.arange(3, 90)[None]
        logits = [models.load_model(f, torch.float32)(input_ids=ids).logits for f in (new, old)]
        self.assertTrue(torch.equal(*logits))


if __name__ == "__main__":
    unittest.main()
