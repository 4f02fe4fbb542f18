"""T5 against transformers, by the criteria of parity_test: v1.0 and v1.1, full and LoRA, fp32 and
bf16, sources and targets padded there and not here; with dropout by the losses' distribution.

A reference without biases by distance, whose decoder does not read the encoder, or that scales what
its head reads otherwise, must fail.
"""

import copy
import dataclasses
import json
import shutil
import unittest

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, T5Config

from tests.harness import datasets, models
from tests.parity import cases, compare, dropout_test, oracle_test, reference
from tests.parity.cases import Case, CasesTest, Prepared
from tests.parity.classification_test import NONE
from tests.parity.parity_test import STEPS, request_of, run

PAD, START = 0, 3
SOURCES = (9, 70, 1, 33, 64, 17, 2, 40)
TARGETS = (2, 33, 5, 1, 65, 7, 30, 21)
DRAWN = 3  # Rows whose loss is drawn many times.


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a T5's config.json says."""

    gated: bool = False
    layers: int = 2
    decoder_layers: int = 2
    width: int = 48
    heads: int = 3
    head_width: int = 20  # Not width / heads.
    mlp_width: int = 112
    vocabulary: int = 131
    buckets: int = 8
    farthest: int = 20


FULL = {
    "v1.0": Case("full-t5", Shape(), batch=8, seed=91),
    "v1.1": Case("full-t5-1.1", Shape(True, layers=1), batch=8, seed=92),
}
LORA = {
    "v1.0": Case("lora-t5", Shape(decoder_layers=1), ("q", "v"), batch=8, seed=93),
    "v1.1": Case(
        "lora-t5-1.1", Shape(True, layers=3), "all-linear", batch=8, seed=94, smoothing=0.2
    ),
}

BF16_RUNS = 3  # Of each, from its seed on.
BF16 = (
    Case("bf16-full-t5-1.1", Shape(True, layers=1), bf16=True, seed=301),
    Case("bf16-lora-t5", Shape(), ("q", "v", "wo"), bf16=True, seed=302),
)


def config_of(shape):
    """Without dropout: with it there is nothing to compare one by one."""
    return T5Config(
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        d_kv=shape.head_width,
        d_ff=shape.mlp_width,
        num_layers=shape.layers,
        num_decoder_layers=shape.decoder_layers,
        num_heads=shape.heads,
        relative_attention_num_buckets=shape.buckets,
        relative_attention_max_distance=shape.farthest,
        feed_forward_proj="gated-gelu" if shape.gated else "relu",
        tie_word_embeddings=not shape.gated,
        dropout_rate=0.0,
        pad_token_id=PAD,
        decoder_start_token_id=START,
    )


def random_t5(shape, seed):
    """With norms that are not those of a new model and biases that matter."""
    torch.manual_seed(seed)
    model = AutoModelForSeq2SeqLM.from_config(config_of(shape))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("layer_norm.weight"):
                weight.copy_(1.0 + 0.2 * torch.randn_like(weight))
            elif "relative_attention_bias" in name:
                weight.copy_(torch.randn_like(weight))
            elif name == "shared.weight":
                weight.mul_(0.5)
    return model


def write_t5(model, shape, folder, dtype):
    """As the hub has v1.1: with a head of its own, which config.json does not tie."""
    directory = models.write_model(model, folder, dtype)
    if not shape.gated:
        return directory
    path = directory / "model.safetensors"
    tensors = load_file(path)
    generator = torch.Generator().manual_seed(5)
    head = 0.3 * torch.randn(tensors["shared.weight"].shape, generator=generator)
    tensors["lm_head.weight"] = head.to(dtype)
    save_file(tensors, path, {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    config["tie_word_embeddings"] = False
    del config["scale_decoder_outputs"]
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def random_pairs(seed, vocabulary):
    """[(source ids, target ids, weights)]; of some targets not every token is trained."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for source, target in zip(SOURCES, TARGETS):
        draw = [
            torch.randint(4, vocabulary, (n,), generator=generator).tolist()
            for n in (source, target)
        ]
        weights = [0.0 if t % 5 == 1 and target > 20 else 1.0 for t in range(target)]
        rows.append((draw[0], draw[1], weights))
    return rows


def write_adapter(model, folder, case):
    torch.manual_seed(case.seed + 100)
    config = LoraConfig(task_type="SEQ_2_SEQ_LM", bias="none", **cases.lora_arguments(case))
    wrapped = get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.1 * torch.randn_like(weight))
    wrapped.save_pretrained(str(folder))
    return folder


def dropping(prepared, folder, rate):
    """The case's model with another dropout_rate."""
    shutil.copytree(prepared.model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dropout_rate": rate}))
    return folder


def losses_of_transformers(model, rows):
    """Of all rows, as often as dropout_test draws."""
    model = AutoModelForSeq2SeqLM.from_pretrained(model).train()
    divisor = sum(sum(weights) for _, _, weights in rows)
    torch.manual_seed(7)
    with torch.no_grad():
        return [
            reference.target_loss(model, rows, divisor).item() for _ in range(dropout_test.DRAWS)
        ]


def oracle(prepared, order, exact=False, change=None, masters=False):
    """The reference's run over the same batches, with one thing changed if asked."""
    rows = list(prepared.rows)
    model = AutoModelForSeq2SeqLM.from_pretrained(prepared.model, dtype=prepared.case.dtype)
    if prepared.adapter:
        model = PeftModel.from_pretrained(model, str(prepared.adapter), is_trainable=True)
    model.train()
    if change:
        change(model, rows)
    model = reference.exact(model) if exact else model
    return reference.train(model, cases.in_order(rows, order), prepared.settings, masters)


def without_biases(model, _rows):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "relative_attention_bias" in name:
                weight.zero_()


def scaled_otherwise(model, _rows):
    model.config.scale_decoder_outputs = not model.config.scale_decoder_outputs


def other_sources(_model, rows):
    rows[:] = [(source[::-1] + [7], target, weights) for source, target, weights in rows]


class Seq2SeqTest(CasesTest):
    @classmethod
    def _prepare(cls, case):
        folder = cls.folder / case.name
        model = random_t5(case.shape, case.seed)
        directory = write_t5(model, case.shape, folder / "model", case.dtype)
        adapter = write_adapter(model, folder / "adapter", case) if case.targets else None
        rows = random_pairs(case.seed, case.shape.vocabulary)
        data = datasets.write_targets(rows, folder / "data")
        settings = reference.Settings(
            lr_scheduler_type=case.scheduler, label_smoothing_factor=case.smoothing, targets=True
        )
        return Prepared(case, folder, directory, adapter, data, rows, settings)

    @classmethod
    def _probe(cls, case, plan="keep", steps=STEPS):
        prepared = cls.prepared(case)
        spec = cases.job_spec(prepared)
        request = request_of(prepared, spec, prepared.folder / f"{plan}-{steps}")
        request.plan, request.steps = plan, steps
        return run(request)

    def violations(self, case, change=None, steps=STEPS):
        prepared, ours = self.prepared(case), self.probed(case, steps=steps)
        theirs = oracle(prepared, ours.rows, change=change)
        truth = oracle(prepared, ours.rows, exact=True, change=change)
        return oracle_test.violations(ours, theirs, truth)

    def test_both_versions_in_full(self):
        for case in FULL.values():
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

    def test_both_versions_with_an_adapter(self):
        for case in LORA.values():
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

    def test_bf16_is_no_farther_from_float64_than_transformers(self):
        for case in BF16:
            runs = []
            for seed in range(case.seed, case.seed + BF16_RUNS):
                one = dataclasses.replace(case, name=f"{case.name}-{seed}", seed=seed)
                prepared, ours = self.prepared(one), self.probed(one)
                masters = case.targets is None
                whole = [[sum(step, [])] for step in ours.rows]
                ways = [oracle(prepared, rows, masters=masters) for rows in (ours.rows, whole)]
                truth = oracle(prepared, ours.rows, exact=True, masters=masters)
                gradients = ours.gradients, ways[0].gradients, truth.gradients
                with self.subTest(one.name):
                    self.assertEqual(compare.gradients_differ_bf16(*gradients), [])
                runs.append((ours, ways, truth))
            with self.subTest(case.name):
                self.assertEqual(compare.runs_are_farther(runs), [])

    def test_dropout_is_drawn_by_the_seed_and_again_in_backward(self):
        prepared = self.prepared(FULL["v1.1"])
        model = dropping(prepared, self.folder / "dropping", 0.2)
        found = {}
        for name, plan, seed in (("a", "keep", 1), ("b", "recompute", 1), ("c", "keep", 2)):
            spec = cases.job_spec(prepared, seed=seed)
            request = request_of(prepared, spec, self.folder / f"dropout-{name}")
            request.model, request.plan = model, plan
            found[name] = run(request)
        for key, gradient in found["a"].gradients.items():
            self.assertEqual(gradient.tobytes(), found["b"].gradients[key].tobytes(), key)
        self.assertNotEqual(found["a"].losses, found["c"].losses)

    def test_dropout_is_everywhere_where_transformers_has_it(self):
        prepared = self.prepared(FULL["v1.0"])
        rows = prepared.rows[:DRAWN]
        model = dropping(prepared, self.folder / "drawing", dropout_test.RATE)
        spec = cases.job_spec(
            prepared,
            learning_rate=0.0,
            weight_decay=0.0,
            per_device_train_batch_size=len(rows),
            gradient_accumulation_steps=1,
            max_steps=dropout_test.DRAWS,
        )
        request = request_of(prepared, spec, self.folder / "draws")
        request.model, request.steps = model, dropout_test.DRAWS
        request.data = datasets.write_targets(rows, self.folder / "drawn")
        ours = run(request).losses
        theirs = losses_of_transformers(model, rows)
        self.assertEqual(dropout_test.unlike(ours, theirs), [])
        other = dropping(prepared, self.folder / "other", 0.1)
        self.assertTrue(dropout_test.unlike(ours, losses_of_transformers(other, rows)))

    def test_a_job_may_leave_the_model_s_dropout_out(self):
        prepared = self.prepared(FULL["v1.0"])
        spec = cases.job_spec(prepared, dropout="0")
        request = request_of(prepared, spec, self.folder / "left-out")
        request.model = dropping(prepared, self.folder / "not-dropping", 0.2)
        found, plain = run(request), self.probed(FULL["v1.0"], steps=1)
        self.assertEqual(found.losses, plain.losses)

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL["v1.0"], LORA["v1.1"]):
            self.expect_gradients_of_keep(case)

    def test_a_reference_without_one_trait_fails(self):
        for change in (without_biases, scaled_otherwise, other_sources):
            with self.subTest(change.__name__):
                for what, sentences in self.violations(FULL["v1.0"], change, steps=5).items():
                    self.assertTrue(sentences, f"{what} do not show it")


if __name__ == "__main__":
    unittest.main()
