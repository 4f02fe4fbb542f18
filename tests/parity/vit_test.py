"""Classes of images by ViT and DeiT against transformers, by the criteria of parity_test: full and
LoRA with a head trained whole, in fp32 and bf16; images as bytes here, as pixel values there.

A reference whose places are shifted, or whose images are mirrored, must fail. Augmented, the
reference reads the images of each epoch as augmentation_test shows that they are, with the shares
of their classes.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import unittest

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    ViTConfig,
    ViTForImageClassification,
)

from tests.harness import datasets, models
from tests.parity import classification_test as documents
from tests.parity import cases, compare, oracle_test, reference
from tests.parity.cases import Case, CasesTest, Prepared
from tests.parity.classification_test import LABELS, NONE
from tests.parity.parity_test import STEPS, request_of, run

CONFIGS = {"vit": ViTConfig, "deit": DeiTConfig}
CLASSES = {"vit": ViTForImageClassification, "deit": DeiTForImageClassification}
AUTO = AutoModelForImageClassification
TOOL = pathlib.Path(os.environ["SNUG_BIN_DIR"]).parent / "tests/bin/show_images"
IMAGES = 32
MEAN, DEVIATION = (0.4, 0.5, 0.3), (0.3, 0.25, 0.2)
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


HEAD = {"modules_to_save": ["classifier"]}
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
    model = CLASSES[shape.family](config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layernorm" in name and name.endswith(".weight"):
                weight.copy_(1.0 + 0.2 * torch.randn_like(weight))
            elif name.endswith(".bias"):
                weight.copy_(0.3 * torch.randn_like(weight))
    return model


def random_images(seed, shape):
    """[(bytes [side, side, channels], label)], and what each byte of a channel stands for."""
    generator = np.random.default_rng(seed)
    size = (shape.image, shape.image, shape.channels)
    images = [
        (generator.integers(0, 256, size, np.uint8), int(generator.integers(LABELS)))
        for _ in range(IMAGES)
    ]
    byte = np.arange(256, dtype=np.float32) / 255
    values = [(byte - MEAN[c]) / DEVIATION[c] for c in range(shape.channels)]
    return images, np.array(values, np.float32)


def as_read(images, values):
    """[(pixel values [channels, side, side], label)]"""
    return [
        (torch.tensor(np.stack([v[pixels[..., c]] for c, v in enumerate(values)])), label)
        for pixels, label in images
    ]


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


def by_module(arrays):
    """By the key of the module, where ours is that of the file."""
    renamed = {}
    for key, array in arrays.items():
        for theirs, name in FILES.items():
            key = key.replace(theirs, name)
        renamed[key] = array
    return renamed


def shifted(model, _rows):
    table = next(p for name, p in model.named_parameters() if name.endswith("position_embeddings"))
    with torch.no_grad():
        table.copy_(table.roll(1, 1))


def mirrored(_model, rows):
    rows[:] = [(pixels.flip(2), label) for pixels, label in rows]


class VitTest(CasesTest):
    @classmethod
    def _prepare(cls, case):
        folder = cls.folder / case.name
        model = random_model(case.shape, case.seed)
        directory = models.write_model(model, folder / "model", case.dtype)
        adapter = None
        if case.targets:
            adapter = documents.write_adapter(model, folder / "adapter", case, None)
        images, values = random_images(case.seed, case.shape)
        special = 2 if case.shape.family == "deit" else 1
        tokens = (case.shape.image // case.shape.patch) ** 2 + special
        data = datasets.write_images(images, values, tokens, folder / "data")
        settings = reference.Settings(lr_scheduler_type=case.scheduler, images=True)
        rows = as_read(images, values)
        return Prepared(case, folder, directory, adapter, data, rows, settings)

    @classmethod
    def _probe(cls, case, plan="keep", steps=STEPS, augmentation="none"):
        prepared = cls.prepared(case)
        spec = {**documents.job_spec(prepared), "task": "IMAGE_CLASSIFICATION"}
        spec["image_augmentation"] = augmentation
        if case.targets:
            spec["lora"]["modules_to_save"] = ["classifier"]
        request = request_of(prepared, spec, prepared.folder / f"{plan}-{steps}-{augmentation}")
        request.plan, request.steps = plan, steps
        ours = run(request)
        gradients, weights = by_module(ours.gradients), by_module(ours.weights)
        return dataclasses.replace(ours, gradients=gradients, weights=weights)

    def oracles(self, case, order, change=None):
        """In the case's own type, and in float64."""
        prepared = self.prepared(case)
        return (
            documents.oracle(prepared, order, exact=exact, change=change, auto=AUTO)
            for exact in (False, True)
        )

    def violations(self, case, change=None):
        ours = self.probed(case)
        theirs, truth = self.oracles(case, ours.rows, change)
        return oracle_test.violations(ours, theirs, truth)

    def test_full_and_with_an_adapter(self):
        for case in (*FULL.values(), *LORA.values()):
            with self.subTest(case.name):
                self.assertEqual(self.violations(case), NONE)

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
                prepared = self.prepared(case)
                model = auto.from_pretrained(prepared.model)
                models.write_model(model, prepared.model)
                spec = {
                    **documents.job_spec(prepared, learning_rate=1e-12, weight_decay=0.0),
                    "task": "IMAGE_CLASSIFICATION",
                }
                run(request_of(prepared, spec, prepared.folder / "run"))
                weights = by_module(load_file(prepared.folder / "run" / "weights.safetensors"))
                prefix = f"{model.base_model_prefix}."
                theirs = {
                    prefix + name.removeprefix(prefix): weight
                    for name, weight in model.named_parameters()
                    if not any(left in name for left in ("pooler", "mask_token", "classifier"))
                }
                self.assertEqual(
                    set(weights) - set(theirs), {"classifier.weight", "classifier.bias"}
                )
                for name, weight in theirs.items():
                    self.assertTrue(torch.allclose(weights[name], weight, atol=1e-6), name)

    def test_other_images_fail(self):
        for change in (shifted, mirrored):
            for what, sentences in self.violations(FULL["vit"], change).items():
                self.assertTrue(sentences, f"{what} do not show it")

    def test_recompute_gives_the_gradients_of_keep_to_the_bit(self):
        for case in (FULL["deit"], LORA["vit"]):
            kept = self.probed(case, steps=1).gradients
            for plan in ("recompute", "mixed"):
                again = self.probed(case, plan, 1).gradients
                self.assertEqual(compare.keys_differ(again, kept), [])
                changed = [k for k in kept if kept[k].tobytes() != again[k].tobytes()]
                self.assertEqual(changed, [])

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
