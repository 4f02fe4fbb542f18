"""The main job through daemon and command line: the sample job files as they stand, from submit
to an adapter that loads in peft and a model that loads in transformers."""

import json
import math
import unittest

import torch
from peft import PeftModel
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.harness import jobs, models
from tests.harness.daemon import Daemon, metric_lines
from tests.parity import reference
from tests.parity.cases import Case, Prepared
from tests.parity.tokens import both_log_probabilities

METRICS = {
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "global_step",
    "num_tokens",
    "tokens_per_second",
    "step_seconds",
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


def prepared_rows(state, source):
    """Rows [(ids, weights)] of the prepared dataset that was made from a file of this name."""
    for about in state.glob("datasets/*/dataset.json"):
        if source in json.loads(about.read_text())["source"]:
            tensors = load_file(about.parent / "dataset.safetensors")
            ends = tensors["row_offsets"].tolist()
            ids, weights = tensors["input_ids"].tolist(), tensors["loss_weights"].tolist()
            return [(ids[a:b], weights[a:b]) for a, b in zip(ends, ends[1:])]
    raise AssertionError(f"no prepared dataset of {source} in {state}")


def mean_loss(model, rows):
    """Loss per trained token over rows, one at a time."""
    trained = sum(sum(weights) for _, weights in rows)
    model.eval()
    with torch.no_grad():
        return sum(reference.batch_loss(model, [row], trained).item() for row in rows)


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
        rows = prepared_rows(self.daemon.state, "train.jsonl")
        before = models.load_model(file.parent / "model", torch.float32)
        self.assertLess(mean_loss(model, rows), 0.98 * mean_loss(before, rows))

    def test_lora_example_runs_as_it_stands(self):
        file = jobs.lora_folder(self.daemon.folder / "lora")
        job, output = self.run_to_end(file)
        self.check_job(job, int(job["progress"]["max_steps"]))
        self.assertEqual(job["display_name"], "answers-lora")
        self.assertEqual(job["spec"]["training"]["precision"], "BF16")
        self.check_adapter(output, file.parent / "model")

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
        rows = prepared_rows(self.daemon.state, "eval.jsonl")
        base = models.load_model(file.parent / "model", torch.float32)
        before = mean_loss(base, rows)
        after = mean_loss(PeftModel.from_pretrained(base, str(output)), rows)
        reported = job["progress"]["eval_loss"]
        self.assertAlmostEqual(after, reported, delta=1e-5 * after)
        self.assertLess(after, 0.95 * before)

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
        rows = prepared_rows(self.daemon.state, "train.jsonl")
        start = mean_loss(models.load_model(output, torch.float32), rows)
        # Its first step sees 8 of the rows, so only roughly their mean; the fresh model is far off.
        fresh = metric_lines(output / "metrics.jsonl")[0]["loss"]
        loss = again["progress"]["loss"]
        self.assertLess(abs(loss - start), abs(loss - fresh))


if __name__ == "__main__":
    unittest.main()
