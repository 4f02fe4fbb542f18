"""Targets that are made of sources: jobs of tiny T5 models through the daemon, whose output
transformers and PEFT load, and which give the loss that was reported; what does not work with them
is refused by field."""

import json
import re
import subprocess
import unittest

import torch
from peft import PeftModel
from rouge_score import rouge_scorer
from tokenizers import Tokenizer, processors
from transformers import (
    AutoModelForSeq2SeqLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.harness import datasets, models
from tests.harness.binaries import binary
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
  sample_prompts: ./prompts.txt
  max_new_tokens: {tokens}
"""
PROMPTS = ("red tree =", "stone", "caf\u00e9 \u4e2d =")
ROUGE = ("rouge1", "rouge2", "rougeL")
GENERATED = 12  # Some answers are cut there.
GENERATES = f"""  predict_with_generate: true
  generation_max_length: {GENERATED}
  metric_for_best_model: rougeL
  load_best_model_at_end: true
  save_steps: 50
"""
NEW_TOKENS = 30  # More than a target has here, and than max_seq_length.
FULL = JOB + "method: full\n"
LORA = JOB + "method: lora\nmerge: true\nlora: {{r: 8, target_modules: [q, v, wo]}}\n"
REFUSED = {
    "training.packing=true": "training.packing",
    "training.group_by_length=true": "training.group_by_length",
    "training.neftune_noise_alpha=5": "training.neftune_noise_alpha",
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


def name_of(output):
    return output.name.removeprefix("download-")


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
        (cls.folder / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")

    def finish(self, text, **fields):
        """(downloaded folder, last evaluation) of a job that must succeed."""
        file = self.folder / "job.yaml"
        file.write_text(text.format(**fields, tokens=NEW_TOKENS))
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
        text = FULL.replace("  dropout: 0", "  dropout: 0\n  save_steps: 150")
        output, line = self.finish(text, model="v1.0", steps=300, rate=0.003)
        model, info = AutoModelForSeq2SeqLM.from_pretrained(output, output_loading_info=True)
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"])
        self.assert_reported(model, line)
        first = evaluation_lines(output / "metrics.jsonl")[0]["eval_loss"]
        self.assertLess(line["eval_loss"], 0.8 * first)
        self.assert_samples(model, output)
        self.assert_answers(output, ("--base",), self.base("v1.0"))
        self.assert_answers(output, (), model)
        self.assert_answers(output, ("--checkpoint", "300"), model)
        line = [binary("snug"), "--server", f"unix:{self.daemon.socket}", "chat", name_of(output)]
        chat = subprocess.run(line, input="hello\n", capture_output=True, text=True, timeout=60)
        self.assertNotEqual(chat.returncode, 0)
        self.assertIn("NO_CHAT_TEMPLATE", chat.stderr)

    def base(self, name):
        return AutoModelForSeq2SeqLM.from_pretrained(self.folder / name)

    def assert_generated(self, model, prompt, tokens, text):
        """What transformers generates of the prompt."""
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.folder / "v1.0")
        source = torch.tensor([tokenizer(prompt).input_ids])
        options = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
        wanted = model.eval().generate(input_ids=source, **options)[0, 1:].tolist()
        self.assertEqual(tokens, wanted)
        self.assertEqual(text, tokenizer.decode(wanted, skip_special_tokens=True))

    def assert_samples(self, model, output):
        """Those of the last evaluation are what the exported model generates."""
        lines = (output / "samples.jsonl").read_text(encoding="utf-8").splitlines()
        last = [json.loads(line) for line in lines][-len(PROMPTS) :]
        self.assertEqual([line["prompt"] for line in last], list(PROMPTS))
        for line in last:
            self.assert_generated(model, line["prompt"], line["tokens"], line["completion"])

    def assert_answers(self, output, options, model):
        """What `snug sample` says is what transformers generates, within its reservation."""
        prompts = self.folder / "prompts.txt"
        words = ("--prompts", prompts, "--max-new-tokens", NEW_TOKENS, *options)
        said = self.daemon.json("sample", name_of(output), *words)
        self.assertLessEqual(int(said["measured_peak_bytes"]), int(said["reserved_bytes"]))
        self.assertEqual([answer["prompt"] for answer in said["answers"]], list(PROMPTS))
        for answer in said["answers"]:
            self.assert_generated(model, answer["prompt"], answer["tokens"], answer["answer"])

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
            if precision == "bf16":
                continue
            for reader in (model, merged):
                self.assert_reported(reader, line)
            self.assert_samples(model, output)
            self.assert_answers(output, (), model)

    def assert_scored(self, model, line):
        """The scores of the pairs held out are rouge_score's, of what transformers generates."""
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.folder / "v1.0")
        scorer = rouge_scorer.RougeScorer(list(ROUGE), use_stemmer=False)
        sums = dict.fromkeys(("exact_match", *ROUGE), 0.0)
        for pair in self.held_out:
            source = torch.tensor([tokenizer(pair["prompt"]).input_ids])
            options = {"max_new_tokens": GENERATED, "do_sample": False}
            given = model.eval().generate(input_ids=source, **options)[0]
            answer = tokenizer.decode(given, skip_special_tokens=True)
            sums["exact_match"] += answer == pair["completion"]
            for name, score in scorer.score(pair["completion"], answer).items():
                sums[name] += score.fmeasure
        for name, total in sums.items():
            self.assertAlmostEqual(line[f"eval_{name}"], total / len(self.held_out), delta=1e-12)
        self.assertGreater(line["eval_rouge1"], 0.0)

    def test_evaluations_generate_and_the_best_is_told_by_them(self):
        text = FULL.replace("  sample_prompts: ./prompts.txt\n", GENERATES)
        output, line = self.finish(text, model="v1.1", steps=200, rate=0.003)
        progress = self.daemon.job(name_of(output))["progress"]
        self.assertEqual(progress["eval_metrics"]["eval_rougeL"], line["eval_rougeL"])
        lines = evaluation_lines(output / "metrics.jsonl")
        self.assert_scored(self.base(output), max(lines, key=lambda line: line["eval_rougeL"]))

    def test_what_does_not_work_is_refused_by_field(self):
        file = self.folder / "refused.yaml"
        file.write_text(FULL.format(model="v1.0", steps=1, rate=0.001, tokens=8))
        for change, field in REFUSED.items():
            with self.subTest(change):
                done = self.daemon.run("submit", file, change, code=None)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stdout + done.stderr, rf"{re.escape(field)}\b")


if __name__ == "__main__":
    unittest.main()
