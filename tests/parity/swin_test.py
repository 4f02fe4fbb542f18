"""Classes of images by Swin against transformers, by the criteria of parity_test: full and LoRA
with a head trained whole, in fp32 and bf16.

A reference whose windows are not shifted, whose biases are another place's, or whose images are
mirrored, must fail.
"""

import dataclasses
import unittest

import torch
from transformers import AutoModel, SwinConfig, SwinForImageClassification

from tests.harness.long_set import in_the_long_set
from tests.parity import compare
from tests.parity.cases import Case
from tests.parity.classification_test import LABELS, NONE
from tests.parity.image_cases import HEAD, ImageCasesTest, mirrored, with_random_vectors


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a config.json of Swin says: windows that divide each stage."""

    depths: tuple = (2, 2)
    heads: tuple = (2, 4)
    width: int = 16
    window: int = 3
    image: int = 24
    patch: int = 2
    channels: int = 3
    mlp_ratio: float = 2.5
    qkv_bias: bool = True


FULL = Case("full-swin", Shape(), seed=111)
# The last stage is one window, which nothing shifts.
THREE = Shape((2, 1, 2), (1, 2, 2), window=2, image=16, channels=1, mlp_ratio=2.0, qkv_bias=False)
LORA = {
    "all": Case("lora-swin-all", THREE, "all-linear", seed=112, options=HEAD),
    "some": Case("lora-swin-some", Shape(), ("q_proj", "fc2", "reduction"), seed=113, options=HEAD),
}

THREE_STAGES = Case("full-swin-three", THREE, seed=114)
SMALL = Case("full-swin-small", Shape((2, 1), width=8, window=2, image=8), seed=115)


def random_model(shape, seed):
    torch.manual_seed(seed)
    config = SwinConfig(
        image_size=shape.image,
        patch_size=shape.patch,
        num_channels=shape.channels,
        embed_dim=shape.width,
        depths=list(shape.depths),
        num_heads=list(shape.heads),
        window_size=shape.window,
        mlp_ratio=shape.mlp_ratio,
        qkv_bias=shape.qkv_bias,
        drop_path_rate=0.0,
        initializer_range=0.2,
        num_labels=LABELS,
    )
    model = with_random_vectors(SwinForImageClassification(config))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("relative_position_bias_table"):
                weight.copy_(torch.randn_like(weight))
    return model


def layers_of(model):
    return [m for m in model.modules() if type(m).__name__ == "SwinLayer"]


def unshifted(model, _rows):
    for layer in layers_of(model):
        layer.shift_size = 0


def other_places(model, _rows):
    with torch.no_grad():
        for layer in layers_of(model):
            table = layer.attention.relative_position_bias.relative_position_bias_table
            table.copy_(table.roll(1, 0))


class SwinTest(ImageCasesTest):
    # transformers' files spell a layer's modules otherwise than its classes.
    FILES = {
        ".attention.self.query.": ".attention.q_proj.",
        ".attention.self.key.": ".attention.k_proj.",
        ".attention.self.value.": ".attention.v_proj.",
        ".attention.self.relative": ".attention.relative_position_bias.relative",
        ".attention.output.dense.": ".attention.o_proj.",
        ".intermediate.dense.": ".mlp.fc1.",
        ".output.dense.": ".mlp.fc2.",
    }
    random_model = staticmethod(random_model)

    def test_full_and_with_an_adapter(self):
        for case in (FULL, *LORA.values()):
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)
                self.expect_predicted_memory(case)

    def test_other_windows_and_images_fail(self):
        for change in (unshifted, other_places, mirrored):
            for what, sentences in self.violations(FULL, change).items():
                self.assertTrue(sentences, f"{what} do not show it")

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL, LORA["all"]):
            self.expect_gradients_of_keep(case)

    # Backward finds delta by the output, which is rounded, so that the gradient of keys' biases is
    # not 0 to the bit, as by probabilities, which are what transformers keeps beside a bias.
    def test_bf16_is_as_near_as_theirs(self):
        for whole in (FULL, LORA["all"]):
            case = dataclasses.replace(whole, name=f"bf16-{whole.name}", bf16=True)
            ours = self.probed(case, steps=1)
            theirs, truth = self.oracles(case, ours.rows)
            gradients = ours.gradients, theirs.gradients, truth.gradients
            self.assertEqual(compare.gradients_differ_bf16(*gradients, silence=5e-5), [])

    @in_the_long_set
    def test_dropout_is_distributed_as_theirs(self):
        self.expect_drawn_losses_as_theirs(FULL, drop_path_rate=0.6)
        self.expect_drawn_losses_as_theirs(
            THREE_STAGES, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5
        )

    def test_files_without_a_head_get_one(self):
        case = dataclasses.replace(FULL, name="new-head-swin")
        self.expect_new_head(case, AutoModel)


if __name__ == "__main__":
    unittest.main()
