"""Targets that are made of sources: jobs of tiny T5 models through the daemon, whose output
transformers and PEFT load, and which give the loss that was reported; what does not work with them
is refused by field."""

import json
import re
import unittest

import torch
from peft import PeftModel
from tokenizers import Tokenizer, processors
from transformers import (
    AutoModelForSeq2SeqLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.harness import datasets, models
from tests.harness.daemon import Daemon, evaluation_lines

JOB = """
model: ./{model}
task: seq2seq_lm
dataset: ./train.jsonl
eval_dataset: ./eval.jsonl
training:
  max_steps: {steps}
  eval_steps: 50
  per_device_train_batch_size: 16
  learning_rate: {rate}
  max_seq_length: 24
  lr_scheduler_type: constant
  dropout: 0
"""
FULL = JOB + "method: full\n"
LORA = JOB + "method: lora\nmerge: true\nlora: {{r: 8, target_modules: [q, v, wo]}}\n"
REFUSED = {
    "training.packing=true": "training.packing",
    "training.group_by_length=true": "training.group_by_length",
    "training.neftune_noise_alpha=5": "training.neftune_noise_alpha",
    "training.sample_prompts=[a]": "training.sample_prompts",
    "added_tokens=[new]": "added_tokens",
    "completion_only_loss=false": "completion_only_loss",
    "num_labels=3": "num_labels",
    "task=causal_lm": "task",
    "task=sequence_classification": "task",
    "reversible=native": "reversible",
}


def write_t5(folder, gated):
    """A T5 that was not trained, with a tokenizer that ends texts as T5's does."""
    torch.manual_seed(6)
    tokenizer = models.write_tokenizer(folder, [" ".join(datasets.WORDS)], 320)
    end = tokenizer.eos_token_id
    config = T5Config(
        vocab_size=320,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,
        pad_token_id=0,
        decoder_start_token_id=0,
        eos_token_id=end,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.post_processor = processors.TemplateProcessing("$A </s>", "$A $B </s>", [("</s>", end)])
    inner.save(str(folder / "tokenizer.json"))


class Seq2SeqTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        for name, gated in (("v1.0", False), ("v1.1", True)):
            (cls.folder / name).mkdir()
            write_t5(cls.folder / name, gated)
        pairs = datasets.sentences(1, 2000)
        datasets.write_pairs(pairs, cls.folder / "train.jsonl")
        cls.held_out = datasets.sentences(2, 20)
        rows = [{"input": p["prompt"], "target": p["completion"]} for p in cls.held_out]
        datasets.write_pairs(rows, cls.folder / "eval.jsonl")

    def finish(self, text, **fields):
        """(downloaded folder, last evaluation) of a job that must succeed."""
        file = self.folder / "job.yaml"
        file.write_text(text.format(**fields))
        job = self.daemon.submit(file)
        done = self.daemon.wait_state(job, "SUCCEEDED")
        memory = done["memory"]
        self.assertEqual(memory["measured_peak_bytes"], memory["predicted_peak_bytes"])
        output = self.folder / f"download-{job}"
        self.daemon.run("download", job, output)
        return output, evaluation_lines(output / "metrics.jsonl")[-1]

    def assert_reported(self, model, line):
        """The loss over the pairs held out is that of transformers."""
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.folder / "v1.0")
        model, total, trained = model.eval(), 0.0, 0
        for pair in self.held_out:
            source, target = (
                torch.tensor([tokenizer(pair[key]).input_ids]) for key in ("prompt", "completion")
            )
            with torch.no_grad():
                loss = model(input_ids=source, labels=target).loss.item()
            total += loss * target.shape[1]
            trained += target.shape[1]
        self.assertAlmostEqual(line["eval_loss"], total / trained, delta=1e-5 * line["eval_loss"])

    def test_a_full_job_gives_a_model_of_transformers(self):
        output, line = self.finish(FULL, model="v1.0", steps=300, rate=0.003)
        model, info = AutoModelForSeq2SeqLM.from_pretrained(output, output_loading_info=True)
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"])
        self.assert_reported(model, line)
        first = evaluation_lines(output / "metrics.jsonl")[0]["eval_loss"]
        self.assertLess(line["eval_loss"], 0.8 * first)
        prompts, job = self.folder / "prompts.txt", output.name.removeprefix("download-")
        prompts.write_text("red tree =\n")
        done = self.daemon.run("sample", job, "--prompts", prompts, code=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("seq2seq_lm", done.stderr)

    def test_an_adapter_is_peft_s(self):
        for precision in ("fp32", "bf16"):
            text = LORA.replace("  dropout: 0", f"  dropout: 0\n  precision: {precision}")
            output, line = self.finish(text, model="v1.1", steps=20, rate=0.01)
            config = json.loads((output / "adapter_config.json").read_text())
            self.assertEqual(config["task_type"], "SEQ_2_SEQ_LM")
            self.assertIn("AutoModelForSeq2SeqLM", (output / "README.md").read_text())
            self.assertEqual(sorted(config["target_modules"]), ["q", "v", "wo"])
            base = AutoModelForSeq2SeqLM.from_pretrained(self.folder / "v1.1")
            model = PeftModel.from_pretrained(base, str(output))
            merged = AutoModelForSeq2SeqLM.from_pretrained(output / "merged")
            for reader in (model, merged) if precision == "fp32" else ():
                self.assert_reported(reader, line)

    def test_what_does_not_work_is_refused_by_field(self):
        file = self.folder / "refused.yaml"
        file.write_text(FULL.format(model="v1.0", steps=1, rate=0.001))
        for change, field in REFUSED.items():
            with self.subTest(change):
                done = self.daemon.run("submit", file, change, code=None)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stdout + done.stderr, rf"{re.escape(field)}\b")


if __name__ == "__main__":
    unittest.main()
