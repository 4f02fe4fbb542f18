"""A LoRA job with PEFT's options that is also asked for a merged model: both load, agree, and the
job says what each gave and who loads the adapter."""

import dataclasses
import json
import unittest

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.harness import datasets, jobs, models
from tests.harness.daemon import Daemon

JOB = r"""
model: ./model
dataset: ./train.jsonl
eval_dataset: ./train.jsonl
method: lora
merge: true
lora:
  r: 4
  lora_alpha: 64
  target_modules: 'lm_head|.*\.((q|v|down)_proj|embed_tokens)'
  rank_pattern: {q_proj: 24}
  alpha_pattern: {'layers\.1\.mlp\.down_proj': 200}
  modules_to_save: [norm]
training: {max_steps: 3, per_device_train_batch_size: 32, learning_rate: 0.01}
"""


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


class MergedTest(unittest.TestCase):
    """One job, looked at from all sides."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.folder = self.daemon.folder
        untied = dataclasses.replace(jobs.SHAPE, tied=False)
        self.model = jobs.write_model_folder(self.folder / "model", untied)
        datasets.write_pairs(datasets.sentences(1, 32), self.folder / "train.jsonl")

    def submit(self, text):
        file = self.folder / "job.yaml"
        file.write_text(text)
        return self.daemon.submit(file)

    def test_both_load_and_agree(self):
        name = self.submit(JOB)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        output = self.folder / "download"
        self.daemon.run("download", name, output)
        base = models.load_model(self.model, torch.float32)
        ids = torch.arange(3, 40)[None]
        without = logits(base, ids)
        adapted = logits(PeftModel.from_pretrained(base, output), ids)
        merged, report = AutoModelForCausalLM.from_pretrained(
            output / "merged", dtype=torch.float32, output_loading_info=True
        )
        for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(report[problem], problem)
        scale = adapted.abs().max()
        self.assertGreater((adapted - without).abs().max(), 1e-2 * scale)
        self.assertLess((logits(merged, ids) - adapted).abs().max(), 1e-4 * scale)
        AutoTokenizer.from_pretrained(output / "merged")
        self.check_report(name, job, output)

    def check_report(self, name, job, output):
        """Losses and readers, in the job, on the screen and beside the adapter."""
        loss, merged_loss = job["output"]["loss"], job["output"]["merged_loss"]
        self.assertAlmostEqual(merged_loss, loss, delta=1e-5 * loss)
        self.assertAlmostEqual(loss, job["progress"]["eval_loss"], delta=1e-9)
        shown = self.daemon.run("get", name).stdout
        self.assertIn(f"{merged_loss:.6f} merged", shown)
        self.assertIn("vLLM: no, modules_to_save is not null (5 modules trained whole)", shown)
        self.assertIn("PEFT: 13 of 13 modules", shown)
        readers = json.loads((output / "compatibility.json").read_text())["readers"]
        self.assertEqual([r["loads"] for r in readers], [True, False, False])

    def refusal(self, text):
        file = self.folder / "job.yaml"
        file.write_text(text)
        done = self.daemon.run("submit", file, code=None)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_what_no_module_matches_is_refused_by_its_field(self):
        said = self.refusal(JOB.replace("q_proj: 24", "nothing_proj: 24"))
        self.assertIn("lora.rank_pattern", said)
        self.assertIn('"nothing_proj" matches no adapted module', said)

    def test_adapters_of_a_tied_head_are_refused_by_their_field(self):
        jobs.write_model_folder(self.folder / "model")
        said = self.refusal(JOB)
        self.assertIn("lora.target_modules: model.embed_tokens is one matrix with lm_head", said)
        self.assertIn("modules_to_save", said)


if __name__ == "__main__":
    unittest.main()
