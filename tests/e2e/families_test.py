"""Every family through the service: trained, evaluated, asked, merged and exported. transformers
and peft load the outputs, and their losses and answers are those that the job reported."""

import json
import unittest

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.oracle import mean_loss, rows_of
from tests.harness import datasets, families, jobs, models
from tests.harness.daemon import Daemon

WINDOW = 11
NEW_TOKENS = 24
PROMPTS = [f"{' '.join(datasets.WORDS)} = ", "stone"]  # The first is longer than the window.
JOB = f"""
model: ./model
dataset: ./train.jsonl
eval_dataset: ./eval.jsonl
training: {{max_steps: 4, per_device_train_batch_size: 2, learning_rate: 0.01, max_seq_length: 256,
           eval_steps: 2, sample_prompts: {json.dumps(PROMPTS)},
           sample_max_new_tokens: {NEW_TOKENS}}}
"""
LORA = """
method: lora
merge: true
lora: {r: 4, lora_alpha: 16}
"""
FULL = "method: full\n"
ROPES = {"mistral": "llama3", "gemma2": "linear", "gemma3": "linear", "phi3": "default"}


def shape_of(family):
    """With all that sets the family apart."""
    return models.Shape(
        family=family,
        layers=3,
        kv_heads=2,
        window=WINDOW if family != "llama" else None,
        vocabulary=jobs.VOCABULARY,
        tied=family in ("qwen2", "gemma2", "gemma3"),
        rope=ROPES.get(family, "yarn"),
        rotary_share=0.5 if family == "phi3" else 1.0,
        biases=family == "llama",
    )


class FamiliesTest(unittest.TestCase):
    """One daemon; a LoRA job and a full one per family, both in packed rows."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def write(self, family, method):
        """A job file beside its model and data."""
        folder = self.daemon.folder / f"{family}-{self._testMethodName}"
        folder.mkdir()
        jobs.write_model_folder(folder / "model", shape_of(family))
        datasets.write_pairs(datasets.sentences(1, 24), folder / "train.jsonl")
        datasets.write_pairs(datasets.sentences(2, 6), folder / "eval.jsonl")
        (folder / "job.yaml").write_text(JOB + method)
        return folder / "job.yaml"

    def finish(self, file):
        """The ended job, within its prediction, and its downloaded folder."""
        name = self.daemon.submit(file)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        predicted = int(job["memory"]["predicted_peak_bytes"])
        self.assertLessEqual(int(job["memory"]["measured_peak_bytes"]), predicted)
        output = file.with_name("output")
        self.daemon.run("download", name, output)
        return job, output

    def load(self, folder):
        """A model that lacks no tensor and has none too many."""
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True
        )
        for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(report[problem], problem)
        return model

    def check_loss(self, job, model):
        """That of the rows held out is the job's last."""
        _, rows = rows_of(self.daemon, job["id"])
        expected = mean_loss(model, rows)
        self.assertAlmostEqual(job["progress"]["eval_loss"], expected, delta=1e-5 * expected)

    def check_answers(self, output, model):
        """The last answers, token by token; a cache of keys on both sides."""
        lines = [json.loads(line) for line in (output / "samples.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], [2, 2, 4, 4])
        tokenizer = AutoTokenizer.from_pretrained(output)
        for line in lines[-2:]:
            ids = torch.tensor([tokenizer(line["prompt"])["input_ids"]])
            self.assertEqual(ids.shape[1] > WINDOW, line["prompt"] == PROMPTS[0])
            given = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, use_cache=True)
            self.assertEqual(line["tokens"], given[0, ids.shape[1] :].tolist())

    def test_adapters(self):
        for family in families.FAMILIES:
            with self.subTest(family):
                file = self.write(family, LORA)
                job, output = self.finish(file)
                base = models.load_model(file.with_name("model"), torch.float32)
                _, rows = rows_of(self.daemon, job["id"])
                before = mean_loss(base, rows)
                adapted = PeftModel.from_pretrained(base, output).eval()
                self.check_loss(job, adapted)
                self.assertLess(job["progress"]["eval_loss"], 0.98 * before)
                self.check_answers(output, adapted)
                merged = self.load(output / "merged")
                loss = mean_loss(merged, rows)
                self.assertAlmostEqual(job["output"]["merged_loss"], loss, delta=1e-5 * loss)
                self.check_report(output, adapted)

    def check_report(self, output, adapted):
        """PEFT has put as many adapters into the model as the report says."""
        readers = json.loads((output / "compatibility.json").read_text())["readers"]
        found = sum(isinstance(module, LoraLayer) for module in adapted.modules())
        for reader in readers:
            self.assertEqual((reader["loads"], reader["modules"]), (True, found), reader)

    def test_full_models(self):
        for family in families.FAMILIES:
            with self.subTest(family):
                job, output = self.finish(self.write(family, FULL))
                model = self.load(output).eval()
                self.check_loss(job, model)
                self.check_answers(output, model)


if __name__ == "__main__":
    unittest.main()
