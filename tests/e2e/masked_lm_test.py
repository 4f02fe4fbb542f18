"""Masked tokens learned by jobs through the daemon: outputs that transformers and PEFT load and
which give the loss that was reported, and errors that name their field."""

import json
import random
import unittest

import torch
from peft import PeftModel
from transformers import AutoModelForMaskedLM, BertConfig, BertForPreTraining

from tests.harness import datasets, jobs, models
from tests.harness.daemon import Daemon, evaluation_lines
from tests.parity import masks

SEED, PROBABILITY = 11, 0.3
JOB = """
model: ./bert
dataset: ./train.jsonl
eval_dataset: ./eval.jsonl
task: masked_lm
mlm_probability: 0.3
training:
  max_steps: 60
  eval_steps: 30
  per_device_train_batch_size: 8
  gradient_accumulation_steps: 2
  learning_rate: 0.005
  lr_scheduler_type: constant
  dropout: 0
  seed: 11
"""
WORDS = [
    "a red bird sings one song".split(),
    "two green fish swim far away".split(),
    "the blue cat sees three mice".split(),
]


def texts(seed, count):
    """A word is known by those around it."""
    generator = random.Random(seed)
    return [" ".join(generator.choice(WORDS)) for _ in range(count)]


def write_bert(folder):
    """Of the class that published files are of: with a second head, which is not trained here."""
    tokenizer = models.write_wordpiece(folder, texts(1, 200), 100)
    torch.manual_seed(4)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
    BertForPreTraining(config).save_pretrained(folder)
    return tokenizer


class MaskedLmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        cls.tokenizer = write_bert(cls.folder / "bert")
        jobs.write_model_folder(cls.folder / "llama")
        for name, seed, count in (("train", 1, 120), ("eval", 2, 24)):
            rows = [{"text": text} for text in texts(seed, count)]
            datasets.write_pairs(rows, cls.folder / f"{name}.jsonl")

    def write_job(self, text):
        file = self.folder / "job.yaml"
        file.write_text(text)
        return file

    def finish(self, text):
        """(downloaded folder, evaluations) of a job that must succeed."""
        job = self.daemon.submit(self.write_job(text))
        self.daemon.wait_state(job, "SUCCEEDED")
        output = self.folder / f"download-{job}"
        self.daemon.run("download", job, output)
        return output, evaluation_lines(output / "metrics.jsonl")

    def judge(self, model, lines):
        """The loss over the tokens that evaluations hide is the one that was reported."""
        special = set(self.tokenizer.all_special_ids)
        settings = (SEED, PROBABILITY, self.tokenizer.mask_token_id, len(self.tokenizer))
        loss, right, hidden = 0.0, 0, 0
        for number, text in enumerate(texts(2, 24)):
            ids = self.tokenizer(text).input_ids
            weights = [float(token not in special) for token in ids]
            read, labels = masks.masked(number, ids, weights, masks.EVALUATION, settings)
            with torch.no_grad():
                logits = model.eval()(input_ids=torch.tensor([read])).logits[0].double()
            labels = torch.tensor(labels)
            chosen = labels != -100
            loss += torch.nn.functional.cross_entropy(
                logits[chosen], labels[chosen], reduction="sum"
            ).item()
            right += int((logits[chosen].argmax(-1) == labels[chosen]).sum())
            hidden += int(chosen.sum())
        self.assertAlmostEqual(lines[-1]["eval_loss"], loss / hidden, delta=1e-5 * loss / hidden)
        self.assertAlmostEqual(lines[-1]["eval_mean_token_accuracy"], right / hidden, delta=1e-12)
        self.assertLess(lines[-1]["eval_loss"], lines[0]["eval_loss"])

    def test_a_whole_model(self):
        output, lines = self.finish(JOB + "method: full\n")
        model, info = AutoModelForMaskedLM.from_pretrained(output, output_loading_info=True)
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"])
        self.assertEqual(model.config.architectures, ["BertForMaskedLM"])
        self.judge(model, lines)
        self.assertGreater(lines[-1]["eval_mean_token_accuracy"], 0.8)

    def test_an_adapter_is_peft_s(self):
        """Of every linear module, as PEFT takes the words; merged too."""
        lora = "method: lora\nmerge: true\nlora: {r: 8}\n"
        output, lines = self.finish(JOB + "  packing: false\n" + lora)
        config = json.loads((output / "adapter_config.json").read_text())
        self.assertIsNone(config["task_type"])
        base = AutoModelForMaskedLM.from_pretrained(self.folder / "bert")
        self.judge(PeftModel.from_pretrained(base, str(output)), lines)
        self.judge(AutoModelForMaskedLM.from_pretrained(output / "merged"), lines)
        self.assertIn("AutoModelForMaskedLM", (output / "README.md").read_text())

    def test_what_is_wrong_is_named(self):
        for change, said in (
            (("ility: 0.3", "ility: 1"), "mlm_probability: 1 is outside (0, 1)"),
            (("./bert", "./llama"), "task: masked_lm is not offered for llama"),
            (("masked_lm", "sequence_classification"), "mlm_probability: is of task: masked_lm"),
        ):
            file = self.write_job(JOB.replace(*change) + "method: full\n")
            done = self.daemon.run("submit", file, code=None)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
