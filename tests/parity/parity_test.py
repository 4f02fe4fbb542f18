"""Snug against transformers and peft: losses, gradients, learned weights.

For every case the worker's trainer runs on what transformers and peft wrote, and the oracle
runs on the very same batches. The criteria are in compare.py; a reference with a feature
switched off must fail them, so that a test that compares nothing cannot pass.
"""

import dataclasses
import functools
import tempfile
import unittest

import torch

from tests.harness import models
from tests.harness.binaries import probe_binary
from tests.parity import cases, compare, oracle_test, reference
from tests.parity.probe import Request, probe
from tests.parity.tokens import both_log_probabilities

STEPS = 20


def oracle(prepared, order, exact=False, change=None, masters=False):
    """The reference's run over the same batches, with one feature switched off if asked."""
    rows = [(ids, list(weights)) for ids, weights in prepared.rows]
    model = models.load_model(prepared.model, prepared.case.dtype, prepared.adapter)
    if change:
        change(model, rows)
    model = reference.exact(model) if exact else model
    return reference.train(model, cases.in_order(rows, order), prepared.settings, masters)


def run(request):
    """What the probe did, which took the memory that was predicted, to the byte."""
    ours = probe(probe_binary(), request)
    measured, predicted = (ours.memory[f"{k}_peak_bytes"] for k in ("measured", "predicted"))
    if measured != predicted:
        raise AssertionError(f"{request.output}: took {measured} bytes, predicted {predicted}")
    return ours


class Runs:
    """Each case is prepared and probed once, however many tests look at it."""

    def __init__(self, folder):
        self.folder = folder
        self.prepared = functools.cache(self._prepare)
        self.probed = functools.cache(self._probe)

    def _prepare(self, case):
        return cases.prepare(case, f"{self.folder}/{case.name}")

    def _probe(self, case, plan="keep", steps=STEPS):
        prepared = self.prepared(case)
        output = prepared.folder / f"{plan}-{steps}"
        request = request_of(prepared, cases.job_spec(prepared), output)
        request.plan, request.steps = plan, steps
        return run(request)


def request_of(prepared, spec, output):
    """A call of the probe on a prepared case, one step under the plan that keeps everything."""
    return Request(prepared.model, prepared.data, spec, output, prepared.adapter)


class ParityTest(unittest.TestCase):
    """The criteria of parity over all cases."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs = Runs(folder.name)

    def violations(self, case, change=None, **settings):
        """All criteria of fp32, against the reference as it is or with a feature off, or with
        other settings."""
        prepared, ours = self.runs.prepared(case), self.runs.probed(case)
        others = dataclasses.replace(prepared.settings, **settings)
        prepared = dataclasses.replace(prepared, settings=others)
        theirs = oracle(prepared, ours.rows, change=change)
        truth = oracle(prepared, ours.rows, exact=True, change=change)
        return oracle_test.violations(ours, theirs, truth)

    def assert_whole_dataset_each_step(self, ours, rows):
        """The order is a permutation: every step sees every row once."""
        self.assertEqual(len(ours.rows), STEPS)
        for step in ours.rows:
            self.assertEqual(sorted(sum(step, [])), list(range(rows)))

    def test_fp32_matches_transformers(self):
        for case in cases.FP32_CASES:
            with self.subTest(case.name):
                ours = self.runs.probed(case)
                self.assert_whole_dataset_each_step(ours, len(self.runs.prepared(case).rows))
                found = self.violations(case)
                self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})

    def test_options_of_peft_match_it(self):
        for case in cases.OPTION_CASES:
            with self.subTest(case.name):
                found = self.violations(case)
                self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})

    def test_reference_without_an_option_fails(self):
        self.assert_all_fail(cases.OPTION_CASES[0], oracle_test.without_own_alphas)
        for case in cases.OPTION_CASES[2:5]:
            with self.subTest(case.name):
                found = self.violations(case, oracle_test.without_saved_modules)
                self.assertTrue(found["gradients"] and found["weights"])
        self.assert_all_fail(cases.ADAPTED_HEADS, oracle_test.without_adapted_embedding)

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (cases.FP32_CASES[2], cases.FP32_CASES[5], cases.BF16_CASES[0]):
            kept = self.runs.probed(case, steps=1).gradients
            for plan in ("recompute", "mixed"):
                with self.subTest(case.name, plan=plan):
                    again = self.runs.probed(case, plan, 1).gradients
                    self.assertEqual(compare.keys_differ(again, kept), [])
                    changed = [k for k in kept if kept[k].tobytes() != again[k].tobytes()]
                    self.assertEqual(changed, [])

    def test_reference_without_llama3_scaling_fails(self):
        self.assert_all_fail(cases.FP32_CASES[2], oracle_test.without_rope_scaling)

    def test_reference_without_linear_scaling_fails(self):
        self.assert_all_fail(cases.FP32_CASES[7], oracle_test.without_rope_scaling)

    def test_reference_without_loss_mask_fails(self):
        self.assert_all_fail(cases.FP32_CASES[0], oracle_test.without_loss_mask)

    def test_reference_without_smoothed_labels_fails(self):
        for what, found in self.violations(cases.FP32_CASES[1], label_smoothing_factor=0.0).items():
            self.assertTrue(found, f"{what} do not show it")

    def test_reference_without_alpha_fails(self):
        self.assert_all_fail(cases.FP32_CASES[4], oracle_test.without_alpha)

    def assert_all_fail(self, case, change):
        """Losses, gradients and weights all notice the missing feature."""
        for what, sentences in self.violations(case, change).items():
            self.assertTrue(sentences, f"{what} do not show it")


def ways_differ(prepared, ours, other):
    """One step of the same rows, cut or packed otherwise: the same, and that of transformers."""
    theirs, truth = (oracle(prepared, other.rows, exact=exact) for exact in (False, True))
    reference_gradients = theirs.gradients, truth.gradients
    found = compare.losses_differ(ours.losses, other.losses, compare.SAME_LOSS_TOLERANCE)
    found += compare.losses_differ(ours.losses, theirs.losses)
    found += compare.same_gradients(ours.gradients, other.gradients, *reference_gradients)
    return found + compare.gradients_differ(ours.gradients, *reference_gradients)


class BatchTest(unittest.TestCase):
    """The loss is that of the optimizer step, however it is cut into micro-batches."""

    LENGTHS = [2 + (i * 7) % 61 for i in range(32)]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_cut(self, prepared, name, **training):
        """One step with TrainingSpec fields set as given."""
        spec = cases.job_spec(prepared, **training)
        return run(request_of(prepared, spec, prepared.folder / name))

    def cuts(self, case):
        """32 rows as one batch of 32 and as 32 batches of one."""
        prepared = cases.prepare(case, f"{self.folder}/{case.name}", self.LENGTHS)
        one, many = (
            self.run_cut(
                prepared,
                f"{batch}x{32 // batch}",
                per_device_train_batch_size=batch,
                gradient_accumulation_steps=32 // batch,
            )
            for batch in (32, 1)
        )
        return prepared, one, many

    def test_32_times_1_is_1_times_32(self):
        for case in (cases.FP32_CASES[1], cases.FP32_CASES[6]):
            with self.subTest(case.name):
                prepared, one, many = self.cuts(case)
                self.assertEqual([len(step) for step in one.rows + many.rows], [1, 32])
                self.assertEqual(ways_differ(prepared, many, one), [])

    def test_packing_changes_neither_loss_nor_gradient(self):
        for case in (cases.FP32_CASES[2], cases.FP32_CASES[6]):
            with self.subTest(case.name):
                prepared = cases.prepare(case, f"{self.folder}/packed-{case.name}", self.LENGTHS)
                whole = {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 1}
                apart = self.run_cut(prepared, "apart", **whole)
                packed = self.run_cut(
                    prepared, "packed", packing=True, max_seq_length=128, **whole
                )
                self.assertEqual(sorted(sum(packed.rows[0], [])), list(range(32)))
                self.assertEqual(ways_differ(prepared, packed, apart), [])


class AdapterTest(unittest.TestCase):
    """An adapter that peft wrote means the same to the worker, token by token."""

    def test_log_probabilities_are_those_of_peft(self):
        case = cases.FP32_CASES[6]
        with tempfile.TemporaryDirectory() as folder:
            prepared = cases.prepare(case, f"{folder}/{case.name}")
            ours, theirs = both_log_probabilities(prepared, prepared.folder / "tokens")
        self.assertEqual(len(ours), case.shape.vocabulary)
        self.assertLess(abs(ours - theirs).max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
