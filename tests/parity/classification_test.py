"""Classification by the decoder families against transformers, by the criteria of parity_test: full
and LoRA with a head of PEFT's, from a classifier's files and from a language model's, rows padded
there and not here, rows that end in the padding's own token.

A reference that reads another token of a document, or another label, must fail.
"""

import copy
import dataclasses
import json
import pathlib
import shutil
import unittest

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from tests.harness import datasets, models
from tests.harness.models import Shape
from tests.parity import cases, compare, oracle_test, reference
from tests.parity.cases import Case, CasesTest, Prepared
from tests.parity.families_test import FULL, LORA
from tests.parity.parity_test import STEPS, request_of, run

LABELS = 5
PAD = 0  # Rows that are drawn do not have it.
LENGTHS = (2, 97, 5, 33, 64, 17, 1, 48, 12, 80, 3, 21)
NONE = {"losses": [], "gradients": [], "weights": []}


def random_classifier(shape, seed, problem=None):
    """Like models.random_model, with a head of LABELS classes."""
    torch.manual_seed(seed)
    config = models.config_of(shape)
    config.num_labels, config.pad_token_id, config.problem_type = LABELS, PAD, problem
    model = AutoModelForSequenceClassification.from_config(config)
    return models.with_random_vectors(model, shape.family)


def random_documents(seed, vocabulary):
    """[(ids, label)]; two of them end in the token that pads."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number, (ids, _) in enumerate(datasets.random_rows(seed, LENGTHS, vocabulary, False)):
        label = int(torch.randint(LABELS, (1,), generator=generator))
        rows.append((ids + [PAD] * (3 if number in (1, 4) else 0), label))
    return rows


def with_labels_of(problem, rows):
    """The documents with what a label is there: LABELS numbers, made of their class."""
    if problem == "regression":
        return [(ids, [label - 0.75 * v for v in range(LABELS)]) for ids, label in rows]
    if problem == "multi_label_classification":
        return [(ids, [float(label * 7 >> v & 1) for v in range(LABELS)]) for ids, label in rows]
    return rows


def prepare(case, folder, problem=None):
    """Model, adapter and prepared dataset of a case on disk."""
    folder = pathlib.Path(folder)
    model = random_classifier(case.shape, case.seed, problem)
    directory = models.write_model(model, folder / "model", case.dtype, case.spelling)
    adapter = None
    if case.targets:
        adapter = write_adapter(model, folder / "adapter", case)
    rows = with_labels_of(problem, random_documents(case.seed, case.shape.vocabulary))
    data = datasets.write_documents(rows, folder / "data")
    settings = reference.Settings(
        lr_scheduler_type=case.scheduler, documents=True, label_smoothing_factor=case.smoothing
    )
    return Prepared(case, folder, directory, adapter, data, rows, settings)


def write_adapter(model, folder, case, task_type="SEQ_CLS"):
    """PEFT's own: it adds the head to modules_to_save by itself."""
    torch.manual_seed(case.seed + 100)
    config = LoraConfig(task_type=task_type, bias="none", **cases.lora_arguments(case))
    wrapped = get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.1 * torch.randn_like(weight))
            elif "modules_to_save" in name:
                weight.add_(0.05 * torch.randn_like(weight))
    wrapped.save_pretrained(str(folder))
    return folder


def job_spec(prepared, **changes):
    spec = cases.job_spec(prepared, **changes)
    spec["task"] = "SEQUENCE_CLASSIFICATION"
    spec["num_labels"] = LABELS
    if prepared.case.targets:
        spec["lora"]["modules_to_save"] = ["classifier", "score"]
    return spec


def oracle(prepared, order, exact=False, change=None, auto=AutoModelForSequenceClassification):
    """The reference's run over the same batches, with one thing changed if asked."""
    rows = list(prepared.rows)
    model = auto.from_pretrained(prepared.model, dtype=prepared.case.dtype)
    if prepared.adapter:
        model = PeftModel.from_pretrained(model, str(prepared.adapter), is_trainable=True)
    model.train()
    if change:
        change(model, rows)
    model = reference.exact(model) if exact else model
    steps = cases.in_order(rows, order)
    return reference.train(model, steps, prepared.settings)


def other_labels(_model, rows):
    rows[:] = [(ids, (label + 1) % LABELS) for ids, label in rows]


def other_numbers(_model, rows):
    rows[:] = [(ids, numbers[1:] + numbers[:1]) for ids, numbers in rows]


class ClassificationTest(CasesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prepared = cls.prepared  # A case without a problem is one case, however it is asked for.
        cls.prepared = staticmethod(lambda case, problem=None: prepared(case, problem))

    @classmethod
    def _prepare(cls, case, problem):
        return prepare(case, cls.folder / f"classes-{case.name}-{problem}", problem)

    @classmethod
    def _probe(cls, case, plan="keep", steps=STEPS, problem=None):
        prepared = cls.prepared(case, problem)
        request = request_of(prepared, job_spec(prepared), prepared.folder / f"{plan}-{steps}")
        request.plan, request.steps = plan, steps
        return run(request)

    def violations(self, case, change=None, problem=None):
        prepared = self.prepared(case, problem)
        ours = self.probed(case, problem=problem)
        theirs = oracle(prepared, ours.rows, change=change)
        truth = oracle(prepared, ours.rows, exact=True, change=change)
        return oracle_test.violations(ours, theirs, truth)

    def test_every_family_in_full(self):
        for case in FULL.values():
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

    def test_every_family_with_an_adapter(self):
        for case in LORA.values():
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL["qwen2"], LORA["gemma2"]):
            self.expect_gradients_of_keep(case)

    def test_packed_documents_do_not_see_each_other(self):
        case = FULL["mistral"]
        prepared, padded = self.prepared(case), self.probed(case, steps=1)
        together = {"packing": True, "max_seq_length": 128, "gradient_accumulation_steps": 1}
        together["per_device_train_batch_size"] = len(LENGTHS)
        request = request_of(prepared, job_spec(prepared, **together), prepared.folder / "packed")
        packed = run(request)
        self.assertEqual(sorted(packed.rows[0][0]), list(range(len(LENGTHS))))
        theirs = oracle(prepared, padded.rows)
        truth = oracle(prepared, padded.rows, exact=True)
        found = compare.same_gradients(
            packed.gradients, padded.gradients, theirs.gradients, truth.gradients
        )
        self.assertEqual(found, [])

    def test_smoothed_labels(self):
        """With labels that are not smoothed it must fail."""
        case = dataclasses.replace(LORA["qwen2"], name="smoothed-qwen2", smoothing=0.2)
        self.assertEqual(self.violations(case), NONE)
        prepared, ours = self.prepared(case), self.probed(case, problem=None)
        settings = dataclasses.replace(prepared.settings, label_smoothing_factor=0.0)
        plain = dataclasses.replace(prepared, settings=settings)
        runs = [oracle(plain, ours.rows, exact=exact) for exact in (False, True)]
        for what, sentences in oracle_test.violations(ours, *runs).items():
            self.assertTrue(sentences, f"{what} do not show it")

    def test_other_labels_fail(self):
        for what, sentences in self.violations(FULL["qwen3"], other_labels).items():
            self.assertTrue(sentences, f"{what} do not show it")

    def test_labels_that_are_no_class(self):
        """A language model's head of numbers or of several labels; with others it must fail."""
        for case, problem in (
            (FULL["qwen3"], "regression"),
            (LORA["mistral"], "multi_label_classification"),
        ):
            with self.subTest(problem):
                self.assertEqual(self.violations(case, problem=problem), NONE)
                for what, sentences in self.violations(case, other_numbers, problem).items():
                    self.assertTrue(sentences, f"{what} do not show it")

    def test_the_reference_has_transformers_losses(self):
        for problem in (None, "regression", "multi_label_classification"):
            model = random_classifier(FULL["qwen3"].shape, 7, problem)
            rows = [([3, 4, 5], label) for label in (1, 3)]
            rows = with_labels_of(problem, rows)
            labels = torch.tensor([label for _, label in rows])
            theirs = model(input_ids=torch.tensor([ids for ids, _ in rows]), labels=labels).loss
            ours = reference.document_loss(model, rows, len(rows))
            self.assertAlmostEqual(ours.item(), theirs.item(), delta=1e-6 * theirs.item())

    def test_reading_the_padding_fails(self):
        """Of a model that does not say what pads, Snug reads the last token whatever it is."""
        case = FULL["qwen3"]
        prepared = self.prepared(case)
        unpadded = prepared.folder / "model-without-padding"
        shutil.copytree(prepared.model, unpadded)
        config = json.loads((unpadded / "config.json").read_text())
        config["pad_token_id"] = None
        (unpadded / "config.json").write_text(json.dumps(config))
        request = request_of(prepared, job_spec(prepared), prepared.folder / "no-padding")
        request.model, request.steps = unpadded, STEPS
        ours = run(request)
        theirs = oracle(prepared, ours.rows)
        truth = oracle(prepared, ours.rows, exact=True)
        for what, sentences in oracle_test.violations(ours, theirs, truth).items():
            self.assertTrue(sentences, f"{what} do not show it")

    def test_a_new_head_is_drawn_as_transformers_draws_it(self):
        """Of a language model's files: mean 0, the spread of initializer_range, by the seed."""
        shape = Shape(width=256, head_width=64, tied=True)
        case = Case("new-head", shape, seed=61)
        folder = self.folder / "new-head"
        model = models.write_model(models.random_model(shape, case.seed), folder / "model")
        rows = random_documents(case.seed, shape.vocabulary)
        data = datasets.write_documents(rows, folder / "data")
        prepared = Prepared(case, folder, model, None, data, rows, reference.Settings())
        heads = []
        for seed in (1, 2, 1):
            spec = job_spec(prepared, seed=seed, learning_rate=1e-12, weight_decay=0.0)
            output = folder / f"run-{len(heads)}"
            run(request_of(prepared, spec, output))
            heads.append(load_file(output / "weights.safetensors")["score.weight"])
        self.assertEqual(heads[0].shape, (LABELS, 256))
        self.assertTrue(torch.equal(heads[0], heads[2]))
        self.assertFalse(torch.equal(heads[0], heads[1]))
        both = torch.cat(heads[:2]).flatten()
        error = 0.12 / len(both) ** 0.5  # Of the mean, and times root 1/2 of the spread.
        self.assertLess(abs(both.mean().item()), 4 * error)
        self.assertLess(abs(both.std().item() - 0.12), 3 * error)

    def test_bf16_is_as_near_as_theirs(self):
        case = dataclasses.replace(LORA["qwen2"], name="bf16-qwen2", bf16=True)
        prepared, ours = self.prepared(case), self.probed(case, steps=1)
        theirs = oracle(prepared, ours.rows)
        truth = oracle(prepared, ours.rows, exact=True)
        found = compare.gradients_differ_bf16(ours.gradients, theirs.gradients, truth.gradients)
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
