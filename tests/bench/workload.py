"""What is measured: a Llama of about 100 M parameters on 4 x 512 tokens, or a tiny one for
smoke.

Both sides read the same files: the model as transformers wrote it, and rows of exactly T
tokens, all trained. Job files for Snug and settings for transformers say the same.
"""

import dataclasses
import json
import os
import pathlib

import torch

from tests.harness import datasets, models

# 12 layers of width 768 and a vocabulary of 16,000: 109 M parameters.
LARGE = models.Shape(
    layers=12,
    width=768,
    heads=12,
    kv_heads=12,
    head_width=64,
    mlp_width=2048,
    vocabulary=16000,
    max_positions=1024,
)
SMALL = models.Shape(vocabulary=320)
LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One training method at one precision. B rows of T tokens per step, no accumulation."""

    name: str
    lora: bool
    bf16: bool
    shape: models.Shape = LARGE
    batch: int = 4
    tokens: int = 512
    steps: int = 6

    @property
    def dtype(self):
        """Of frozen weights and activations."""
        return torch.bfloat16 if self.bf16 else torch.float32


WORKLOADS = (
    Workload("LoRA fp32", lora=True, bf16=False),
    Workload("LoRA bf16", lora=True, bf16=True),
    Workload("full fp32", lora=False, bf16=False),
)


def smoke(workload):
    """The same at a size that runs in a moment."""
    return dataclasses.replace(workload, shape=SMALL, tokens=32, steps=3)


def parameters(shape):
    """Elements of all weights."""
    attention = shape.width * shape.head_width * 2 * (shape.heads + shape.kv_heads)
    layer = attention + 3 * shape.width * shape.mlp_width + 2 * shape.width
    return shape.layers * layer + (2 - shape.tied) * shape.vocabulary * shape.width + shape.width


def write(workload, folder):
    """Model, dataset and job file of a workload; gives the job file."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    model = models.random_model(workload.shape, seed=1)
    models.write_model(model, folder / "model", workload.dtype)
    texts = [pair["prompt"] + pair["completion"] for pair in datasets.sentences(0, 50)]
    models.write_tokenizer(folder / "model", texts, 320)
    lengths = [workload.tokens] * (2 * workload.batch)
    rows = datasets.random_rows(2, lengths, workload.shape.vocabulary, masked=False)
    datasets.write_pretokenized(rows, folder / "train.jsonl")
    job = folder / "job.yaml"
    job.write_text(json.dumps(job_of(workload)))  # JSON is YAML.
    return job


def job_of(workload):
    """The job file: keep everything, so that both sides save the same activations."""
    job = {
        "display_name": workload.name,
        "model": "./model",
        "dataset": "./train.jsonl",
        "method": "lora" if workload.lora else "full",
        "training": {
            "max_steps": workload.steps,
            "per_device_train_batch_size": workload.batch,
            "learning_rate": 1e-4,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 1.0,
            "max_seq_length": workload.tokens,
            "packing": False,
            "precision": "bf16" if workload.bf16 else "fp32",
        },
        "memory": {"stash": {"*": "keep"}},
    }
    if workload.lora:
        job["lora"] = {"r": 16, "lora_alpha": 32, "target_modules": LORA_TARGETS}
    return job


def threads():
    """Threads of either side: the cores that this process may use."""
    return len(os.sched_getaffinity(0))
