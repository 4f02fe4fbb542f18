"""What is measured: a Llama of about 100 M parameters on a few batches, or a tiny one for smoke.

Both sides read the same files: the model as transformers wrote it, and rows of random tokens, all
trained. Job files for Snug and settings for transformers say the same.
"""

import dataclasses
import json
import os
import pathlib
import random

import torch

from tests.harness import datasets, families, models

# 12 layers of width 768 and the vocabulary of Llama 2, tied: 110 M parameters.
LARGE = models.Shape(
    layers=12,
    width=768,
    heads=12,
    kv_heads=12,
    head_width=64,
    mlp_width=2048,
    vocabulary=32000,
    tied=True,
    max_positions=2048,
)
SMALL = models.Shape(vocabulary=320)
CHEAP = ("norm1.out", "norm2.out", "mlp.act")  # What one element-wise op gives again.


@dataclasses.dataclass(frozen=True)
class Workload:
    """One training method at one precision. B rows of T tokens per step, no accumulation; mixed:
    lengths from T / 64 to T, evenly on a logarithmic scale, which transformers pads to the longest
    of a batch and Snug packs. `goals`: step time and peak memory against transformers; mixed:
    tokens/s. `expected`: what was thought of the first of them before it was measured, on two
    cores whose peak is 234 GFLOP/s in fp32 and 469 in bf16."""

    name: str
    lora: bool
    bf16: bool
    goals: tuple = (None, None)
    expected: float | None = None
    shape: models.Shape = LARGE
    batch: int = 4
    tokens: int = 512
    mixed: bool = False
    steps: int = 6
    released: bool = False  # Gradients go as soon as each is complete; neither side clips.
    optim: str = ""

    @property
    def dtype(self):
        """Of frozen weights and activations."""
        return torch.bfloat16 if self.bf16 else torch.float32

    def smoke(self):
        """The same at a size that runs in a moment."""
        shape = dataclasses.replace(SMALL, family=self.shape.family, window=self.shape.window)
        return dataclasses.replace(self, shape=shape, tokens=64, steps=3)

    def write(self, folder):
        """Model, dataset and job file in a new folder."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True)
        self.write_inputs(folder)
        (folder / "job.yaml").write_text(json.dumps(self.job()))  # JSON is YAML.

    def write_inputs(self, folder):
        """Model and dataset."""
        model = models.random_model(self.shape, seed=1)
        models.write_model(model, folder / "model", self.dtype)
        texts = [pair["prompt"] + pair["completion"] for pair in datasets.sentences(0, 50)]
        models.write_tokenizer(folder / "model", texts, 320)
        rows = datasets.random_rows(2, lengths(self), self.shape.vocabulary, masked=False)
        datasets.write_pretokenized(rows, folder / "train.jsonl")

    def job(self):
        """The job file: keep everything but what one element-wise op gives again, so that no
        product is run twice on either side. Packed rows are as long together as a batch of
        transformers has real tokens on average."""
        job = {
            "display_name": self.name,
            "model": "./model",
            "dataset": "./train.jsonl",
            "method": "lora" if self.lora else "full",
            "training": {
                "max_steps": self.steps,
                "per_device_train_batch_size": 2 if self.mixed else self.batch,
                "learning_rate": 1e-4,
                "lr_scheduler_type": "constant",
                "max_grad_norm": 1.0,
                "max_seq_length": self.tokens,
                "packing": self.mixed,
                "precision": "bf16" if self.bf16 else "fp32",
            },
            "memory": {"stash": {"*": "keep"} | {f"layers.*.{s}": "recompute" for s in CHEAP}},
        }
        if self.released:
            job["memory"]["gradients"] = "released"
            job["training"]["max_grad_norm"] = 0.0
        if self.optim:
            job["training"]["optim"] = self.optim
        if self.lora:
            job["lora"] = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
        return job


WORKLOADS = (
    Workload("LoRA fp32", lora=True, bf16=False, goals=(0.35, 0.2), expected=0.76),
    Workload("full fp32", lora=False, bf16=False, goals=(0.40, 0.5), expected=0.79),
    Workload("LoRA bf16", lora=True, bf16=True, goals=(0.33, 0.2), expected=0.64),
    Workload("full bf16", lora=False, bf16=True, goals=(0.45, 0.8), expected=0.68),
    Workload("LoRA fp32, 1 x 2048", True, False, (0.35, 0.2), 0.76, batch=1, tokens=2048),
    Workload("LoRA bf16, 1 x 2048", True, True, (0.33, 0.2), 0.60, batch=1, tokens=2048),
)
LEAN = (
    Workload("full bf16, released", False, True, (0.45, 1.1), 0.68, released=True),
    Workload(
        "full bf16, released, 8 bits",
        lora=False,
        bf16=True,
        goals=(0.45, 0.75),
        expected=0.68,
        released=True,
        optim="adamw_8bit",
    ),
)
MIXED = (
    Workload("LoRA fp32, mixed", True, False, (4, None), 4.0, batch=8, tokens=1024, mixed=True),
    Workload("LoRA bf16, mixed", True, True, (4, None), 4.5, batch=8, tokens=1024, mixed=True),
)
# Snug alone, of four layers: how fast each family's step goes by the operations it has. Windows as
# long as the rows, so that attention has the same.
FAMILIES = tuple(
    Workload(
        family,
        lora=True,
        bf16=False,
        shape=dataclasses.replace(LARGE, layers=4, family=family, window=512),
        steps=8,
    )
    for family in families.FAMILIES
)


def quick(workload):
    """The same with as few steps as give a median."""
    return dataclasses.replace(workload, steps=4)


def parameters(shape):
    """Elements of all weights."""
    attention = shape.width * shape.head_width * 2 * (shape.heads + shape.kv_heads)
    layer = attention + 3 * shape.width * shape.mlp_width + 2 * shape.width
    return shape.layers * layer + (2 - shape.tied) * shape.vocabulary * shape.width + shape.width


def lengths(workload):
    """Tokens of each row of the dataset: enough for every step of either side."""
    rows = workload.batch * workload.steps
    if not workload.mixed:
        return [workload.tokens] * rows
    generator = random.Random(3)
    return [int(workload.tokens * 64 ** -generator.random()) for _ in range(rows)]


def threads():
    """Threads of either side: the cores that this process may use."""
    return len(os.sched_getaffinity(0))
