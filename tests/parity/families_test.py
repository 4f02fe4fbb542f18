"""Every family against transformers, by the criteria of parity_test: full and LoRA, packed and not,
windows shorter than the rows, rows beyond the original rotary length.

Each trait of a family is then taken out of the reference, one by one, and every criterion must
notice.
"""

import dataclasses
import tempfile
import types
import unittest

import torch

from tests.harness.long_set import LONG, in_the_long_set
from tests.harness.models import Shape
from tests.parity import cases, compare, oracle_test, parity_test
from tests.parity.cases import Case
from tests.parity.parity_test import Runs, oracle, request_of

WINDOW = 11  # Rows are up to 97 tokens long.

MISTRAL = Shape(family="mistral", kv_heads=2, window=WINDOW, vocabulary=151)
STRETCHED_MISTRAL = dataclasses.replace(MISTRAL, rope="llama3")
QWEN2 = Shape(family="qwen2", layers=3, kv_heads=2, window=WINDOW, tied=True, rope="yarn")
QWEN3 = Shape(
    family="qwen3", kv_heads=2, head_width=24, window=WINDOW, rope="yarn", vocabulary=149
)
GEMMA2 = Shape(
    family="gemma2",
    layers=3,
    width=72,
    head_width=24,
    window=WINDOW,
    tied=True,
    rope="linear",
    max_positions=32,
)
GEMMA3 = Shape(
    family="gemma3", layers=3, width=72, kv_heads=1, window=WINDOW, tied=True, rope="linear"
)
PHI3 = Shape(family="phi3", kv_heads=2, window=WINDOW, rotary_share=0.5, vocabulary=137)
BIASED = Shape(biases=True, kv_heads=2, rope="yarn")  # A Llama.

FULL = {
    shape.family: Case(f"full-{shape.family}", shape, spelling=spelling, seed=seed)
    for shape, spelling, seed in (
        (STRETCHED_MISTRAL, 4, 31),
        (QWEN2, 5, 32),
        (QWEN3, 4, 33),
        (GEMMA2, 5, 34),
        (GEMMA3, 4, 35),
        (PHI3, 5, 36),
        (BIASED, 5, 37),
    )
}
LORA = {
    shape.family: Case(f"lora-{shape.family}", shape, targets, spelling=spelling, seed=seed)
    for shape, targets, spelling, seed in (
        (MISTRAL, "all-linear", 5, 41),
        (QWEN2, "all-linear", 4, 42),
        (QWEN3, ("q_proj", "k_proj", "v_proj"), 5, 43),
        (GEMMA2, "all-linear", 4, 44),
        (GEMMA3, ("q_proj", "o_proj", "down_proj"), 5, 45),
        (PHI3, "all-linear", 4, 46),
    )
}

# All rows at once, padded and packed.
WHOLE = {
    "per_device_train_batch_size": len(cases.usable(cases.LENGTHS)),
    "gradient_accumulation_steps": 1,
}
PACKED = {**WHOLE, "packing": True, "max_seq_length": 128}
ONE_BY_ONE = {
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": len(cases.usable(cases.LENGTHS)),
}


def base_of(model):
    """The model within an adapter, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def attentions(model):
    """The attention module of every layer."""
    return [layer.self_attn for layer in base_of(model).model.layers]


def without_window(model, _rows):
    """Every query sees all before it."""
    base_of(model).config.sliding_window = 1 << 20


def without_attention_softcap(model, _rows):
    for attention in attentions(model):
        attention.attn_logit_softcapping = None


def without_logit_softcap(model, _rows):
    base_of(model).config.final_logit_softcapping = None


def without_query_scalar(model, _rows):
    """Scores are divided by the root of the head width."""
    for attention in attentions(model):
        attention.scaling = attention.head_dim**-0.5


def without_head_norms(model, _rows):
    for attention in attentions(model):
        attention.q_norm.forward = attention.k_norm.forward = lambda x: x


def without_biases(model, _rows):
    for name, parameter in base_of(model).named_parameters():
        if name.endswith(".bias"):
            parameter.data.zero_()


def without_embedding_scale(model, _rows):
    base_of(model).model.embed_tokens.embed_scale.fill_(1.0)


def without_post_norms(model, _rows):
    for layer in base_of(model).model.layers:
        for norm in (layer.post_attention_layernorm, layer.post_feedforward_layernorm):
            norm.forward = lambda x: x


def without_pre_norms(model, _rows):
    """What attention and the MLP read is the residual stream itself."""
    for layer in base_of(model).model.layers:
        second = getattr(layer, "pre_feedforward_layernorm", layer.post_attention_layernorm)
        layer.input_layernorm.forward = second.forward = lambda x: x


def without_unit_offset(model, _rows):
    """Norm weights as they are stored."""

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(forward, module)


def with_silu(model, _rows):
    for layer in base_of(model).model.layers:
        layer.mlp.act_fn = torch.nn.SiLU()


def without_local_rope(model, _rows):
    """Layers that slide have the others' angles."""
    base = base_of(model)
    rope = base.config.rope_parameters
    rope["sliding_attention"] = rope["full_attention"]
    rotary = base.model.rotary_emb
    rotary.sliding_attention_inv_freq = rotary.full_attention_inv_freq


def without_linear_scaling(model, _rows):
    """The global layers' frequencies are not divided."""
    base = base_of(model)
    rope = base.config.rope_parameters["full_attention"]
    rope["rope_type"] = "default"
    base.model.rotary_emb.full_attention_inv_freq *= rope["factor"]


def without_partial_rotation(model, _rows):
    """All of a head is turned."""
    base = base_of(model)
    base.config.rope_parameters["partial_rotary_factor"] = 1.0
    rotary = base.model.rotary_emb
    rotary.inv_freq, _ = rotary.compute_default_rope_parameters(base.config)


def without_attention_factor(model, _rows):
    """yarn's frequencies without its factor of cosines and sines."""
    base = base_of(model)
    base.config.rope_parameters["attention_factor"] = 1.0
    base.model.rotary_emb.attention_scaling = 1.0


CONTROLS = (
    ("llama", without_biases),
    ("llama", oracle_test.without_rope_scaling),
    ("llama", without_attention_factor),
    ("mistral", without_window),
    ("mistral", without_pre_norms),
    ("qwen2", without_window),
    ("qwen2", without_biases),
    ("qwen2", oracle_test.without_rope_scaling),
    ("qwen2", without_attention_factor),
    ("qwen3", without_window),
    ("qwen3", without_head_norms),
    ("qwen3", without_attention_factor),
    ("qwen3", oracle_test.without_rope_scaling),
    ("gemma2", without_window),
    ("gemma2", oracle_test.without_rope_scaling),
    ("gemma2", without_attention_softcap),
    ("gemma2", without_logit_softcap),
    ("gemma2", without_query_scalar),
    ("gemma2", without_embedding_scale),
    ("gemma2", without_pre_norms),
    ("gemma2", without_post_norms),
    ("gemma2", without_unit_offset),
    ("gemma2", with_silu),
    ("gemma3", without_window),
    ("gemma3", without_local_rope),
    ("gemma3", without_linear_scaling),
    ("gemma3", without_head_norms),
    ("gemma3", without_query_scalar),
    ("gemma3", without_embedding_scale),
    ("gemma3", without_pre_norms),
    ("gemma3", without_post_norms),
    ("gemma3", without_unit_offset),
    ("gemma3", with_silu),
    ("phi3", without_window),
    ("phi3", without_partial_rotation),
)


class FamiliesTest(unittest.TestCase):
    """The criteria of parity_test over the families."""

    assert_whole_dataset_each_step = parity_test.ParityTest.assert_whole_dataset_each_step
    controls = CONTROLS[::6]  # controls_test, of the long set, takes all.
    some = (*FULL.values(), *LORA.values())[:: 1 if LONG else 3]

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs = Runs(folder.name)

    def violations(self, case, change=None):
        """All criteria of fp32, against the reference as it is or with a trait taken out."""
        prepared, ours = self.runs.prepared(case), self.runs.probed(case)
        theirs = oracle(prepared, ours.rows, change=change)
        truth = oracle(prepared, ours.rows, exact=True, change=change)
        return oracle_test.violations(ours, theirs, truth)

    def assert_parity(self, case):
        """20 steps of loss, the first gradient, the weights."""
        ours = self.runs.probed(case)
        self.assert_whole_dataset_each_step(ours, len(self.runs.prepared(case).rows))
        found = self.violations(case)
        self.assertEqual(found, {"losses": [], "gradients": [], "weights": []})

    def run_once(self, prepared, name, training):
        """One step with TrainingSpec fields set as given."""
        spec = cases.job_spec(prepared, **training)
        return parity_test.run(request_of(prepared, spec, prepared.folder / name))

    def test_full_training_matches_transformers(self):
        for case in FULL.values():
            with self.subTest(case.name):
                self.assert_parity(case)

    def test_lora_matches_peft(self):
        for case in LORA.values():
            with self.subTest(case.name):
                self.assert_parity(case)

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in self.some:
            kept = self.runs.probed(case, steps=1).gradients
            for plan in ("recompute", "mixed"):
                with self.subTest(case.name, plan=plan):
                    again = self.runs.probed(case, plan, 1).gradients
                    self.assertEqual(compare.keys_differ(again, kept), [])
                    changed = [k for k in kept if kept[k].tobytes() != again[k].tobytes()]
                    self.assertEqual(changed, [])

    def test_a_reference_without_one_trait_fails(self):
        for family, change in self.controls:
            with self.subTest(family, change=change.__name__):
                case = LORA.get(family) or FULL[family]
                for what, sentences in self.violations(case, change).items():
                    self.assertTrue(sentences, f"{what} do not show it")

    def test_packing_changes_neither_loss_nor_gradient(self):
        for case in self.some:
            with self.subTest(case.name):
                prepared = self.runs.prepared(case)
                apart, packed = (
                    self.run_once(prepared, *how) for how in (("apart", WHOLE), ("packed", PACKED))
                )
                self.assertEqual(parity_test.ways_differ(prepared, packed, apart), [])
                alone = self.run_once(prepared, "alone", ONE_BY_ONE)
                self.assert_is_without_padding(prepared, alone)
                same = compare.SAME_LOSS_TOLERANCE
                self.assertEqual(compare.losses_differ(alone.losses, apart.losses, same), [])

    def assert_is_without_padding(self, prepared, ours):
        """Rows one by one, which transformers pads no more than we do."""
        self.assertTrue(all(len(batch) == 1 for batch in ours.rows[0]))
        theirs, truth = (oracle(prepared, ours.rows, exact=exact) for exact in (False, True))
        gradients = ours.gradients, theirs.gradients, truth.gradients
        self.assertEqual(compare.gradients_differ(*gradients), [])

    @in_the_long_set
    def test_a_reference_whose_packed_rows_see_each_other_fails(self):
        for case in LORA.values():
            with self.subTest(case.name):
                prepared = self.runs.prepared(case)
                packed = self.run_once(prepared, "joined", PACKED)
                rows = [prepared.rows[i] for batch in packed.rows[0] for i in batch]
                joined = tuple(sum(parts, []) for parts in zip(*rows))
                one = dataclasses.replace(prepared, rows=[joined])
                theirs, truth = (oracle(one, [[[0]]], exact=exact) for exact in (False, True))
                self.assertTrue(compare.losses_differ(packed.losses, theirs.losses))
                self.assertTrue(
                    compare.gradients_differ(packed.gradients, theirs.gradients, truth.gradients)
                )


if __name__ == "__main__":
    unittest.main()
