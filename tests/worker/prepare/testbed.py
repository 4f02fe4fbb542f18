"""What the tests of snug-prepare share: a small model directory and a run of the program itself."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
PROGRAM = os.path.join(ROOT, "worker/prepare/snug_prepare.py")
TEXT = ["the cat sat on the mat", "a dog and a cat", "what is a cat? an animal.", "on the mat"]


def train_tokenizer(texts, special, vocab_size, bos=True):
    """A byte-level BPE, <s> in front by the post-processor."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    return tokenizer


def write_model(directory, vocab_size=None, bos=True, eos=True):
    """A tokenizer of 284 tokens, </s> as end token, and the configuration beside it."""
    tokenizer = train_tokenizer(TEXT, ["<s>", "</s>"], vocab_size=284, bos=bos)
    tokenizer.enable_truncation(3)  # stored in many a tokenizer.json; must not be obeyed
    os.makedirs(directory, exist_ok=True)
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    config = {"model_type": "llama", "vocab_size": vocab_size or tokenizer.get_vocab_size()}
    write_json(directory, "config.json", {**config, **({"eos_token_id": 1} if eos else {})})
    names = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(directory, "tokenizer_config.json", names if eos else {})


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(value, file)


class PrepareTest(unittest.TestCase):
    """A temporary folder with model/ in it; Prepare() runs snug-prepare there."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.path("model")
        self.dataset = ("--dataset", self.path("train.jsonl"))
        write_model(self.model)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write_rows(self, *rows):
        """Rows as objects, or as bytes to stand in the file as they are."""
        with open(self.path("train.jsonl"), "wb") as file:
            for row in rows:
                file.write((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n")

    def prepare(self, *options, max_seq_length=64, **process):
        command = [sys.executable, PROGRAM, "--model", self.model]
        command += [*self.dataset, "--output", self.path("out")]
        command += ["--max-seq-length", str(max_seq_length), *options]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=100, **process
        )

    def error(self, *options, **named):
        """The error of a run that must fail on its input, and must leave no output."""
        run = self.prepare(*options, **named)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertFalse(os.path.exists(self.path("out")))
        return json.loads(run.stderr.splitlines()[-1])

    def prepared(self, *options, folder="out", **named):
        """(tensors, summary) of a run that must succeed. Tensors are read by the safetensors
        library."""
        if not os.path.exists(self.path(folder)):
            run = self.prepare(*options, **named)
            self.assertEqual(run.returncode, 0, run.stderr)
        from safetensors.numpy import load_file

        with open(self.path(folder, "summary.json"), encoding="utf-8") as file:
            return load_file(self.path(folder, "dataset.safetensors")), json.load(file)
