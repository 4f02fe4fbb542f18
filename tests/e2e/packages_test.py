"""Real learning by an encoder: a small BERT that knows nothing learns from the one-line
descriptions of this machine's packages which section each is of.

Held against the commonest section and against word counts (naive Bayes), on packages held out.
SNUG_CURVES names a folder for the picture of the runs.
"""

import collections
import json
import math
import os
import pathlib
import re
import sys
import unittest

import torch
from transformers import BertConfig, BertForMaskedLM

from tests.harness import datasets, models
from tests.harness.binaries import ROOT
from tests.harness.daemon import Daemon, evaluation_lines

sys.path.insert(0, str(ROOT / "deploy/sample"))
from packages import FEW, read_packages  # noqa: E402

SECTIONS = 12  # The commonest.
HELD_OUT = 1500
VOCABULARY = 4000
JOB = """
model: ./bert
dataset: ./{name}.jsonl
eval_dataset: ./{name}-eval.jsonl
task: sequence_classification
num_labels: {sections}
method: full
training:
  num_train_epochs: 3
  eval_steps: 200
  per_device_train_batch_size: 64
  packing: false
  learning_rate: {rate}
  lr_scheduler_type: linear
  warmup_ratio: 0.1
  seed: 3
"""


def words(text):
    return re.findall(r"[a-z0-9+]+", text.lower())


class NaiveBayes:
    """Multinomial, with one added to each count."""

    def __init__(self, rows):
        self.sections = collections.Counter(section for _, section in rows)
        self.words = {section: collections.Counter() for section in self.sections}
        for text, section in rows:
            self.words[section].update(words(text))
        self.known = len(set().union(*self.words.values()))
        self.totals = {s: self.words[s].total() + self.known for s in self.sections}

    def section(self, text):
        """The likeliest."""

        def score(section):
            counts, total = self.words[section], self.totals[section]
            return math.log(self.sections[section]) + sum(
                math.log((counts[word] + 1) / total) for word in words(text)
            )

        return max(sorted(self.sections), key=score)


def write_bert(folder, texts):
    tokenizer = models.write_wordpiece(folder, texts, VOCABULARY)
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=32,
    )
    BertForMaskedLM(config).save_pretrained(folder)


class PackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        packages = read_packages()
        if len(packages) < 4 * FEW:
            raise unittest.SkipTest(f"apt knows {len(packages)} packages: run apt-get update")
        counts = collections.Counter(package.section for package in packages)
        chosen = {section for section, _ in counts.most_common(SECTIONS)}
        cls.rows = [(p.summary, p.section) for p in packages if p.section in chosen]
        cls.held_out, cls.learned = cls.rows[:HELD_OUT], cls.rows[HELD_OUT:]
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        write_bert(cls.folder / "bert", [text for text, _ in cls.learned])
        for name, rows in (("", cls.learned), ("-eval", cls.held_out)):
            labelled = [{"text": text, "label": section} for text, section in rows]
            datasets.write_pairs(labelled, cls.folder / f"sections{name}.jsonl")

    def finish(self, name, **values):
        """(job, its evaluations)"""
        file = self.folder / "job.yaml"
        file.write_text(JOB.format(name=name, **values))
        job = self.daemon.submit(file)
        self.daemon.wait_state(job, "SUCCEEDED")
        output = self.folder / f"download-{job}"
        self.daemon.run("download", job, output)
        return job, evaluation_lines(output / "metrics.jsonl")

    def test_sections_are_learned_from_descriptions(self):
        job, lines = self.finish("sections", sections=SECTIONS, rate=1e-3)
        total = len(self.held_out)
        commonest = collections.Counter(section for _, section in self.learned).most_common(1)[0][0]
        majority = sum(section == commonest for _, section in self.held_out) / total
        counting = NaiveBayes(self.learned)
        unigrams = sum(counting.section(text) == s for text, s in self.held_out) / total
        found = {
            "learned": len(self.learned),
            "held out": total,
            "majority": majority,
            "unigrams": unigrams,
            "accuracy": [line["eval_accuracy"] for line in lines],
            "loss": [line["eval_loss"] for line in lines],
        }
        print(json.dumps(found))
        if folder := os.environ.get("SNUG_CURVES"):
            self.daemon.run("plot", job, "--svg", pathlib.Path(folder) / "package-sections.svg")
        self.assertGreater(lines[-1]["eval_accuracy"], majority + 0.4)
        self.assertGreater(lines[-1]["eval_accuracy"], unigrams)


if __name__ == "__main__":
    unittest.main()
