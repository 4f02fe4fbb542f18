"""A LoRA job that starts from a PEFT adapter: its first loss is that of the adapter in PEFT, and
what cannot be gone on from is refused by name."""

import json
import unittest

import torch

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import datasets, jobs, models
from tests.harness.daemon import Daemon, evaluation_lines, metric_lines
from tests.harness.long_set import in_the_long_set

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

    @in_the_long_set
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

    @in_the_long_set
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

    # What other jobs made. Of each the evaluation behind a step is the loss that another job, which
    # changes nothing, finds at its own first one.

    def trained(self, *changes):
        """An ended job of three steps with a checkpoint and an evaluation of each; {step: loss}."""
        saves = ("save_steps=1", "save_strategy=steps", "save_total_limit=9", "eval_steps=1")
        steps = ("max_steps=3", "learning_rate=0.01", *saves)
        name = self.daemon.submit(self.file, *changes, *(f"training.{step}" for step in steps))
        self.daemon.wait_state(name, "SUCCEEDED")
        lines = evaluation_lines(self.daemon.attempt(name) / "metrics.jsonl")
        losses = {line["global_step"]: line["eval_loss"] for line in lines}
        self.assertEqual(len(set(losses.values())), 3)
        return name, losses

    def first_loss(self, *changes):
        """Of a job that is submitted with these."""
        name = self.daemon.submit(self.file, *changes)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        (line,) = metric_lines(self.daemon.attempt(name) / "metrics.jsonl")
        self.assertAlmostEqual(line["loss"], job["progress"]["eval_loss"], delta=1e-5)
        return line["loss"], job

    def test_goes_on_with_a_job_s_adapter_and_with_its_checkpoints(self):
        self.file.write_text(JOB.replace("{init_adapter: ./adapter}", "{r: 3, lora_alpha: 5}"))
        parent, losses = self.trained()
        self.file.write_text(JOB)
        for made, step in ((parent, 3), (f"{parent}/checkpoints/2", 2)):
            loss, job = self.first_loss(f"lora.init_adapter={made}")
            self.assertAlmostEqual(loss, losses[step], delta=1e-5 * loss)
            self.assertEqual(job["spec"]["lora"]["init_adapter"], made)
            self.assertEqual((job["spec"]["lora"]["r"], job["spec"]["lora"]["lora_alpha"]), (3, 5))
        for wrong, says in (
            (f"{parent}/checkpoints/7", "no checkpoint of step 7"),
            ("nobody-1", "nobody-1"),
        ):
            done = self.daemon.run("submit", self.file, f"lora.init_adapter={wrong}", code=None)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)
        done = self.daemon.run(
            "submit", self.file, f"lora.init_adapter={parent}", "lora.r=8", code=None
        )
        self.assertIn("r is 3, the job asks for 8", done.stderr)

    def test_goes_on_with_a_checkpoint_of_a_model(self):
        self.file.write_text(JOB.replace("lora: {init_adapter: ./adapter}\n", ""))
        parent, losses = self.trained("method=full")
        made = f"{parent}/checkpoints/2"
        for method in ("full", "lora"):
            loss, job = self.first_loss(f"method={method}", f"model={made}")
            self.assertAlmostEqual(loss, losses[2], delta=1e-5 * loss)
            self.assertEqual(job["spec"]["model"], made)

    def test_an_adapter_of_a_checkpoint_of_a_model_is_loaded_and_asked(self):
        self.file.write_text(JOB.replace("lora: {init_adapter: ./adapter}\n", ""))
        parent, losses = self.trained("method=full")
        made = f"{parent}/checkpoints/2"
        name, of_adapter = self.trained(f"model={made}")
        self.assertGreater(abs(of_adapter[3] - losses[2]), 1e-3 * losses[2])
        # As others have both: the base by the name of the checkpoint, which is a model's folder.
        folder = self.daemon.folder / "of-a-checkpoint"
        self.daemon.run("download", made, folder / "base")
        self.daemon.run("download", name, folder / "adapter")
        self.assertIn(f"`{made}`", (folder / "adapter" / "README.md").read_text())
        rows, _ = rows_of(self.daemon, name)
        for adapter, expected in ((None, losses[2]), (folder / "adapter", of_adapter[3])):
            model = models.load_model(folder / "base", torch.float32, adapter)
            self.assertAlmostEqual(mean_loss(model, rows), expected, delta=1e-5 * expected)
        # And as the daemon has them.
        prompts = folder / "prompts.txt"
        prompts.write_text("red green = \n")
        for flags in ((), ("--base",)):
            asked = ("sample", name, "--prompts", prompts, "--max-new-tokens", "4", *flags)
            self.assertEqual(len(self.daemon.json(*asked)["answers"]), 1)

    def test_an_adapter_goes_on_from_a_checkpoint_beside_its_own_base(self):
        self.file.write_text(JOB.replace("lora: {init_adapter: ./adapter}\n", ""))
        parent, _ = self.trained("method=full")
        model = f"model={parent}/checkpoints/2"
        of_adapter, losses = self.trained(model)
        begins = f"lora.init_adapter={of_adapter}/checkpoints/2"
        loss, _ = self.first_loss(model, begins)
        self.assertAlmostEqual(loss, losses[2], delta=1e-5 * loss)


if __name__ == "__main__":
    unittest.main()
