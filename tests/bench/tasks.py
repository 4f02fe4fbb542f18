"""Models of other tasks than those of decoders, one for each family at the size of its first
checkpoints, with rows of 512 tokens or images of 224 x 224. Weights and rows are random; dropout is
each configuration's own. Files and job files are as workload.py has them.
"""

import dataclasses
import json
import pathlib

import numpy
import torch
import transformers
from PIL import Image

from tests.bench import workload

CLASSES = 4
TARGET_TOKENS = 64


def _label(generator, _, __):
    return {"label": int(generator.integers(CLASSES))}


def _target(generator, tokens, vocabulary):
    ids = generator.integers(5, vocabulary, min(TARGET_TOKENS, tokens))
    return {"labels": ids.tolist()}


@dataclasses.dataclass(frozen=True)
class Task:
    """`auto`: what loads it; `peft`: LoraConfig's task_type; `label`: what a row has beside its
    ids, or None where rows are images; `cheap`: sites that one op that moves memory gives again;
    `small`: fields of the configuration for smoke."""

    config: type
    auto: type
    peft: str | None
    label: callable
    cheap: tuple
    small: dict
    fields: dict = dataclasses.field(default_factory=dict)


LEAN_OPTIMIZERS = {False: "adamw_torch", True: "adamw_8bit"}  # In bf16 or not.
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TASKS = {
    "sequence_classification": Task(
        transformers.BertConfig,
        transformers.AutoModelForSequenceClassification,
        "SEQ_CLS",
        _label,
        ("*norm.out", "*.act", "*.dropped"),
        {**SMALL, "intermediate_size": 96, "vocab_size": 320},
        {"num_labels": CLASSES},
    ),
    "seq2seq_lm": Task(
        transformers.T5Config,
        transformers.AutoModelForSeq2SeqLM,
        "SEQ_2_SEQ_LM",
        _target,
        ("*norm.out", "*norm1.out", "*norm2.out", "*.act", "*.dropped"),
        {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_kv": 16, "vocab_size": 320},
        dict(d_model=768, num_layers=12, num_heads=12, d_ff=3072, decoder_start_token_id=0),
    ),
    "image_classification": Task(
        transformers.ViTConfig,
        transformers.AutoModelForImageClassification,
        None,
        None,
        ("*norm1.out", "*norm2.out", "*.act"),
        {**SMALL, "intermediate_size": 96, "image_size": 32},
        {"num_labels": CLASSES},
    ),
}
# A second family of a task.
FAMILIES = {
    "swin": dataclasses.replace(
        TASKS["image_classification"],
        config=transformers.SwinConfig,
        cheap=("*norm1.out", "*norm2.out", "*.act", "*.shifted", "*.back"),
        small={
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "image_size": 32,
        },
    )
}


@dataclasses.dataclass(frozen=True)
class TaskWorkload(workload.Workload):
    """`tokens`: of a row; of images nothing."""

    task: str = ""
    small: bool = False
    family: str = ""  # Of FAMILIES; else the task's first.

    @property
    def about(self):
        return FAMILIES[self.family] if self.family else TASKS[self.task]

    def smoke(self):
        """The same at a size that runs in a moment."""
        return dataclasses.replace(self, small=True, tokens=64, steps=3)

    def write_inputs(self, folder):
        """Model and dataset."""
        task = self.about
        config = task.config(**{**task.fields, **(task.small if self.small else {})})
        torch.manual_seed(1)
        task.auto.from_config(config).to(self.dtype).save_pretrained(folder / "model")
        generator, count = numpy.random.default_rng(2), self.batch * self.steps
        if task.label is None:
            _write_images(folder, generator, config.image_size, count)
        else:
            rows = [_row(generator, self, config.vocab_size) for _ in range(count)]
            (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def job(self):
        """Everything is kept but what one op that moves memory gives again."""
        job = super().job()
        job |= {"task": self.task, "num_labels": CLASSES}
        again = dict.fromkeys(self.about.cheap, "recompute")
        job["memory"]["stash"] = {"*": "keep"} | again
        del job["training"]["packing"]
        if self.task == "seq2seq_lm":
            del job["num_labels"]
        if self.task == "image_classification":
            del job["training"]["max_seq_length"]
            job |= {"dataset": "./images", "image_augmentation": "none"}
            if self.lora:
                job["lora"]["modules_to_save"] = ["classifier"]
        return job


VARIANTS = 6  # Of each model.


def of(task, name, batch, expected, family=""):
    """Each method at each precision, full fine-tuning in two ways: lean lets gradients go, and
    holds moments of bf16 models in 8 bits."""
    goals = {True: (0.85, 0.5), False: (0.85, 0.8)}
    ways = {"LoRA": (True, False), "full": (False, False), "lean full": (False, True)}
    return tuple(
        TaskWorkload(
            f"{name}, {method} {'bf16' if bf16 else 'fp32'}",
            lora,
            bf16,
            goals[lora],
            expected[bf16],
            batch=batch,
            steps=5,
            task=task,
            family=family,
            released=lean,
            optim=LEAN_OPTIMIZERS[bf16] if lean else "",
        )
        for bf16 in (False, True)
        for method, (lora, lean) in ways.items()
    )


WORKLOADS = (
    *of("sequence_classification", "BERT base 4 x 512", 4, (0.8, 0.7)),
    *of("seq2seq_lm", f"T5 base 2 x 512 to {TARGET_TOKENS}", 2, (0.8, 0.7)),
    *of("image_classification", "ViT base 8 x 224²", 8, (0.85, 0.7)),
    *of("image_classification", "Swin tiny 8 x 224²", 8, (0.8, 0.7), family="swin"),
)


def _write_images(folder, generator, side, count):
    size = {"height": side, "width": side}
    transformers.ViTImageProcessorPil(size=size).save_pretrained(folder / "model")
    for number in range(count):
        label = folder / "images" / f"class{number % CLASSES}"
        label.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (side, side, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(label / f"{number:04}.png")


def _row(generator, of, vocabulary):
    ids = generator.integers(5, vocabulary, of.tokens).tolist()
    return {"input_ids": ids, **TASKS[of.task].label(generator, of.tokens, vocabulary)}


def batches(folder, job):
    """(arguments of the model, tokens) of each batch, over and over."""
    rows = _image_rows(folder) if TASKS[job["task"]].label is None else _text_rows(folder)
    while True:
        for first in range(0, len(rows), job["batch"]):
            chosen = rows[first : first + job["batch"]]
            arguments = {name: torch.stack([row[name] for row in chosen]) for name in chosen[0]}
            yield arguments, sum(len(row.get("input_ids", ())) for row in chosen)


def _text_rows(folder):
    rows = []
    for line in (pathlib.Path(folder) / "train.jsonl").read_text().splitlines():
        row = json.loads(line)
        labels = row.get("labels", row.get("label"))
        rows.append({"input_ids": torch.tensor(row["input_ids"]), "labels": torch.tensor(labels)})
    return rows


def _image_rows(folder):
    processor = transformers.AutoImageProcessor.from_pretrained(f"{folder}/model")
    rows = []
    for file in sorted((pathlib.Path(folder) / "images").rglob("*.png")):
        with Image.open(file) as image:
            pixels = processor(image, return_tensors="pt")["pixel_values"][0]
        rows.append({"pixel_values": pixels, "labels": torch.tensor(int(file.parent.name[-1]))})
    return rows
