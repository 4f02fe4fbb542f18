"""Jobs that add tokens, against transformers: add_tokens, resize_token_embeddings, and the same
steps from the same rows. transformers draws the new rows closely around the mean of the old ones;
the mean itself is what is taken here, so that is what the reference gets."""

import dataclasses
import json
import os
import random
import signal
import unittest

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import datasets, jobs, models
from tests.harness.daemon import Daemon, metric_lines
from tests.parity import reference

TOKENS = ["<plan>", "<|end of plan|>"]
STEPS, ROWS, RATE = 4, 24, 0.01
JOB = f"""
model: ./model
dataset: ./train.jsonl
added_tokens: {json.dumps(TOKENS)}
training: {{max_steps: {STEPS}, per_device_train_batch_size: {ROWS}, learning_rate: {RATE},
           lr_scheduler_type: constant, packing: false, weight_decay: 0.01}}
"""
FULL = JOB + "method: full\n"
LORA = JOB + """
method: lora
merge: true
lora: {r: 4, target_modules: [q_proj, v_proj], modules_to_save: [embed_tokens]}
"""
SETTINGS = reference.Settings(
    max_steps=STEPS, learning_rate=RATE, lr_scheduler_type="constant", warmup_steps=0,
    weight_decay=0.01, max_grad_norm=1.0,
)


def pairs():
    """The toy language, with the new tokens within words and between them."""
    generator, found = random.Random(5), []
    for pair in datasets.sentences(3, ROWS):
        token = generator.choice(TOKENS)
        prompt, completion = pair["prompt"] + token, pair["completion"] + token
        found.append({"prompt": prompt, "completion": completion})
    return found


class AddedTokensTest(unittest.TestCase):
    """One daemon; models with a row per token of their tokenizer, or with more."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def write(self, text, tied=True, more_rows=0):
        """A folder with a job, its model and data; the tokenizer's size."""
        folder = self.daemon.folder / self.id().rsplit(".", maxsplit=1)[-1]
        folder.mkdir()
        jobs.write_model_folder(folder / "size")
        size = len(AutoTokenizer.from_pretrained(folder / "size"))
        shape = dataclasses.replace(jobs.SHAPE, tied=tied, vocabulary=size + more_rows)
        self.model = jobs.write_model_folder(folder / "model", shape)
        self.assertEqual(len(AutoTokenizer.from_pretrained(self.model)), size)
        datasets.write_pairs(pairs(), folder / "train.jsonl")
        self.file = folder / "job.yaml"
        self.file.write_text(text)
        return size

    def finish(self, *changes):
        name = self.daemon.submit(self.file, *changes)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        predicted = int(job["memory"]["predicted_peak_bytes"])
        self.assertLessEqual(int(job["memory"]["measured_peak_bytes"]), predicted)
        output = self.daemon.folder / f"download-{name}"
        self.daemon.run("download", name, output)
        return name, job, output

    def grown(self):
        """(tokenizer, model) of transformers; where the model has rows enough none is added."""
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        model = models.load_model(self.model, torch.float32)
        first, rows = len(tokenizer), model.config.vocab_size
        tokenizer.add_tokens(TOKENS)
        if len(tokenizer) > rows:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=True)
        with torch.no_grad():
            for table in (model.get_input_embeddings(), model.get_output_embeddings()):
                drawn = table.weight[rows:] - table.weight[:rows].mean(0)
                self.assertLess(drawn.abs().sum(), 1e-3 * len(drawn))
                table.weight[first:] = table.weight[:first].double().mean(0).float()
        return tokenizer, model

    def losses(self, name, epoch=1):
        lines = metric_lines(self.daemon.attempt(name, epoch) / "metrics.jsonl")
        return [line["loss"] for line in lines]

    def check_ids(self, name, tokenizer):
        """Prompt, completion and the end token, as one text: the ids of transformers."""
        rows, _ = rows_of(self.daemon, name)
        texts = [pair["prompt"] + pair["completion"] + tokenizer.eos_token for pair in pairs()]
        self.assertEqual([ids for ids, _ in rows], [tokenizer(text).input_ids for text in texts])
        return rows

    def check_full(self):
        tokenizer, model = self.grown()
        name, job, output = self.finish()
        rows = self.check_ids(name, tokenizer)
        trained = reference.train(model, [[rows]] * STEPS, SETTINGS)
        for ours, theirs in zip(self.losses(name), trained.losses, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5 * theirs)
        self.check_model(job, output, tokenizer, rows)
        return name, output

    def check_model(self, job, output, tokenizer, rows):
        """The folder is a model of transformers with all tokens, and gives the loss told."""
        model, report = AutoModelForCausalLM.from_pretrained(
            output, dtype=torch.float32, output_loading_info=True
        )
        for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(report[problem], problem)
        exported = AutoTokenizer.from_pretrained(output)
        self.assertEqual(exported.convert_tokens_to_ids(TOKENS),
                         tokenizer.convert_tokens_to_ids(TOKENS))
        text = f"red{TOKENS[0]}blue{TOKENS[1]}"
        self.assertEqual(exported(text).input_ids, tokenizer(text).input_ids)
        self.assertGreaterEqual(model.config.vocab_size, len(exported))
        expected = mean_loss(model, rows)
        self.assertAlmostEqual(job["output"]["loss"], expected, delta=1e-5 * expected)

    def test_full_tied(self):
        self.write(FULL)
        self.check_full()

    # Its model is one like any other: it has the tokens, and takes further ones.
    def test_full_untied_and_a_job_on_its_result(self):
        size = self.write(FULL, tied=False)
        name, output = self.check_full()
        self.assertEqual(json.loads((output / "config.json").read_text())["vocab_size"], size + 2)
        again = self.file.with_name("again.yaml")
        again.write_text(FULL.replace("./model", name))
        done = self.daemon.run("submit", again, code=None)
        self.assertIn('"<plan>" is a token of the model already', done.stderr)
        self.file.write_text(FULL.replace("./model", name).replace('"<plan>", ', '"<more>", ')
                             .replace('"<|end of plan|>"', '"<most>"'))
        _, _, output = self.finish()
        self.assertEqual(json.loads((output / "config.json").read_text())["vocab_size"], size + 4)

    # Its checkpoints have them as well: an adapter is trained with them.
    def test_full_and_an_adapter_of_its_checkpoint(self):
        size = self.write(FULL)
        name, *_ = self.finish("training.save_strategy=steps", "training.save_steps=2")
        lines = LORA.replace("./model", f"{name}/checkpoints/2").splitlines(keepends=True)
        self.file.write_text("".join(line for line in lines if "added_tokens" not in line))
        adapter, _, output = self.finish()
        tokenizer, _ = self.grown()
        self.check_ids(adapter, tokenizer)
        config = json.loads((output / "merged" / "config.json").read_text())
        self.assertEqual(config["vocab_size"], size + len(TOKENS))

    # The first new token has a row that no token had, the second one an appended row.
    def test_full_with_a_row_to_spare(self):
        size = self.write(FULL, tied=False, more_rows=1)
        _, output = self.check_full()
        self.assertEqual(json.loads((output / "config.json").read_text())["vocab_size"], size + 2)

    def check_lora(self):
        """The adapter loads in PEFT on the resized base; the merged model without a word."""
        tokenizer, base = self.grown()
        name, job, output = self.finish()
        rows = self.check_ids(name, tokenizer)
        first = mean_loss(base, rows)  # A new adapter changes nothing.
        self.assertAlmostEqual(self.losses(name)[0], first, delta=1e-5 * first)
        resized = models.load_model(self.model, torch.float32)
        resized.resize_token_embeddings(len(tokenizer))
        expected = mean_loss(PeftModel.from_pretrained(resized, output), rows)
        self.assertAlmostEqual(job["output"]["loss"], expected, delta=1e-5 * expected)
        self.assertLess(expected, 0.9 * first)
        self.assertIn(f"base.resize_token_embeddings({len(tokenizer)})",
                      (output / "README.md").read_text())
        AutoTokenizer.from_pretrained(output)
        merged = {"output": {"loss": job["output"]["merged_loss"]}}
        self.check_model(merged, output / "merged", tokenizer, rows)
        return output

    def test_lora_tied_and_a_job_that_starts_from_its_adapter(self):
        self.write(LORA)
        output = self.check_lora()
        before = json.loads((output / "metrics.jsonl").read_text().splitlines()[-1])["loss"]
        lora = f"lora: {{init_adapter: {output}}}\n"
        self.file.write_text(JOB + "method: lora\n" + lora)
        name, _, _ = self.finish()
        self.assertLess(self.losses(name)[0], before)

    def test_lora_untied_in_bf16(self):
        size = self.write(LORA.replace("[embed_tokens]", "[embed_tokens, lm_head]"), tied=False)
        _, job, output = self.finish("precision=bf16")
        config = json.loads((output / "merged" / "config.json").read_text())
        self.assertEqual(config["vocab_size"], size + 2)
        loss = job["output"]["loss"]
        self.assertAlmostEqual(job["output"]["merged_loss"], loss, delta=2e-2 * loss)

    # A prompt's tokens are one id each, and an answer may hold them.
    def test_samples_are_those_of_transformers(self):
        self.write(FULL)
        _, _, output = self.finish("sample_prompts=['red <plan> blue']", "max_new_tokens=12",
                                   "eval_split=0.2", "eval_steps=2", "learning_rate=0.03")
        tokenizer = AutoTokenizer.from_pretrained(output)
        model = models.load_model(output, torch.float32).eval()
        line = json.loads((output / "samples.jsonl").read_text().splitlines()[-1])
        ids = torch.tensor([tokenizer(line["prompt"])["input_ids"]])
        self.assertIn(tokenizer.convert_tokens_to_ids("<plan>"), ids[0].tolist())
        given = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
        self.assertEqual(line["tokens"], given.tolist())
        text = tokenizer.decode(given, skip_special_tokens=True)
        self.assertEqual(line["completion"], text)

    # To the bit, as any run.
    def test_a_killed_job_goes_on_as_if_nothing_had_been(self):
        self.write(FULL)
        long = ("max_steps=200", "save_steps=1", "per_device_train_batch_size=4")
        whole, _, _ = self.finish(*long)
        name = self.daemon.submit(self.file, *long)
        os.kill(self.daemon.wait_step(name, 3)["worker_pid"], signal.SIGKILL)
        epoch = self.daemon.wait_state(name, "SUCCEEDED")["epoch"]
        self.assertEqual(epoch, 2)
        self.assertEqual(self.losses(name, epoch), self.losses(whole))

    def refusal(self, text):
        self.file.write_text(text)
        done = self.daemon.run("submit", self.file, code=None)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_what_cannot_be_is_refused_by_name(self):
        self.write(FULL)
        for tokens, words in (
            ('["</s>"]', '"</s>" is a token of the model already'),
            ('["<a>", "<a>"]', '"<a>" is there twice'),
            ('[""]', "an empty token"),
            (json.dumps([f"<{i}>" for i in range(1001)]), "1001 tokens; at most 1000"),
            (json.dumps(["x" * 129]), "a token of 129 bytes; at most 128"),
        ):
            said = self.refusal(FULL.replace(json.dumps(TOKENS), tokens))
            self.assertIn("added_tokens", said)
            self.assertIn(words, said)
        frozen = LORA.replace(", modules_to_save: [embed_tokens]", "")
        self.assertIn("name model.embed_tokens in lora.modules_to_save", self.refusal(frozen))


if __name__ == "__main__":
    unittest.main()
