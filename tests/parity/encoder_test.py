"""Classification by BERT, RoBERTa and DistilBERT against transformers, by the criteria of
parity_test: full and LoRA with a head of PEFT's, rows padded there and not here.

A reference whose attention is causal, or whose tokens have no types, or whose positions are
shifted, must fail.
"""

import dataclasses
import unittest

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from tests.harness import datasets, models
from tests.parity import classification_test as documents
from tests.parity import compare, dropout_test, oracle_test, reference
from tests.parity.cases import Case, CasesTest, Prepared
from tests.parity.classification_test import LABELS, LENGTHS, NONE, job_spec, oracle
from tests.parity.parity_test import STEPS, request_of, run

CONFIGS = {"bert": BertConfig, "roberta": RobertaConfig, "xlm-roberta": XLMRobertaConfig}


@dataclasses.dataclass(frozen=True)
class Shape:
    """What an encoder's config.json says."""

    family: str = "bert"
    layers: int = 2
    width: int = 48
    heads: int = 3
    mlp_width: int = 112
    vocabulary: int = 131
    activation: str = "gelu"


FULL = {
    "bert": Case("full-bert", Shape(), seed=71),
    "roberta": Case("full-roberta", Shape("roberta", activation="relu"), seed=72),
    "distilbert": Case("full-distilbert", Shape("distilbert"), seed=76),
}
LORA = {
    "bert": Case("lora-bert", Shape(), "all-linear", seed=84),
    "roberta": Case("lora-roberta", Shape("roberta", layers=3), ("query", "dense"), seed=74),
    "distilbert": Case("lora-distilbert", Shape("distilbert"), ("q_lin", "lin2"), seed=77),
}


def config_of(shape):
    """Without dropout: with it there is nothing to compare one by one."""
    if shape.family == "distilbert":
        return DistilBertConfig(
            vocab_size=shape.vocabulary,
            dim=shape.width,
            n_layers=shape.layers,
            n_heads=shape.heads,
            hidden_dim=shape.mlp_width,
            activation=shape.activation,
            max_position_embeddings=131,
            dropout=0.0,
            attention_dropout=0.0,
            seq_classif_dropout=0.0,
            initializer_range=0.2,
            num_labels=LABELS,
        )
    return CONFIGS[shape.family](
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.mlp_width,
        hidden_act=shape.activation,
        max_position_embeddings=131,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        type_vocab_size=2,
        initializer_range=0.2,
        num_labels=LABELS,
    )


def random_encoder(shape, seed, auto=AutoModelForSequenceClassification, problem=None):
    """With norms and biases that are not those of a new model."""
    torch.manual_seed(seed)
    config = config_of(shape)
    config.problem_type = problem
    model = auto.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.lower().replace("_", "").endswith("layernorm.weight"):
                weight.copy_(1.0 + 0.2 * torch.randn_like(weight))
            elif name.endswith(".bias"):
                weight.copy_(0.3 * torch.randn_like(weight))
    return model


def random_documents(seed, vocabulary):
    """Without the padding's ids, which RoBERTa gives no positions of their own."""
    return [
        ([max(3, number) for number in ids], label)
        for ids, label in documents.random_documents(seed, vocabulary)
    ]


def causal(model, _rows):
    for module in model.modules():
        if hasattr(module, "config"):
            module.config.is_decoder = True


def untyped(model, _rows):
    with torch.no_grad():
        _table(model, "token_type_embeddings").weight.zero_()


def shifted(model, _rows):
    table = _table(model, "position_embeddings").weight
    with torch.no_grad():
        table.copy_(table.roll(1, 0))


# Where config.json has a rate of dropout.
PLACES = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    "roberta": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    "distilbert": ("dropout", "attention_dropout", "seq_classif_dropout"),
}
DRAWN = 3  # Documents whose loss is drawn many times.


def dropping(prepared, folder, rates):
    """The case's model with other rates of dropout, in the order of PLACES."""
    model = AutoModelForSequenceClassification.from_pretrained(prepared.model)
    for place, rate in zip(PLACES[prepared.case.shape.family], rates):
        setattr(model.config, place, rate)
    return models.write_model(model, folder)


def losses_of_transformers(folder, rows):
    """The mean over documents, as often as dropout_test draws."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).train()
    torch.manual_seed(7)

    def loss(ids, label):
        return model(torch.tensor([ids]), labels=torch.tensor([label])).loss.item()

    with torch.no_grad():
        return [sum(loss(*row) for row in rows) / len(rows) for _ in range(dropout_test.DRAWS)]


def _table(model, name):
    return next(m for path, m in model.named_modules() if path.endswith(name))


class EncoderTest(CasesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prepared = cls.prepared  # A case without a problem is one case, however it is asked for.
        cls.prepared = staticmethod(lambda case, problem=None: prepared(case, problem))

    @classmethod
    def _prepare(cls, case, problem):
        folder = cls.folder / f"{case.name}-{problem}"
        model = random_encoder(case.shape, case.seed, problem=problem)
        directory = models.write_model(model, folder / "model")
        adapter = None
        if case.targets:
            adapter = documents.write_adapter(model, folder / "adapter", case)
        rows = random_documents(case.seed, case.shape.vocabulary)
        rows = documents.with_labels_of(problem, rows)
        data = datasets.write_documents(rows, folder / "data")
        settings = reference.Settings(lr_scheduler_type=case.scheduler, documents=True)
        return Prepared(case, folder, directory, adapter, data, rows, settings)

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

    def test_labels_that_are_no_class(self):
        for case, problem in (
            (FULL["bert"], "multi_label_classification"),
            (LORA["roberta"], "regression"),
        ):
            with self.subTest(problem):
                self.assertEqual(self.violations(case, problem=problem), NONE)

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL["bert"], LORA["roberta"]):
            self.expect_gradients_of_keep(case)

    def test_packed_documents_do_not_see_each_other(self):
        case = FULL["bert"]
        prepared, padded = self.prepared(case), self.probed(case, steps=1)
        together = {"packing": True, "max_seq_length": 128, "gradient_accumulation_steps": 1}
        together["per_device_train_batch_size"] = len(LENGTHS)
        packed = run(request_of(prepared, job_spec(prepared, **together), prepared.folder / "pack"))
        theirs = oracle(prepared, padded.rows)
        truth = oracle(prepared, padded.rows, exact=True)
        # Softmax does not see the bias of keys: what a run gives it is rounding alone.
        silent = compare.silent_tensors(truth.gradients)
        self.assertEqual({key.rsplit(".", 2)[-2:] == ["key", "bias"] for key in silent}, {True})
        sides = (packed.gradients, padded.gradients, theirs.gradients, truth.gradients)
        self.assertEqual(compare.same_gradients(*sides), [])

    def test_a_reference_without_one_trait_fails(self):
        for family, change in (("bert", causal), ("bert", untyped), ("roberta", shifted)):
            with self.subTest(change.__name__):
                for what, sentences in self.violations(FULL[family], change).items():
                    self.assertTrue(sentences, f"{what} do not show it")

    def test_files_of_a_model_of_masked_tokens_get_a_new_head(self):
        """Under the names that layer norms had in TensorFlow; a pooler is drawn with the head."""
        case = Case("new-head", Shape(), seed=75)
        folder = self.folder / "masked"
        model = random_encoder(case.shape, case.seed, AutoModelForMaskedLM)
        directory = models.write_model(model, folder / "model")
        path = directory / "model.safetensors"
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        tensors = {}
        for key, tensor in load_file(path).items():
            for name, spelling in old.items():
                key = key.replace(name, spelling)
            tensors[key] = tensor
        save_file(tensors, path, {"format": "pt"})
        rows = random_documents(case.seed, case.shape.vocabulary)
        data = datasets.write_documents(rows, folder / "data")
        prepared = Prepared(case, folder, directory, None, data, rows, reference.Settings())
        spec = job_spec(prepared, learning_rate=1e-12, weight_decay=0.0)
        run(request_of(prepared, spec, folder / "run"))
        weights = load_file(folder / "run" / "weights.safetensors")
        self.assertFalse(weights["classifier.bias"].abs().max() > 1e-6)
        self.assertAlmostEqual(weights["bert.pooler.dense.weight"].std().item(), 0.2, delta=0.01)
        name = "bert.encoder.layer.1.output.LayerNorm.weight"
        theirs = dict(model.named_parameters())[name]
        self.assertTrue(torch.allclose(weights[name], theirs, atol=1e-6))

    def test_files_without_a_head_get_one(self):
        """Whose names lack the model's: BertModel, whose pooler is read, RobertaModel, whose is
        not, and DistilBertModel, without one."""
        for case in (FULL[family] for family in ("bert", "roberta", "distilbert")):
            with self.subTest(case.name):
                folder = self.folder / f"headless-{case.name}"
                model = random_encoder(case.shape, case.seed, AutoModel)
                directory = models.write_model(model, folder / "model")
                rows = random_documents(case.seed, case.shape.vocabulary)
                data = datasets.write_documents(rows, folder / "data")
                prepared = Prepared(
                    case, folder, directory, None, data, rows, reference.Settings()
                )
                spec = job_spec(prepared, learning_rate=1e-12, weight_decay=0.0)
                run(request_of(prepared, spec, folder / "run"))
                weights = load_file(folder / "run" / "weights.safetensors")
                theirs = {
                    f"{model.base_model_prefix}.{name}": weight
                    for name, weight in model.named_parameters()
                    if case.shape.family == "bert" or "pooler" not in name
                }
                self.assertLess(set(theirs), set(weights))
                for name, weight in theirs.items():
                    self.assertTrue(torch.allclose(weights[name], weight, atol=1e-6), name)
                self.assertTrue(all("classifier" in key for key in set(weights) - set(theirs)))

    def test_dropout_is_drawn_by_the_seed_and_again_in_backward(self):
        case = FULL["bert"]
        prepared = self.prepared(case)
        dropping = self.folder / "dropping"
        model = AutoModelForSequenceClassification.from_pretrained(prepared.model)
        model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.2
        model.config.classifier_dropout = 0.3
        models.write_model(model, dropping)
        found = {}
        for name, plan, seed in (("a", "keep", 1), ("b", "recompute", 1), ("c", "keep", 2)):
            spec = job_spec(prepared, seed=seed)
            request = request_of(prepared, spec, self.folder / f"dropout-{name}")
            request.model, request.plan = dropping, plan
            found[name] = run(request)
        for key, gradient in found["a"].gradients.items():
            self.assertEqual(gradient.tobytes(), found["b"].gradients[key].tobytes(), key)
        self.assertNotEqual(found["a"].losses, found["c"].losses)
        self.assertNotEqual(found["a"].losses, self.probed(case, steps=1).losses)

    def test_dropout_is_everywhere_where_transformers_has_it(self):
        rate = dropout_test.RATE
        for family, rates in (
            ("bert", (rate, 0.0, 0.0)),
            ("bert", (0.0, rate, 0.0)),
            ("roberta", (0.0, 0.0, rate)),
            ("distilbert", (rate, rate, rate)),
        ):
            with self.subTest(family, rates=rates):
                prepared = self.prepared(FULL[family])
                rows = [row for row in prepared.rows if row[1] >= 0][:DRAWN]
                folder = self.folder / f"drawing-{family}-{rates}"
                spec = job_spec(
                    prepared,
                    learning_rate=0.0,
                    weight_decay=0.0,
                    per_device_train_batch_size=DRAWN,
                    gradient_accumulation_steps=1,
                    max_steps=dropout_test.DRAWS,
                )
                request = request_of(prepared, spec, folder / "draws")
                request.model = dropping(prepared, folder / "model", rates)
                request.steps = dropout_test.DRAWS
                request.data = datasets.write_documents(rows, folder / "data")
                ours = run(request).losses
                theirs = losses_of_transformers(request.model, rows)
                self.assertEqual(dropout_test.unlike(ours, theirs), [])
                less = dropping(prepared, folder / "less", [rate / 3 for rate in rates])
                self.assertTrue(dropout_test.unlike(ours, losses_of_transformers(less, rows)))

    def test_a_job_may_leave_the_model_s_dropout_out(self):
        """Of config.json's rates, hidden, of attention and of the head, none is left."""
        for case in (FULL["bert"], FULL["roberta"]):
            prepared = self.prepared(case)
            dropping = self.folder / f"left-out-{case.name}"
            model = AutoModelForSequenceClassification.from_pretrained(prepared.model)
            model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.2
            models.write_model(model, dropping)
            output = self.folder / f"no-dropout-{case.name}"
            request = request_of(prepared, job_spec(prepared, dropout="0"), output)
            request.model = dropping
            found, plain = run(request), self.probed(case, steps=1)
            self.assertEqual(found.losses, plain.losses)
            for key, gradient in found.gradients.items():
                self.assertEqual(gradient.tobytes(), plain.gradients[key].tobytes(), key)


if __name__ == "__main__":
    unittest.main()
