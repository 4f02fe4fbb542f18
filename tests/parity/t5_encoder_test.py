"""Classes of tokens by T5's encoder alone against transformers, by the criteria of parity_test:
full from files of its class, LoRA from those of the whole model; with dropout by the losses'
distribution.

A reference without biases by distance, or with other classes, must fail.
"""

import unittest

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoModelForTokenClassification, T5EncoderModel

from tests.harness import datasets, models
from tests.harness.long_set import in_the_long_set
from tests.parity import classification_test as documents
from tests.parity import compare, dropout_test, oracle_test, reference, seq2seq_test
from tests.parity.cases import Case, CasesTest, Prepared
from tests.parity.classification_test import LABELS, NONE
from tests.parity.parity_test import STEPS, request_of, run
from tests.parity.seq2seq_test import Shape
from tests.parity.token_classes_test import other_tags, random_tags

AUTO = AutoModelForTokenClassification
FULL = Case("full-t5-encoder", Shape(True), seed=95)
LORA = Case("lora-t5-encoder", Shape(layers=3), ("q", "v", "wi", "wo"), seed=96)


def random_t5(case, auto):
    """As seq2seq_test has it, with a head of classes that is not steep."""
    torch.manual_seed(case.seed)
    config = seq2seq_test.config_of(case.shape)
    config.num_labels = LABELS
    model = auto.from_config(config) if hasattr(auto, "from_config") else auto(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("layer_norm.weight"):
                weight.copy_(1.0 + 0.2 * torch.randn_like(weight))
            elif "relative_attention_bias" in name:
                weight.copy_(torch.randn_like(weight))
            elif name.endswith("shared.weight"):
                weight.mul_(0.5)
            elif name.startswith("classifier"):
                weight.copy_(0.3 * torch.randn_like(weight))
    return model


def job_spec(prepared, **changes):
    return {**documents.job_spec(prepared, **changes), "task": "TOKEN_CLASSIFICATION"}


def dropping(prepared, folder, rates):
    model = AUTO.from_pretrained(prepared.model)
    model.config.dropout_rate, model.config.classifier_dropout = rates
    return models.write_model(model, folder)


def losses_of_transformers(folder, rows):
    """Of all rows, as often as dropout_test draws."""
    model = AUTO.from_pretrained(folder).train()
    divisor = sum(label != -100 for _, labels in rows for label in labels)
    torch.manual_seed(7)
    with torch.no_grad():
        return [
            reference.tagged_loss(model, rows, divisor).item() for _ in range(dropout_test.DRAWS)
        ]


class T5EncoderTest(CasesTest):
    @classmethod
    def _prepare(cls, case):
        folder = cls.folder / case.name
        model = random_t5(case, AUTO)
        adapter = None
        if case.targets:
            adapter = documents.write_adapter(model, folder / "adapter", case, "TOKEN_CLS")
            model = random_t5(case, AutoModelForSeq2SeqLM)
        directory = models.write_model(model, folder / "model")
        rows = random_tags(case.seed, case.shape.vocabulary)
        data = datasets.write_tagged(rows, folder / "data")
        settings = reference.Settings(lr_scheduler_type=case.scheduler, tagged=True)
        return Prepared(case, folder, directory, adapter, data, rows, settings)

    @classmethod
    def _probe(cls, case, plan="keep", steps=STEPS):
        prepared = cls.prepared(case)
        request = request_of(prepared, job_spec(prepared), prepared.folder / f"{plan}-{steps}")
        request.plan, request.steps = plan, steps
        return run(request)

    def violations(self, case, change=None):
        prepared, ours = self.prepared(case), self.probed(case)
        theirs = documents.oracle(prepared, ours.rows, change=change, auto=AUTO)
        truth = documents.oracle(prepared, ours.rows, exact=True, change=change, auto=AUTO)
        return oracle_test.violations(ours, theirs, truth)

    def test_in_full_and_with_an_adapter(self):
        for case in (FULL, LORA):
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

    def test_a_reference_without_one_trait_fails(self):
        for change in (seq2seq_test.without_biases, other_tags):
            with self.subTest(change.__name__):
                for what, sentences in self.violations(FULL, change).items():
                    self.assertTrue(sentences, f"{what} do not show it")

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL, LORA):
            self.expect_gradients_of_keep(case)

    def test_packed_documents_do_not_see_each_other(self):
        prepared, padded = self.prepared(FULL), self.probed(FULL, steps=1)
        together = {"packing": True, "max_seq_length": 128, "gradient_accumulation_steps": 1}
        together["per_device_train_batch_size"] = len(prepared.rows)
        packed = run(request_of(prepared, job_spec(prepared, **together), prepared.folder / "pack"))
        theirs = documents.oracle(prepared, padded.rows, auto=AUTO)
        truth = documents.oracle(prepared, padded.rows, exact=True, auto=AUTO)
        sides = (packed.gradients, padded.gradients, theirs.gradients, truth.gradients)
        self.assertEqual(compare.same_gradients(*sides), [])

    def test_files_without_a_head_get_one(self):
        """Whose keys lack the name that the class with a head has for the model."""
        prepared = self.prepared(FULL)
        model = random_t5(FULL, T5EncoderModel)
        request = request_of(
            prepared,
            job_spec(prepared, learning_rate=1e-12, weight_decay=0.0),
            self.folder / "headless" / "run",
        )
        request.model = models.write_model(model, self.folder / "headless" / "model")
        run(request)
        weights = load_file(self.folder / "headless" / "run" / "weights.safetensors")
        theirs = {f"transformer.{name}": weight for name, weight in model.named_parameters()}
        self.assertEqual(set(weights) - set(theirs), {"classifier.weight", "classifier.bias"})
        for name, weight in theirs.items():
            self.assertTrue(torch.allclose(weights[name], weight, atol=1e-6), name)
        self.assertAlmostEqual(weights["classifier.weight"].std().item(), 1.0, delta=0.2)

    @in_the_long_set
    def test_dropout_is_everywhere_where_transformers_has_it(self):
        prepared, rate = self.prepared(FULL), dropout_test.RATE
        rows = prepared.rows[:3]
        for rates in ((rate, 0.0), (0.0, rate)):
            with self.subTest(rates=rates):
                folder = self.folder / f"drawing-{rates}"
                spec = job_spec(
                    prepared,
                    learning_rate=0.0,
                    weight_decay=0.0,
                    per_device_train_batch_size=len(rows),
                    gradient_accumulation_steps=1,
                    max_steps=dropout_test.DRAWS,
                )
                request = request_of(prepared, spec, folder / "draws")
                request.model = dropping(prepared, folder / "model", rates)
                request.steps = dropout_test.DRAWS
                request.data = datasets.write_tagged(rows, folder / "data")
                ours = run(request).losses
                theirs = losses_of_transformers(request.model, rows)
                self.assertEqual(dropout_test.unlike(ours, theirs), [])
                less = dropping(prepared, folder / "less", [rate / 3 for rate in rates])
                self.assertTrue(dropout_test.unlike(ours, losses_of_transformers(less, rows)))


if __name__ == "__main__":
    unittest.main()
