"""A LoRA job that starts from a PEFT adapter: its first loss is that of the adapter in PEFT, and
what cannot be gone on from is refused by name."""

import json
import unittest

import torch

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import datasets, jobs, models
from tests.harness.daemon import Daemon, metric_lines

ROWS = 32
# One step over all rows, which changes nothing. Rank, alpha and modules are the adapter's.
JOB = f"""
model: ./model
dataset: ./train.jsonl
eval_dataset: ./train.jsonl
method: lora
lora: {{init_adapter: ./adapter}}
training: {{max_steps: 1, per_device_train_batch_size: {ROWS}, learning_rate: 0.0, packing: false}}
"""
# alpha / r is not one, and far from alpha / sqrt(r).
ADAPTER = {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "down_proj"]}


class InitAdapterTest(unittest.TestCase):
    """One daemon and model; an adapter per test."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        folder = cls.daemon.folder
        cls.model = jobs.write_model_folder(folder / "model")
        datasets.write_pairs(datasets.sentences(1, ROWS), folder / "train.jsonl")
        cls.file = folder / "job.yaml"

    def write(self, **settings):
        """A job whose adapter has these settings."""
        adapter = self.daemon.folder / self.id().rsplit(".", maxsplit=1)[-1]
        base = models.load_model(self.model, torch.float32)
        models.write_adapter(base, adapter, {**ADAPTER, **settings}, seed=5)
        self.file.write_text(JOB.replace("./adapter", str(adapter)))
        return adapter

    def check_first_loss(self, adapter):
        """Snug's is PEFT's, with dropout or gradients in neither."""
        name = self.daemon.submit(self.file)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        rows, _ = rows_of(self.daemon, name)
        self.assertEqual(len(rows), ROWS)
        without = mean_loss(models.load_model(self.model, torch.float32), rows)
        expected = mean_loss(models.load_model(self.model, torch.float32, adapter), rows)
        self.assertGreater(abs(expected - without), 1e-3 * expected)
        (line,) = metric_lines(self.daemon.attempt(name) / "metrics.jsonl")
        self.assertAlmostEqual(line["loss"], expected, delta=1e-5 * expected)
        self.assertAlmostEqual(job["progress"]["eval_loss"], expected, delta=1e-5 * expected)

    def test_first_loss_is_that_of_the_adapter_in_peft(self):
        self.check_first_loss(self.write())

    def test_first_loss_is_that_of_an_rslora_adapter_in_peft(self):
        self.check_first_loss(self.write(use_rslora=True))

    def test_first_loss_is_that_of_an_adapter_with_patterns_in_peft(self):
        adapter = self.write(
            target_modules=r".*\.(q|v|down)_proj",
            alpha_pattern={"q_proj": 32},
            rank_pattern={r"layers\.1\.mlp\.down_proj": 3},
            exclude_modules=["layers.0.self_attn.v_proj"],
        )
        self.assertTrue(json.loads((adapter / "adapter_config.json").read_text())["alpha_pattern"])
        self.check_first_loss(adapter)

    def test_first_loss_is_that_of_saved_modules_in_peft(self):
        self.check_first_loss(
            self.write(modules_to_save=["embed_tokens", "norm"], ensure_weight_tying=True)
        )

    def test_adapter_with_biases_is_refused(self):
        adapter = self.write()
        path = adapter / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "bias": "all"}))
        done = self.daemon.run("submit", self.file, code=None)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("bias", done.stderr)
        self.assertIn(str(adapter), done.stderr)


if __name__ == "__main__":
    unittest.main()
