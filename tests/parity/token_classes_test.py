"""Classes of tokens by BERT, RoBERTa and DistilBERT against transformers, by the criteria of
parity_test: full and LoRA with a head of PEFT's, rows padded there and not here, tokens without a
class among the others.

A reference with other classes must fail.
"""

import dataclasses
import functools
import pathlib
import tempfile
import unittest

import torch
from transformers import AutoModelForTokenClassification

from tests.harness import datasets, models
from tests.parity import classification_test as documents
from tests.parity import encoder_test, oracle_test, reference
from tests.parity.cases import Prepared
from tests.parity.classification_test import LABELS, NONE
from tests.parity.parity_test import STEPS, request_of, run

BERT = encoder_test.FULL["bert"]
DISTILBERT = encoder_test.FULL["distilbert"]
ROBERTA = dataclasses.replace(encoder_test.LORA["roberta"], seed=76)
AUTO = AutoModelForTokenClassification


def random_tags(seed, vocabulary):
    """[(ids, labels)]: a third of the tokens has none, every row has one."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for ids, label in encoder_test.random_documents(seed, vocabulary):
        drawn = torch.randint(LABELS + 2, (len(ids),), generator=generator).tolist()
        labels = [number if number < LABELS else -100 for number in drawn]
        rows.append((ids, [label] + labels[1:]))
    return rows


def other_tags(_model, rows):
    rows[:] = [
        (ids, [label if label == -100 else (label + 1) % LABELS for label in labels])
        for ids, labels in rows
    ]


class TokenClassesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.probed = staticmethod(functools.cache(cls._probe))

    @classmethod
    def _probe(cls, case):
        folder = cls.folder / case.name
        model = encoder_test.random_encoder(case.shape, case.seed, AUTO)
        directory = models.write_model(model, folder / "model")
        adapter = None
        if case.targets:
            adapter = documents.write_adapter(model, folder / "adapter", case, "TOKEN_CLS")
        rows = random_tags(case.seed, case.shape.vocabulary)
        data = datasets.write_tagged(rows, folder / "data")
        settings = reference.Settings(lr_scheduler_type=case.scheduler, tagged=True)
        prepared = Prepared(case, folder, directory, adapter, data, rows, settings)
        spec = {**documents.job_spec(prepared), "task": "TOKEN_CLASSIFICATION"}
        request = request_of(prepared, spec, folder / "run")
        request.steps = STEPS
        return prepared, run(request)

    def violations(self, case, change=None):
        prepared, ours = self.probed(case)
        theirs = documents.oracle(prepared, ours.rows, change=change, auto=AUTO)
        truth = documents.oracle(prepared, ours.rows, exact=True, change=change, auto=AUTO)
        return oracle_test.violations(ours, theirs, truth)

    def test_full_and_with_an_adapter(self):
        for case in (BERT, ROBERTA, DISTILBERT):
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

    def test_other_classes_fail(self):
        for what, sentences in self.violations(BERT, other_tags).items():
            self.assertTrue(sentences, f"{what} do not show it")

    def test_the_reference_has_transformers_loss(self):
        model = encoder_test.random_encoder(BERT.shape, 7, AUTO)
        rows = [([3, 4, 5], [1, -100, 2]), ([6, 7, 8], [0, 4, -100])]
        ids, labels = (torch.tensor(part) for part in zip(*rows))
        theirs = model(input_ids=ids, labels=labels).loss
        ours = reference.tagged_loss(model, rows, 4)
        self.assertAlmostEqual(ours.item(), theirs.item(), delta=1e-6 * theirs.item())


if __name__ == "__main__":
    unittest.main()
