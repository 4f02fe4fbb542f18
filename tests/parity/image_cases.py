"""Cases of models that read images: images as bytes for Snug, as pixel values for transformers."""

import dataclasses
import json
import os
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageClassification

from tests.harness import datasets, models
from tests.parity import classification_test as documents
from tests.parity import oracle_test, reference
from tests.parity.cases import CasesTest, Prepared
from tests.parity.classification_test import LABELS
from tests.parity.dropout_test import DRAWS, unlike
from tests.parity.parity_test import STEPS, request_of, run

AUTO = AutoModelForImageClassification
TOOL = pathlib.Path(os.environ["SNUG_BIN_DIR"]).parent / "tests/bin/show_images"
IMAGES = 32
MEAN, DEVIATION = (0.4, 0.5, 0.3), (0.3, 0.25, 0.2)
HEAD = {"modules_to_save": ["classifier"]}


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


def with_random_vectors(model):
    """With norms and biases that are not those of a new model."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name and name.endswith(".weight"):
                weight.copy_(1.0 + 0.2 * torch.randn_like(weight))
            elif name.endswith(".bias"):
                weight.copy_(0.3 * torch.randn_like(weight))
    return model


def mirrored(_model, rows):
    rows[:] = [(pixels.flip(2), label) for pixels, label in rows]


class ImageCasesTest(CasesTest):
    """Of a file of tests: `random_model(shape, seed)`, `special_tokens(shape)`, and FILES, which
    says how transformers' class calls what its files spell otherwise."""

    FILES = {}

    @staticmethod
    def random_model(shape, seed):
        raise NotImplementedError

    @staticmethod
    def special_tokens(_shape):
        return 0

    @classmethod
    def by_module(cls, arrays):
        """By the key of the module, where ours is that of the file."""
        renamed = {}
        for key, array in arrays.items():
            for theirs, name in cls.FILES.items():
                key = key.replace(theirs, name)
            renamed[key] = array
        return renamed

    @classmethod
    def _prepare(cls, case):
        folder = cls.folder / case.name
        model = cls.random_model(case.shape, case.seed)
        directory = models.write_model(model, folder / "model", case.dtype)
        adapter = None
        if case.targets:
            adapter = documents.write_adapter(model, folder / "adapter", case, None)
        images, values = random_images(case.seed, case.shape)
        tokens = (case.shape.image // case.shape.patch) ** 2 + cls.special_tokens(case.shape)
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
        gradients, weights = cls.by_module(ours.gradients), cls.by_module(ours.weights)
        return dataclasses.replace(ours, gradients=gradients, weights=weights)

    def oracles(self, case, order, change=None):
        """In the case's own type, and in float64."""
        prepared = self.prepared(case)
        return (
            documents.oracle(prepared, order, exact=exact, change=change, auto=AUTO)
            for exact in (False, True)
        )

    def expect_drawn_losses_as_theirs(self, case, **rates):
        """That losses with dropout of these rates, by their names in config.json, are distributed
        as transformers', and not as those of rates of a tenth."""
        case = dataclasses.replace(case, name=f"{case.name}-dropout")
        prepared = self.prepared(case)
        file = prepared.model / "config.json"
        config = json.loads(file.read_text())
        file.write_text(json.dumps({**config, **rates}))
        spec = documents.job_spec(
            prepared,
            learning_rate=0.0,
            weight_decay=0.0,
            per_device_train_batch_size=IMAGES,
            gradient_accumulation_steps=1,
            max_steps=DRAWS,
        )
        spec.update(task="IMAGE_CLASSIFICATION", image_augmentation="none")
        request = request_of(prepared, spec, prepared.folder / "draws")
        request.steps = DRAWS
        ours = run(request).losses
        self.assertEqual(len(set(ours)), DRAWS)  # Masks of its own for each step.
        self.assertEqual(unlike(ours, self._their_losses(prepared)), [])
        file.write_text(json.dumps({**config, **{name: r / 10 for name, r in rates.items()}}))
        self.assertTrue(unlike(ours, self._their_losses(prepared)))

    def _their_losses(self, prepared):
        model = AUTO.from_pretrained(prepared.model).train()
        torch.manual_seed(7)
        with torch.no_grad():
            return [
                reference.image_loss(model, prepared.rows, IMAGES).item() for _ in range(DRAWS)
            ]

    def expect_new_head(self, case, auto):
        """That files of `auto`, a class without the task's head, are trained with one: all else is
        theirs, under the names that it has beside a head."""
        prepared = self.prepared(case)
        model = auto.from_pretrained(prepared.model)
        models.write_model(model, prepared.model)
        spec = {
            **documents.job_spec(prepared, learning_rate=1e-12, weight_decay=0.0),
            "task": "IMAGE_CLASSIFICATION",
        }
        run(request_of(prepared, spec, prepared.folder / "run"))
        weights = self.by_module(load_file(prepared.folder / "run" / "weights.safetensors"))
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

    def expect_predicted_memory(self, case):
        memory = self.probed(case).memory
        self.assertEqual(memory["measured_peak_bytes"], memory["predicted_peak_bytes"])

    def violations(self, case, change=None):
        ours = self.probed(case)
        theirs, truth = self.oracles(case, ours.rows, change)
        return oracle_test.violations(ours, theirs, truth)
