"""Real learning by a model of two halves: a small T5 that knows nothing learns to write the
one-line summary of a Debian package from its name, its section, its tags and what it depends on.

Held against the summary of the package whose name is nearest and against the name itself, by
ROUGE-L, on packages held out: of what they are built from nothing is learned. SNUG_CURVES names a
folder for the picture of the run.
"""

import difflib
import json
import os
import pathlib
import re
import sys
import unittest

import torch
from rouge_score import rouge_scorer
from tokenizers import Tokenizer, processors
from transformers import T5Config, T5ForConditionalGeneration

from tests.harness import models
from tests.harness.binaries import ROOT
from tests.harness.daemon import ENDED, Daemon, evaluation_lines, wait_for

sys.path.insert(0, str(ROOT / "deploy/sample"))
from packages import FEW, read_packages  # noqa: E402

HELD_OUT = 300
VOCABULARY, BATCH = 6000, 64
MOST = 6  # Tags, and names of other packages.
SECONDS = 3000
JOB = """
model: ./t5
dataset: ./train.jsonl
eval_dataset: ./eval.jsonl
task: seq2seq_lm
method: full
training:
  num_train_epochs: {epochs}
  eval_steps: {evaluated}
  per_device_train_batch_size: {batch}
  max_seq_length: 96
  learning_rate: 0.002
  lr_scheduler_type: linear
  warmup_ratio: 0.05
  predict_with_generate: true
  generation_max_length: 24
  seed: 3
"""


def source_of(package):
    tags = (tag.split("::")[-1] for tag in package.tags[:MOST])
    facts = (package.name, package.section, *tags, *package.depends[:MOST])
    return " ".join(facts)


def write_t5(folder, texts):
    tokenizer = models.write_tokenizer(folder, texts, VOCABULARY)
    path = str(folder / "tokenizer.json")
    ends = Tokenizer.from_file(path)
    ends.post_processor = processors.TemplateProcessing(
        "$A </s>", None, [("</s>", tokenizer.eos_token_id)]
    )
    ends.save(path)
    torch.manual_seed(5)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=128,
        d_kv=32,
        d_ff=384,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
        pad_token_id=0,
        decoder_start_token_id=0,
        eos_token_id=tokenizer.eos_token_id,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)


class SummariesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        packages = read_packages()
        if len(packages) < 4 * FEW:
            raise unittest.SkipTest(f"apt knows {len(packages)} packages: run apt-get update")
        by_source = {package.source: package for package in packages}
        cls.held_out = list(by_source.values())[:HELD_OUT]
        unknown = {package.source for package in cls.held_out}
        cls.learned = [p for p in packages if p.source not in unknown]
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        write_t5(cls.folder / "t5", [f"{source_of(p)} {p.summary}" for p in cls.learned])
        for name, some in (("train", cls.learned), ("eval", cls.held_out)):
            rows = ({"input": source_of(p), "target": p.summary} for p in some)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (cls.folder / f"{name}.jsonl").write_text(text)

    def rouge(self, answers):
        """The mean over packages that are held out."""
        scorer = rouge_scorer.RougeScorer(["rougeL"])
        pairs = zip(self.held_out, answers, strict=True)
        scores = [scorer.score(p.summary, answer)["rougeL"].fmeasure for p, answer in pairs]
        return sum(scores) / len(scores)

    def nearest(self, package):
        """Among the packages that are learned, that of the most similar name."""
        first = [p for p in self.learned if p.name[:3] == package.name[:3]] or self.learned[:1]
        matcher = difflib.SequenceMatcher(b=package.name)

        def likeness(other):
            matcher.set_seq1(other.name)
            return matcher.ratio()

        return max(first, key=likeness)

    def test_summaries_are_learned_from_names_and_tags(self):
        epochs = int(os.environ.get("SNUG_EPOCHS", 3))
        steps = len(self.learned) // BATCH  # Of an epoch.
        file = self.folder / "job.yaml"
        file.write_text(JOB.format(epochs=epochs, evaluated=steps, batch=BATCH))
        job = self.daemon.submit(file)
        wait_for(lambda: self.daemon.job(job)["state"] in ENDED, f"{job} to end", SECONDS)
        self.daemon.wait_state(job, "SUCCEEDED")
        output = self.folder / f"download-{job}"
        self.daemon.run("download", job, output)
        lines = evaluation_lines(output / "metrics.jsonl")
        words = self.rouge([" ".join(re.findall(r"[a-z]+", p.name)) for p in self.held_out])
        nearest = self.rouge([self.nearest(p).summary for p in self.held_out])
        found = {
            "learned": len(self.learned),
            "held out": HELD_OUT,
            "name": words,
            "nearest name": nearest,
            "rougeL": [line["eval_rougeL"] for line in lines],
            "loss": [line["eval_loss"] for line in lines],
        }
        print(json.dumps(found))
        if folder := os.environ.get("SNUG_CURVES"):
            self.daemon.run("plot", job, "--svg", pathlib.Path(folder) / "package-summaries.svg")
        self.assertGreater(lines[-1]["eval_rougeL"], words + 0.02)
        self.assertLess(lines[-1]["eval_loss"], lines[0]["eval_loss"] - 0.3)


if __name__ == "__main__":
    unittest.main()
