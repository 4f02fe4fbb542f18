"""The README's picture, docs/plan.svg, is what `snug plan --svg` draws today: a LoRA job on a Llama
of eight billion weights, on an H100 that is not here. Its files have holes where weights would be.

    python -m tests.e2e.plan_picture_test --write

makes the picture anew.
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
import xml.dom.minidom

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.harness.binaries import ROOT
from tests.harness.daemon import Daemon

PICTURE = ROOT / "docs" / "plan.svg"
MACHINE = ("--device-kind", "h100", "--device-memory", "30GiB")
JOB = """
model: ./model
dataset: ./rows.jsonl
method: lora
training: {max_seq_length: 4096, per_device_train_batch_size: 4, bf16: true}
"""
# As Llama 3.1's config.json has them, but for its RoPE.
CONFIG = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "architectures": ["LlamaForCausalLM"],
}
# Of time, which goes by rates: in the line of a plan, and below the table.
TIMES = (
    r"(?<=[\d%]  )\d\.\d{3} +[\d.]+ +\d+(?=  )"
    r"|[\d.]+ (?=times|s a step|tokens/s|% (long|short)er)"
)


def write_model(folder):
    """Config and header of 16 GB of weights, on a few pages of the disk."""
    config = LlamaConfig(**CONFIG)
    config.save_pretrained(folder)
    with torch.device("meta"):
        state = LlamaForCausalLM(config).state_dict()
    tensors, end = {}, 0
    for name, value in state.items():
        begin, end = end, end + 2 * value.numel()
        shape = list(value.shape)
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(tensors).encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + end)


def draw(path):
    daemon = Daemon()
    try:
        folder = daemon.folder / "job"
        write_model(folder / "model")
        (folder / "rows.jsonl").write_text('{"input_ids": [1, 2, 3]}\n')
        (folder / "job.yaml").write_text(JOB)
        daemon.run("plan", folder / "job.yaml", *MACHINE, "--svg", path)
    finally:
        daemon.close()


def lines_of(path):
    """Its words, without times."""
    texts = xml.dom.minidom.parse(str(path)).getElementsByTagName("text")
    return [re.sub(TIMES, "(time)", text.firstChild.data) for text in texts]


class PlanPictureTest(unittest.TestCase):
    def test_it_is_what_the_command_draws(self):
        drawn = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "plan.svg"
        draw(drawn)
        lines = lines_of(PICTURE)
        self.assertGreater(sum("(time)" in line for line in lines), 10)
        self.assertEqual(lines, lines_of(drawn), "make it anew: the module's head says how")

    def test_the_readme_shows_it_first(self):
        first = (ROOT / "README.md").read_text().split("\n## ")[0]
        self.assertIn("(docs/plan.svg)", first)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        draw(PICTURE)
    else:
        unittest.main()
