"""Folders with a job file beside its model and data, as a user has them.

The job files are the samples of tests/data/examples, which must work as they stand; tests change
single fields on the command line of snug. The language of the data is a toy one: prompts of a few
words, completed by the same words backwards.
"""

import json
import pathlib
import shutil

import torch

from tests.harness import datasets, models
from tests.harness.binaries import ROOT

EXAMPLES = ROOT / "tests" / "data" / "examples"
VOCABULARY = 320  # 256 bytes, 3 special tokens, and room for the words.
SHAPE = models.Shape(
    vocabulary=VOCABULARY, head_width=24, kv_heads=1, tied=True, rope="llama3", max_positions=512
)


def write_model_folder(folder, shape=SHAPE, dtype=torch.float32, seed=1):
    """A model directory with its own tokenizer."""
    pairs = datasets.sentences(0, 200)
    models.write_model(models.random_model(shape, seed), folder, dtype)
    texts = [pair["prompt"] + pair["completion"] for pair in pairs]
    tokenizer = models.write_tokenizer(folder, texts, shape.vocabulary)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    for name in ("config.json", "generation_config.json"):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **ids}, indent=2))
    return folder


def lora_folder(folder, rows=64, shape=SHAPE, dtype=torch.float32):
    """lora.yaml with its model, train.jsonl and eval.jsonl of prompts and completions."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_model_folder(folder / "model", shape, dtype)
    datasets.write_pairs(datasets.sentences(1, rows), folder / "train.jsonl")
    datasets.write_pairs(datasets.sentences(2, 10), folder / "eval.jsonl")
    shutil.copy(EXAMPLES / "lora.yaml", folder)
    return folder / "lora.yaml"


def full_folder(folder, lengths=range(20, 100, 2), shape=SHAPE):
    """full.yaml with its model and a pre-tokenised train.jsonl."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_model_folder(folder / "model", shape)
    rows = datasets.random_rows(3, lengths, shape.vocabulary)
    datasets.write_pretokenized(rows, folder / "train.jsonl")
    shutil.copy(EXAMPLES / "full.yaml", folder)
    return folder / "full.yaml"
