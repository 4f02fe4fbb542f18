"""Classes of images by ViT and DeiT against transformers, by the criteria of parity_test: full and
LoRA with a head trained whole, in fp32 and bf16; images as bytes here, as pixel values there.

A reference whose places are shifted, or whose images are mirrored, must fail. Augmented, the
reference reads the images of each epoch as augmentation_test shows that they are, with the shares
of their classes.
"""

import dataclasses
import json
import subprocess
import unittest

import numpy as np
import torch
from transformers import (
    AutoModel,
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    ViTConfig,
    ViTForImageClassification,
)

from tests.harness.long_set import in_the_long_set
from tests.parity import classification_test as documents
from tests.parity import cases, compare, oracle_test, reference
from tests.parity.cases import Case
from tests.parity.classification_test import LABELS, NONE
from tests.parity.image_cases import (
    AUTO,
    HEAD,
    TOOL,
    ImageCasesTest,
    as_read,
    mirrored,
    random_images,
    with_random_vectors,
)
from tests.parity.parity_test import STEPS

CONFIGS = {"vit": ViTConfig, "deit": DeiTConfig}
CLASSES = {"vit": ViTForImageClassification, "deit": DeiTForImageClassification}
# transformers' files spell a layer's modules otherwise than its classes.
FILES = {
    ".encoder.layer.": ".layers.",
    ".attention.attention.query.": ".attention.q_proj.",
    ".attention.attention.key.": ".attention.k_proj.",
    ".attention.attention.value.": ".attention.v_proj.",
    ".attention.output.dense.": ".attention.o_proj.",
    ".intermediate.dense.": ".mlp.fc1.",
    ".output.dense.": ".mlp.fc2.",
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a config.json of images says."""

    family: str = "vit"
    layers: int = 2
    width: int = 48
    heads: int = 3
    mlp_width: int = 112
    image: int = 20
    patch: int = 5
    channels: int = 3
    qkv_bias: bool = True


FULL = {
    "vit": Case("full-vit", Shape(), seed=101),
    "deit": Case("full-deit", Shape("deit", image=12, patch=4, qkv_bias=False), seed=101),
}
LORA = {
    "vit": Case("lora-vit", Shape(layers=3), ("q_proj", "fc2"), seed=102, options=HEAD),
    "deit": Case("lora-deit", Shape("deit", channels=1), "all-linear", seed=102, options=HEAD),
}


def random_model(shape, seed):
    """With norms and biases that are not those of a new model."""
    torch.manual_seed(seed)
    config = CONFIGS[shape.family](
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.mlp_width,
        image_size=shape.image,
        patch_size=shape.patch,
        num_channels=shape.channels,
        qkv_bias=shape.qkv_bias,
        initializer_range=0.2,
        num_labels=LABELS,
    )
    return with_random_vectors(CLASSES[shape.family](config))


def as_trained(prepared, epochs, seed):
    """[epoch][row] of images that are strongly augmented: (pixel values, the classes' shares)."""
    file = prepared.folder / "images.bin"
    command = [TOOL, prepared.data, "strong", str(seed), str(epochs), file]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    side, channels = prepared.case.shape.image, prepared.case.shape.channels
    images = np.fromfile(file, np.float32).reshape(epochs, -1, side, side, channels)
    labels = [json.loads(line)["label"] for line in done.stdout.splitlines()]
    shares = torch.zeros(len(labels), LABELS)
    for row, (first, second, of_first) in zip(shares, labels, strict=True):
        row[first] = of_first
        if second >= 0:
            row[second] = 1 - of_first
    shares = shares.reshape(epochs, -1, LABELS)
    rows = torch.tensor(images).permute(0, 1, 4, 2, 3)
    return [list(zip(*epoch)) for epoch in zip(rows, shares)]


def shifted(model, _rows):
    table = next(p for name, p in model.named_parameters() if name.endswith("position_embeddings"))
    with torch.no_grad():
        table.copy_(table.roll(1, 1))


class VitTest(ImageCasesTest):
    FILES = FILES
    random_model = staticmethod(random_model)

    @staticmethod
    def special_tokens(shape):
        return 2 if shape.family == "deit" else 1

    def test_full_and_with_an_adapter(self):
        for case in (*FULL.values(), *LORA.values()):
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)
                self.expect_predicted_memory(case)

    def test_augmented_images_of_two_classes(self):
        """Each step is an epoch, with images of its own; those of the epoch before fail."""
        case = FULL["vit"]
        prepared, ours = self.prepared(case), self.probed(case, augmentation="strong")
        epochs = as_trained(prepared, STEPS, documents.job_spec(prepared)["training"]["seed"])

        def violations(shift):
            runs = []
            for exact in (False, True):
                model = AUTO.from_pretrained(prepared.model).train()
                model = reference.exact(model) if exact else model
                steps = [
                    cases.in_order(epochs[epoch - shift], [step])[0]
                    for epoch, step in enumerate(ours.rows)
                ]
                runs.append(reference.train(model, steps, prepared.settings))
            return oracle_test.violations(ours, *runs)

        self.assertEqual(violations(0), NONE)
        for what, sentences in violations(1).items():
            self.assertTrue(sentences, f"{what} do not show it")

    def test_files_without_a_head_get_one(self):
        """Whose names lack the model's: ViTModel and DeiTModel, with a pooler that is not read; and
        DeiT's with a teacher, with two heads that are not."""
        for family, auto in (
            ("vit", AutoModel),
            ("deit", AutoModel),
            ("deit", DeiTForImageClassificationWithTeacher),
        ):
            case = dataclasses.replace(FULL[family], name=f"new-head-{family}-{auto.__name__}")
            with self.subTest(case.name):
                self.expect_new_head(case, auto)

    @in_the_long_set
    def test_dropout_is_distributed_as_theirs(self):
        rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
        for case in FULL.values():
            with self.subTest(case.name):
                self.expect_drawn_losses_as_theirs(case, **rates)

    def test_other_images_fail(self):
        for change in (shifted, mirrored):
            for what, sentences in self.violations(FULL["vit"], change).items():
                self.assertTrue(sentences, f"{what} do not show it")

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL["deit"], LORA["vit"]):
            self.expect_gradients_of_keep(case)

    def test_bf16_is_as_near_as_theirs(self):
        for family, whole in (("vit", FULL["vit"]), ("deit", LORA["deit"])):
            case = dataclasses.replace(whole, name=f"bf16-{family}", bf16=True)
            ours = self.probed(case, steps=1)
            theirs, truth = self.oracles(case, ours.rows)
            gradients = ours.gradients, theirs.gradients, truth.gradients
            self.assertEqual(compare.gradients_differ_bf16(*gradients), [])

    def test_the_reference_has_transformers_loss(self):
        case = FULL["deit"]
        model, rows = random_model(case.shape, 7), as_read(*random_images(7, case.shape))
        pixels, labels = torch.stack([p for p, _ in rows]), torch.tensor([n for _, n in rows])
        theirs = model(pixel_values=pixels, labels=labels).loss
        ours = reference.image_loss(model, rows, len(rows))
        self.assertAlmostEqual(ours.item(), theirs.item(), delta=1e-6 * theirs.item())


if __name__ == "__main__":
    unittest.main()
