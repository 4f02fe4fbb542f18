"""Masked tokens by BERT, RoBERTa, XLM-RoBERTa and DistilBERT against transformers, by the criteria
of parity_test: full and LoRA, other masks in every epoch, rows padded there and not here, and rows
of which no token is hidden.

A reference with other masks must fail.
"""

import dataclasses
import json
import unittest

import torch
from transformers import AutoModelForMaskedLM

from tests.harness import datasets, models
from tests.parity import cases, compare, encoder_test, masks, oracle_test, reference
from tests.parity import classification_test as documents
from tests.parity.cases import Case, CasesTest, Prepared
from tests.parity.classification_test import LENGTHS, NONE
from tests.parity.encoder_test import Shape
from tests.parity.parity_test import STEPS, request_of, run

AUTO = AutoModelForMaskedLM
MASK, TOKENS, SEED = 2, 120, 77
PROBABILITY = 0.2
FULL = (
    Case("full-bert", Shape(activation="gelu_new"), seed=91),
    Case("full-roberta", Shape("roberta", activation="relu"), seed=92),
    Case("full-distilbert", Shape("distilbert"), seed=93),
)
LORA = (
    Case("lora-bert", Shape(layers=3), "all-linear", seed=101),
    Case("lora-xlm-roberta", Shape("xlm-roberta"), ("query", "dense"), seed=101),
    Case("lora-distilbert", Shape("distilbert"), "all-linear", seed=96),
)
BF16 = (
    Case("full-bf16", Shape(), bf16=True, seed=97),
    Case("lora-bf16", Shape("roberta"), "all-linear", bf16=True, seed=98),
)


def random_texts(seed, vocabulary):
    """[(ids, weights)]: the first and the last token of a row are special ones."""
    rows = []
    for ids, _ in encoder_test.random_documents(seed, vocabulary):
        weights = [float(0 < t < len(ids) - 1) for t in range(len(ids))]
        rows.append((ids, weights))
    return rows


def job_spec(prepared, **changes):
    spec = cases.job_spec(prepared, seed=SEED, **changes)
    return {**spec, "task": "MASKED_LM", "mlm_probability": PROBABILITY}


def oracle(prepared, order, exact=False, seed=SEED):
    """The reference's run over the same batches; an optimizer step is an epoch."""
    model = AUTO.from_pretrained(prepared.model, dtype=prepared.case.dtype)
    if prepared.adapter:
        model = documents.PeftModel.from_pretrained(
            model, str(prepared.adapter), is_trainable=True
        )
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # Its row is trained here, where it replaces a token.
    model.train()
    model = reference.exact(model) if exact else model
    settings = (seed, PROBABILITY, MASK, TOKENS)
    steps = [
        [[masks.masked(r, *prepared.rows[r], epoch, settings) for r in batch] for batch in step]
        for epoch, step in enumerate(order)
    ]
    return reference.train(model, steps, prepared.settings, masters=prepared.case.bf16)


class MaskedTest(CasesTest):
    @classmethod
    def _prepare(cls, case):
        folder = cls.folder / case.name
        model = encoder_test.random_encoder(case.shape, case.seed, AUTO)
        directory = models.write_model(model, folder / "model", case.dtype)
        adapter = None
        if case.targets:
            adapter = documents.write_adapter(model, folder / "adapter", case, None)
        rows = random_texts(case.seed, case.shape.vocabulary)
        data = datasets.write_masked(rows, folder / "data", MASK, TOKENS)
        settings = reference.Settings(lr_scheduler_type=case.scheduler, tagged=True)
        return Prepared(case, folder, directory, adapter, data, rows, settings)

    @classmethod
    def _probe(cls, case, plan="keep", steps=STEPS, **changes):
        prepared = cls.prepared(case)
        output = prepared.folder / f"{plan}-{steps}-{len(changes)}"
        request = request_of(prepared, job_spec(prepared, **changes), output)
        request.plan, request.steps = plan, steps
        return run(request)

    def violations(self, case, **change):
        prepared, ours = self.prepared(case), self.probed(case)
        theirs = oracle(prepared, ours.rows, **change)
        truth = oracle(prepared, ours.rows, exact=True, **change)
        return oracle_test.violations(ours, theirs, truth)

    def test_full_and_with_an_adapter(self):
        for case in FULL + LORA:
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

    def test_other_masks_fail(self):
        for what, sentences in self.violations(FULL[0], seed=SEED + 1).items():
            self.assertTrue(sentences, f"{what} do not show it")

    def test_bf16_is_as_near_as_theirs(self):
        for case in BF16:
            with self.subTest(case.name):
                prepared, ours = self.prepared(case), self.probed(case, steps=1)
                theirs = oracle(prepared, ours.rows)
                truth = oracle(prepared, ours.rows, exact=True)
                gradients = ours.gradients, theirs.gradients, truth.gradients
                self.assertEqual(compare.gradients_differ_bf16(*gradients), [])

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL[0], LORA[2]):
            self.expect_gradients_of_keep(case)

    def test_rows_have_their_masks_however_they_come_together(self):
        """Packed, or in batches of other sizes: the same sums in another order."""
        case = FULL[1]
        prepared, apart = self.prepared(case), self.probed(case, steps=1)
        together = {"packing": True, "max_seq_length": 128, "gradient_accumulation_steps": 1}
        packed = self.probed(case, steps=1, per_device_train_batch_size=len(LENGTHS), **together)
        self.assertAlmostEqual(packed.losses[0], apart.losses[0], delta=1e-6 * apart.losses[0])
        theirs = oracle(prepared, apart.rows[:1])
        truth = oracle(prepared, apart.rows[:1], exact=True)
        sides = (packed.gradients, apart.gradients, theirs.gradients, truth.gradients)
        self.assertEqual(compare.same_gradients(*sides), [])

    def test_a_step_without_a_hidden_token_changes_nothing(self):
        """But by the decay of weights, which is off."""
        prepared = self.prepared(FULL[2])
        spec = {**job_spec(prepared, weight_decay=0.0), "mlm_probability": 1e-9}
        found = run(request_of(prepared, spec, prepared.folder / "none"))
        self.assertEqual(found.losses, [0.0])
        model = AUTO.from_pretrained(prepared.model)
        for key, weight in model.named_parameters():
            self.assertEqual(abs(found.gradients[key]).max(), 0.0, key)
            self.assertTrue(torch.equal(torch.from_numpy(found.weights[key]), weight.data), key)

    def test_the_generator_is_the_paper_s(self):
        """Known answers of Random123, kat_vectors."""
        self.assertEqual(
            masks.philox((0, 0, 0, 0), 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
        )
        digits = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)  # Of pi.
        self.assertEqual(
            masks.philox(digits, 0x299F31D0A4093822),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        )


if __name__ == "__main__":
    unittest.main()
