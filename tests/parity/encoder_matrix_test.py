"""Every family of encoders of texts with every head it has, in full and by LoRA, against
transformers: in fp32 by all criteria of parity_test, in bf16 by the first gradients. The tests of
each head have some of these, and what else there is to say of them.
"""

import dataclasses
import unittest

from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from tests.harness import datasets, models
from tests.parity import classification_test as documents
from tests.parity import compare, encoder_test, masked_test, oracle_test, reference
from tests.parity import t5_encoder_test, token_classes_test
from tests.parity.cases import Case, CasesTest, Prepared
from tests.parity.classification_test import NONE
from tests.parity.encoder_test import Shape
from tests.parity.parity_test import STEPS, request_of, run

FAMILIES = ("bert", "roberta", "xlm-roberta", "distilbert")
TARGETS = {"full": None, "lora": "all-linear"}
SEED = 400


@dataclasses.dataclass(frozen=True)
class Head:
    """`rows`: (seed, vocabulary) -> rows; `write`: (rows, folder) -> prepared data; `spec`:
    prepared case -> a job's; `oracle`: (prepared case, batches, exact=False) -> the reference's
    run."""

    auto: type
    peft: str | None
    rows: callable
    write: callable
    spec: callable
    oracle: callable
    kind: str

    def settings(self, case):
        return reference.Settings(lr_scheduler_type=case.scheduler, **{self.kind: True})


def tags_spec(prepared):
    return {**documents.job_spec(prepared), "task": "TOKEN_CLASSIFICATION"}


def tags_oracle(prepared, order, exact=False):
    return documents.oracle(prepared, order, exact, auto=AutoModelForTokenClassification)


def write_masked(rows, folder):
    return datasets.write_masked(rows, folder, masked_test.MASK, masked_test.TOKENS)


DOCUMENTS = Head(
    AutoModelForSequenceClassification,
    "SEQ_CLS",
    encoder_test.random_documents,
    datasets.write_documents,
    documents.job_spec,
    documents.oracle,
    "documents",
)
TAGS = Head(
    AutoModelForTokenClassification,
    "TOKEN_CLS",
    token_classes_test.random_tags,
    datasets.write_tagged,
    tags_spec,
    tags_oracle,
    "tagged",
)
MASKED = Head(
    masked_test.AUTO,
    None,
    masked_test.random_texts,
    write_masked,
    masked_test.job_spec,
    masked_test.oracle,
    "tagged",
)
HEADS = {"documents": DOCUMENTS, "tags": TAGS, "masked": MASKED}


class EncoderMatrixTest(CasesTest):
    @classmethod
    def _prepare(cls, case, head):
        folder = cls.folder / f"{case.name}-{head.kind}-{head.peft}"
        if case.shape.__class__ is Shape:
            model = encoder_test.random_encoder(case.shape, case.seed, head.auto)
        else:
            model = t5_encoder_test.random_t5(case, head.auto)
        directory = models.write_model(model, folder / "model", case.dtype)
        adapter = None
        if case.targets:
            adapter = documents.write_adapter(model, folder / "adapter", case, head.peft)
        rows = head.rows(case.seed, case.shape.vocabulary)
        data = head.write(rows, folder / "data")
        return Prepared(case, folder, directory, adapter, data, rows, head.settings(case))

    @classmethod
    def _probe(cls, case, head, steps):
        prepared = cls.prepared(case, head)
        request = request_of(prepared, head.spec(prepared), prepared.folder / "run")
        request.steps = steps
        return run(request)

    def holds(self, name, shape, head):
        """All criteria, of both methods at both precisions."""
        for method, targets in TARGETS.items():
            case = Case(f"{method}-{name}", shape, targets, seed=SEED)
            with self.subTest(case.name):
                prepared, ours = self.prepared(case, head), self.probed(case, head, STEPS)
                theirs = head.oracle(prepared, ours.rows)
                truth = head.oracle(prepared, ours.rows, exact=True)
                self.assertEqual(oracle_test.violations(ours, theirs, truth), NONE)
            case = dataclasses.replace(case, name=f"bf16-{case.name}", bf16=True)
            with self.subTest(case.name):
                prepared, ours = self.prepared(case, head), self.probed(case, head, 1)
                theirs = head.oracle(prepared, ours.rows)
                truth = head.oracle(prepared, ours.rows, exact=True)
                gradients = ours.gradients, theirs.gradients, truth.gradients
                self.assertEqual(compare.gradients_differ_bf16(*gradients), [])

    def test_every_family_with_every_head(self):
        for family in FAMILIES:
            for name, head in HEADS.items():
                self.holds(f"{family}-{name}", Shape(family), head)

    def test_t5_s_encoder(self):
        for gated in (False, True):
            self.holds(f"t5-{gated}", t5_encoder_test.Shape(gated), TAGS)


if __name__ == "__main__":
    unittest.main()
