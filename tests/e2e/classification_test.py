"""Documents with named classes, from a language model's files: an adapter that PEFT loads, its
merged model and a fully trained one that transformers loads, each with the accuracy and the loss
that the job reported; a job that goes on from a classifier; and what is refused."""

import json
import random
import unittest

import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.e2e import scores
from tests.harness import datasets, jobs
from tests.harness.daemon import Daemon, Failed, evaluation_lines

CLASSES = ["animal", "colour", "number"]
WORDS = {
    "animal": ["bird", "fish"],
    "colour": ["red", "green", "blue"],
    "number": ["one", "two", "three"],
}
JOB = """
model: ./model
dataset: ./train.jsonl
eval_dataset: ./eval.jsonl
task: sequence_classification
num_labels: 3
training:
  max_steps: 80
  per_device_train_batch_size: 16
  packing: false
  lr_scheduler_type: constant
  metric_for_best_model: eval_accuracy
"""
LORA = JOB + "  learning_rate: 0.005\nmethod: lora\nmerge: true\nlora: {r: 8}\n"
FULL = JOB + "  learning_rate: 0.0015\nmethod: full\n"


def documents(seed, count):
    """Texts with one word that tells the class among others that do not."""
    generator = random.Random(seed)
    others = [w for w in datasets.WORDS if not any(w in words for words in WORDS.values())]
    rows = []
    for number in range(count):
        label = CLASSES[number % len(CLASSES)]
        words = generator.choices(others, k=generator.randrange(1, 8))
        words.insert(generator.randrange(len(words) + 1), generator.choice(WORDS[label]))
        rows.append({"text": " ".join(words), "label": label})
    return rows


class ClassificationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        cls.model = jobs.write_model_folder(cls.folder / "model")
        cls.held_out = documents(2, 30)
        cls.write("train.jsonl", documents(1, 150))
        cls.write("eval.jsonl", cls.held_out)

    @classmethod
    def write(cls, name, rows):
        datasets.write_pairs(rows, cls.folder / name)

    def submit(self, text, *changes):
        file = self.folder / "job.yaml"
        file.write_text(text)
        return self.daemon.submit(file, *changes)

    def finish(self, text, *changes):
        """(name, downloaded folder, last evaluation) of a job that must succeed."""
        name = self.submit(text, *changes)
        self.daemon.wait_state(name, "SUCCEEDED")
        output = self.folder / f"download-{name}"
        self.daemon.run("download", name, output)
        return name, output, evaluation_lines(output / "metrics.jsonl")[-1]

    def judge(self, model, classes=None, rows=None):
        """(scores, mean loss) over the documents held out, read with the model's own names."""
        ids_of = classes or model.config.label2id
        rows = rows or self.held_out
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        labels, predicted, loss = [], [], 0.0
        for row in rows:
            with torch.no_grad():
                ids = torch.tensor([tokenizer(row["text"]).input_ids])
                logits = model.eval()(input_ids=ids).logits[0]
            label = torch.tensor(ids_of[row["label"]])
            labels.append(label.item())
            predicted.append(logits.argmax().item())
            loss += torch.nn.functional.cross_entropy(logits.double(), label).item()
        return scores.of_classes(labels, predicted), loss / len(rows)

    def assert_reported(self, line, judged):
        found, loss = judged
        scores.assert_reported(self, line, found)
        self.assertAlmostEqual(line["eval_loss"], loss, delta=1e-5 * loss)
        self.assertGreaterEqual(found["eval_accuracy"], 0.8)  # Of three classes.

    def test_an_adapter_is_peft_s_and_its_merged_model_transformers(self):
        _, output, line = self.finish(LORA)
        config = json.loads((output / "adapter_config.json").read_text())
        self.assertEqual(config["task_type"], "SEQ_CLS")
        self.assertEqual(config["modules_to_save"], ["score"])
        base = AutoModelForSequenceClassification.from_pretrained(self.model, num_labels=3)
        model = PeftModel.from_pretrained(base, str(output))
        ids = {name: number for number, name in enumerate(CLASSES)}
        self.assert_reported(line, self.judge(model, ids))
        merged = AutoModelForSequenceClassification.from_pretrained(output / "merged")
        self.assertEqual(merged.config.id2label, dict(enumerate(CLASSES)))
        found, loss = self.judge(merged)
        scores.assert_reported(self, line, found)
        self.assertAlmostEqual(loss, line["eval_loss"], delta=1e-4 * loss)

    def test_a_full_model_is_transformers_and_goes_on(self):
        name, output, line = self.finish(FULL)
        model, info = AutoModelForSequenceClassification.from_pretrained(
            output, output_loading_info=True
        )
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"])
        self.assertEqual(model.config.architectures, ["LlamaForSequenceClassification"])
        self.assertEqual(model.config.id2label, dict(enumerate(CLASSES)))
        self.assert_reported(line, self.judge(model))
        progress = self.daemon.job(name)["progress"]
        figures = {key: line[key] for key in line if key.startswith("eval_")}
        told = {"eval_loss": progress["eval_loss"], "eval_runtime": line["eval_runtime"]}
        self.assertEqual({**told, **progress["eval_metrics"]}, figures)
        self.assertIn(f"f1_macro {line['eval_f1_macro']:.4f}", self.daemon.run("get", name).stdout)
        own = [text for text in FULL.splitlines() if not text.startswith(("task", "num_labels"))]
        changes = (f"model={name}", "training.max_steps=1", "training.learning_rate=1e-9")
        _, _, again = self.finish("\n".join(own), *changes)
        self.assertAlmostEqual(again["eval_loss"], line["eval_loss"], delta=1e-5)

    def test_two_classes_stop_by_f1_and_give_the_best(self):
        rows = [row for row in documents(3, 36) if row["label"] != "number"]
        self.write("two.jsonl", rows)
        changes = ("dataset=two.jsonl", "eval_dataset=two.jsonl", "num_labels=2", "max_steps=40")
        best = ("load_best_model_at_end=true", "metric_for_best_model=f1", "learning_rate=0.01")
        stop = ("eval_steps=2", "early_stopping_patience=3", "gradient_accumulation_steps=1")
        name, output, _ = self.finish(
            FULL, *changes[:3], *(f"training.{c}" for c in (changes[3], *best, *stop))
        )
        lines = evaluation_lines(output / "metrics.jsonl")
        scored = [line["eval_f1"] for line in lines]
        at = scored.index(max(scored))
        self.assertEqual(len(lines), at + 1 + 3)  # It stopped, three evaluations behind the best.
        self.assertEqual(self.daemon.job(name)["progress"]["global_step"], str(2 * len(lines)))
        model = AutoModelForSequenceClassification.from_pretrained(output)
        scores.assert_reported(self, lines[at], self.judge(model, rows=rows)[0])

    def test_what_does_not_fit_is_refused(self):
        for changes, message in (
            (["num_labels=1", "problem_type=single_label_classification"], "at least 2 classes"),
            (["problem_type=ranking"], "regression, not "),
            (["problem_type=regression"],
             "(regression of 3 outputs), which has eval_loss, eval_mse, eval_pearson"),
            (["training.metric_for_best_model=f1"],
             "outputs), which has eval_loss, eval_accuracy, eval_f1_macro, eval_matthews"),
            (["task=causal_lm", "num_labels=0"],
             "eval_accuracy is no metric of task: causal_lm, which has eval_loss, eval_mean_token"),
            (["task=causal_lm", "num_labels=0", "problem_type=single_label_classification"],
             "is of task: sequence_classification"),
            (["training.sample_prompts=[red]", "training.eval_steps=2"], "is of task: causal_lm"),
        ):
            with self.subTest(message), self.assertRaises(Failed) as failed:
                self.submit(FULL, *changes)
            self.assertIn(message, failed.exception.done.stderr)
        name = self.submit(FULL, "num_labels=4")
        error = self.daemon.wait_state(name, "FAILED")["error"]["message"]
        self.assertIn("3 names of classes, but num_labels is 4", error)


if __name__ == "__main__":
    unittest.main()
