"""The main job through daemon and command line: the sample job files as they stand, from submit
to an adapter that loads in peft and a model that loads in transformers."""

import json
import math
import unittest

import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import jobs, models
from tests.harness.daemon import Daemon, evaluation_lines, metric_lines
from tests.parity import reference
from tests.parity.cases import Case, Prepared
from tests.parity.tokens import both_log_probabilities

# Packed into sequences of 512 tokens, eight of which are a step: 21 steps.
BF16_ROWS = 7000
# Relative, between two libraries that each round their own way. In bf16 a value keeps 8 bits, and
# the mean over a hundred trained tokens about 12 (measured: 2.6e-4).
LOSS_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-3}
METRICS = {
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "global_step",
    "num_tokens",
    "tokens_per_second",
    "step_seconds",
    "time",
}
ADAPTER_CONFIG = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "revision": None,
    "inference_mode": True,
    "r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "bias": "none",
    "fan_in_fan_out": False,
    "use_rslora": False,
    "use_dora": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layers_to_transform": None,
    "layers_pattern": None,
    "exclude_modules": None,
    "init_lora_weights": True,
}


class MainJobTest(unittest.TestCase):
    """One daemon per test, so that the prepared datasets are the test's own."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def run_to_end(self, file, *changes):
        """Submits, watches, downloads; gives the job and the downloaded folder."""
        name = self.daemon.submit(file, *changes)
        self.daemon.run("watch", name)
        output = file.parent / f"download-{name}"
        self.daemon.run("download", name, output)
        return self.daemon.job(name), output

    def check_job(self, job, steps):
        """What every job that went well shows."""
        self.assertEqual(job["state"], "SUCCEEDED")
        self.assertEqual(job["error"], {})
        self.assertEqual(int(job["progress"]["global_step"]), steps)
        self.assertEqual(int(job["progress"]["max_steps"]), steps)
        memory = job["memory"]
        predicted, measured = (int(memory[f"{k}_peak_bytes"]) for k in ("predicted", "measured"))
        self.assertGreater(measured, 0)
        self.assertLessEqual(measured, predicted)
        self.assertLessEqual(predicted, int(memory["budget_bytes"]))

    def check_metrics(self, output, steps):
        """metrics.jsonl: each step once, every field a number."""
        lines = metric_lines(output / "metrics.jsonl")
        self.assertEqual([line["global_step"] for line in lines], list(range(1, steps + 1)))
        for line in lines:
            self.assertEqual(METRICS - set(line), set())
            self.assertTrue(all(math.isfinite(line[key]) for key in METRICS))
        return lines

    def test_full_example_gives_a_model_that_transformers_loads(self):
        file = jobs.full_folder(self.daemon.folder / "full")
        job, output = self.run_to_end(file)
        self.check_job(job, 20)
        self.assertEqual(job["display_name"], "tiny-full")
        self.check_metrics(output, 20)
        self.check_tokens(Case("full", jobs.SHAPE), output, None)
        model, report = AutoModelForCausalLM.from_pretrained(
            output, dtype=torch.float32, output_loading_info=True
        )
        for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(report[problem], problem)
        AutoTokenizer.from_pretrained(output)
        rows, _ = rows_of(self.daemon, job["id"])
        before = models.load_model(file.parent / "model", torch.float32)
        self.assertLess(mean_loss(model, rows), 0.98 * mean_loss(before, rows))

    def test_lora_example_runs_as_it_stands_in_bf16(self):
        file = jobs.lora_folder(self.daemon.folder / "lora", rows=BF16_ROWS)
        job, output = self.run_to_end(file)
        self.assertEqual(job["display_name"], "answers-lora")
        self.assertEqual(job["spec"]["training"]["precision"], "BF16")
        steps = int(job["progress"]["max_steps"])
        self.assertGreaterEqual(steps, 20)
        self.check_job(job, steps)
        lines = self.check_metrics(output, steps)
        self.assertEqual(lines[-1]["epoch"], 1.0)
        self.assertEqual(lines[-1]["num_tokens"], int(job["dataset"]["tokens"]))
        # Warm-up from zero, then a cosine: down at every step, to nearly nothing.
        rates = [line["learning_rate"] for line in lines]
        self.assertEqual((rates[0], rates[1]), (0.0, 2e-4))
        self.assertEqual(rates[1:], sorted(rates[1:], reverse=True))
        self.assertLess(rates[-1], 2e-5)
        (evaluation,) = evaluation_lines(output / "metrics.jsonl")
        self.assertEqual(evaluation["global_step"], steps)
        self.check_adapter(output, file.parent / "model")
        self.check_loss_in_peft(job, output, file.parent / "model", torch.bfloat16, 0.99)

    def test_eval_loss_falls_in_bf16(self):
        file = jobs.lora_folder(self.daemon.folder / "lora", rows=BF16_ROWS)
        changes = ("training.max_steps=20", "training.eval_steps=5", "training.learning_rate=5e-3")
        job, output = self.run_to_end(file, *changes)
        self.check_job(job, 20)
        self.check_metrics(output, 20)
        lines = evaluation_lines(output / "metrics.jsonl")
        self.assertEqual([line["global_step"] for line in lines], [5, 10, 15, 20])
        losses = [line["eval_loss"] for line in lines]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertEqual(losses[-1], job["progress"]["eval_loss"])
        self.check_loss_in_peft(job, output, file.parent / "model", torch.bfloat16, 0.75)

    def check_loss_in_peft(self, job, output, model, dtype, share):
        """peft reads the reported eval_loss from the adapter, and it is at most this share of what
        it was without."""
        _, rows = rows_of(self.daemon, job["id"])
        before = mean_loss(models.load_model(model, dtype), rows)
        after = mean_loss(models.load_model(model, dtype, output), rows)
        reported = job["progress"]["eval_loss"]
        self.assertAlmostEqual(after, reported, delta=LOSS_TOLERANCE[dtype] * after)
        self.assertLess(reported, share * before)

    def check_adapter(self, output, base):
        """Files and fields that readers of PEFT adapters need."""
        config = json.loads((output / "adapter_config.json").read_text())
        expected = {**ADAPTER_CONFIG, "base_model_name_or_path": str(base)}
        self.assertEqual({key: config.get(key, "absent") for key in expected}, expected)
        self.assertIn("peft_version", config)
        self.assertTrue((output / "README.md").read_text())
        self.assertTrue((output / "tokenizer.json").is_file())
        tensors = load_file(output / "adapter_model.safetensors")
        self.assertEqual({t.dtype.name for t in tensors.values()}, {"float32"})
        for key in tensors:
            self.assertRegex(key, r"^base_model\.model\.model\.layers\.\d.*\.lora_[AB]\.weight$")

    def test_exported_adapter_gives_in_peft_the_loss_that_was_reported(self):
        file = jobs.lora_folder(self.daemon.folder / "lora")
        job, output = self.run_to_end(
            file, "training.precision=fp32", "training.max_steps=30", "training.learning_rate=1e-2"
        )
        self.check_job(job, 30)
        self.check_metrics(output, 30)
        case = Case("lora", jobs.SHAPE, "all-linear", rank=16, alpha=32)
        self.check_tokens(case, file.parent / "model", output)
        self.check_loss_in_peft(job, output, file.parent / "model", torch.float32, 0.95)

    def check_tokens(self, case, model, adapter):
        """The worker and transformers with peft read the same log-probabilities from the files."""
        folder = self.daemon.folder / "tokens"
        prepared = Prepared(case, folder, model, adapter, None, [], reference.Settings())
        ours, theirs = both_log_probabilities(prepared, folder)
        self.assertLess(abs(ours - theirs).max(), 1e-5)

    def test_training_goes_on_from_the_model_of_a_finished_job(self):
        file = jobs.full_folder(self.daemon.folder / "full")
        first, output = self.run_to_end(file, "training.max_steps=6")
        again, _ = self.run_to_end(file, f"model={first['id']}", "training.max_steps=1")
        self.check_job(again, 1)
        rows, _ = rows_of(self.daemon, first["id"])
        start = mean_loss(models.load_model(output, torch.float32), rows)
        # Its first step sees 8 of the rows, so only roughly their mean; the fresh model is far off.
        fresh = metric_lines(output / "metrics.jsonl")[0]["loss"]
        loss = again["progress"]["loss"]
        self.assertLess(abs(loss - start), abs(loss - fresh))


if __name__ == "__main__":
    unittest.main()
