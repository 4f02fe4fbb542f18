"""Reversible models through the service: trained from a plain checkpoint's weights, in bytes that
do not grow with the layers; transformers loads the output by its own loader, and finds the losses
and answers that the job reported."""

import json
import unittest

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import datasets, jobs, models
from tests.harness.daemon import Daemon

RECOVER = 'memory.stash={"*": reversible}'
AHEAD = 'memory.stash={"*": {kind: reversible, ahead: true}}'
JOB = """
model: ./model
dataset: ./train.jsonl
eval_dataset: ./eval.jsonl
method: full
reversible: native
training: {max_steps: 4, per_device_train_batch_size: 2, learning_rate: 0.01, max_seq_length: 256,
           eval_steps: 2, sample_prompts: [stone], sample_max_new_tokens: 12}
"""


class ReversibleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def write(self, family="llama", layers=3, window=None):
        """A job file beside its model and data."""
        folder = self.daemon.folder / f"{family}-{layers}"
        if not folder.exists():
            folder.mkdir()
            shape = models.Shape(
                family=family,
                layers=layers,
                kv_heads=2,
                vocabulary=jobs.VOCABULARY,
                window=window,
            )
            jobs.write_model_folder(folder / "model", shape)
            datasets.write_pairs(datasets.sentences(1, 24), folder / "train.jsonl")
            datasets.write_pairs(datasets.sentences(2, 6), folder / "eval.jsonl")
            (folder / "job.yaml").write_text(JOB)
        return folder / "job.yaml"

    def finish(self, file, *changes):
        """The ended job, in the bytes that were predicted, and its output."""
        name = self.daemon.submit(file, *changes)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        memory = job["memory"]
        self.assertLessEqual(
            int(memory["measured_peak_bytes"]), int(memory["predicted_peak_bytes"])
        )
        return job, self.daemon.attempt(name) / "output"

    def load(self, folder):
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=True
        )
        return model.eval()

    def test_what_is_recovered_trains_the_same_weights_and_transformers_loads_them(self):
        for family in ("llama", "qwen3"):
            with self.subTest(family):
                file = self.write(family)
                job, output = self.finish(file, RECOVER)
                self.assertEqual(job["memory"]["fidelity"], "exact")
                self.assertEqual(job["memory"]["kinds"], {"reversible": 1.0})
                _, kept = self.finish(file, 'memory.stash={"*": keep}')
                weights = [
                    (folder / "model.safetensors").read_bytes() for folder in (output, kept)
                ]
                self.assertEqual(weights[0], weights[1])
                model = self.load(output)
                _, rows = rows_of(self.daemon, job["id"])
                loss = mean_loss(model, rows)
                self.assertAlmostEqual(job["progress"]["eval_loss"], loss, delta=1e-5 * loss)
                self.check_answers(output, model)

    def test_rev_10_layers_recovered_ahead_train_the_same_weights(self):
        file = self.write()
        _, output = self.finish(file, RECOVER)
        _, ahead = self.finish(file, AHEAD)
        weights = [(folder / "model.safetensors").read_bytes() for folder in (output, ahead)]
        self.assertEqual(weights[0], weights[1])
        (plan,) = self.daemon.json("plan", file, AHEAD)["plans"]
        self.assertEqual(plan["options"], {"reversible": [{"ahead": True}]})
        text = self.daemon.run("plan", file, AHEAD).stdout
        self.assertRegex(text, r"reversible +recovered ahead")

    def check_answers(self, output, model):
        line = json.loads((output / "samples.jsonl").read_text().splitlines()[-1])
        ids = torch.tensor([AutoTokenizer.from_pretrained(output)(line["prompt"])["input_ids"]])
        given = model.generate(ids, max_new_tokens=12, do_sample=False, use_cache=True)
        self.assertEqual(line["tokens"], given[0, ids.shape[1] :].tolist())

    def test_the_output_is_a_model_of_a_next_job(self):
        file = self.write()
        _, output = self.finish(file, RECOVER, "display_name=first")
        config = json.loads((output / "config.json").read_text())
        self.assertEqual(config["model_type"], "reversible_llama")
        with self.assertRaises(ValueError):  # Not as a plain Llama, by mistake.
            AutoModelForCausalLM.from_pretrained(output, trust_remote_code=False)
        again = file.with_name("again.yaml")
        again.write_text(JOB.replace("./model", str(output)).replace("reversible: native\n", ""))
        self.finish(again, RECOVER)
        refused = self.daemon.run("submit", again, "reversible=none", code=None)
        self.assertIn("reversible: the model was trained as native", refused.stderr)
        adapted, folder = self.finish(again, RECOVER, "method=lora", "merge=true")
        readers = json.loads((folder / "compatibility.json").read_text())["readers"]
        self.assertEqual([reader["loads"] for reader in readers], [True, False, False])
        merged = self.load(folder / "merged")
        _, rows = rows_of(self.daemon, adapted["id"])
        loss = mean_loss(merged, rows)
        self.assertAlmostEqual(adapted["output"]["merged_loss"], loss, delta=1e-5 * loss)

    def arena(self, layers):
        (plan,) = self.daemon.json("plan", self.write(layers=layers), RECOVER)["plans"]
        memory = plan["memory"]
        return sum(int(memory[f"{part}_bytes"]) for part in ("stash", "scratch", "workspace"))

    def test_rev_11_plans_do_not_grow_with_the_layers(self):
        self.assertEqual(self.arena(2), self.arena(8))
        plans = self.daemon.json("plan", self.write(layers=8))["plans"]
        smallest = min(plans, key=lambda plan: int(plan["peak_bytes"]))
        self.assertIn("reversible", smallest["name"])
        self.assertEqual(smallest["fidelity"], "exact")

    def test_what_is_not_offered_is_said(self):
        file = self.write()
        for change, message in (
            ("reversible=meft1", "reversible: meft1 is not offered; none or native"),
            ("reversible=both", 'reversible: none or native, not "both"'),
            ("method=lora", "reversible: native is for method: full"),
        ):
            with self.subTest(change):
                done = self.daemon.run("submit", file, change, code=None)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)
        done = self.daemon.run("submit", file, "reversible=none", RECOVER, code=None)
        self.assertIn("memory.stash: '*' asks for reversible, and the model has no", done.stderr)
        gemma = self.write("gemma2", window=16)
        done = self.daemon.run("submit", gemma, code=None)
        self.assertIn("native is for llama, mistral, qwen2, qwen3; the model is", done.stderr)


if __name__ == "__main__":
    unittest.main()
