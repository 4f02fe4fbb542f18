"""Labels that are no class of a document: numbers, several names, a class of each word. Jobs
through the daemon, whose output transformers and PEFT load and which give the figures that were
reported."""

import json
import random
import unittest

import torch
from peft import PeftModel
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.e2e import scores
from tests.harness import datasets, jobs, models
from tests.harness.daemon import Daemon, evaluation_lines

NAMES = ["animal", "colour", "number", "other"]
WORDS = dict(zip("bird fish red green blue one two three".split(), (0, 0, 1, 1, 1, 2, 2, 2)))
JOB = """
dataset: ./{name}.jsonl
eval_dataset: ./{name}-eval.jsonl
training:
  max_steps: 40
  per_device_train_batch_size: 16
  packing: false
  lr_scheduler_type: constant
  dropout: 0
"""
DOCUMENTS = "model: ./model\ntask: sequence_classification\n" + JOB
REGRESSION = DOCUMENTS + """
  learning_rate: 0.005
problem_type: regression
method: lora
"""
SEVERAL = DOCUMENTS + """
  learning_rate: 0.003
problem_type: multi_label_classification
num_labels: 3
method: full
"""
TAGS = "model: ./{model}\ntask: token_classification\nnum_labels: 4\n" + JOB
TAGS += "  learning_rate: 0.003\n  metric_for_best_model: eval_accuracy\n"


def texts(seed, count):
    """Lists of words."""
    generator = random.Random(seed)
    return [generator.choices(datasets.WORDS, k=generator.randrange(1, 8)) for _ in range(count)]


def kinds_of(words):
    """The classes that the words are of, but for the other ones."""
    return sorted({NAMES[WORDS[word]] for word in words if word in WORDS})


ROWS = {
    "regression": lambda words: {"text": " ".join(words), "label": WORDS.get(words[-1], 3) - 0.5},
    "several": lambda words: {"text": " ".join(words), "label": kinds_of(words)},
    "tags": lambda words: {"tokens": words, "ner_tags": [NAMES[WORDS.get(w, 3)] for w in words]},
}


def write_bert(folder):
    """A BERT of masked tokens that was not trained, with a tokenizer of its own."""
    torch.manual_seed(4)
    config = BertConfig(
        vocab_size=400,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    models.write_tokenizer(folder, [" ".join(datasets.WORDS)], 400)
    return folder


def write_t5(folder):
    """A whole T5 that was not trained, with the same tokenizer."""
    torch.manual_seed(4)
    config = T5Config(
        vocab_size=400,
        d_model=48,
        d_kv=12,
        num_layers=2,
        num_heads=4,
        d_ff=96,
        initializer_factor=0.2,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    models.write_tokenizer(folder, [" ".join(datasets.WORDS)], 400)
    return folder


class LabelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        cls.model = jobs.write_model_folder(cls.folder / "model")
        write_bert(cls.folder / "bert")
        write_t5(cls.folder / "t5")
        for name, row in ROWS.items():
            for suffix, seed, count in (("", 1, 120), ("-eval", 2, 20)):
                rows = [row(words) for words in texts(seed, count)]
                datasets.write_pairs(rows, cls.folder / f"{name}{suffix}.jsonl")

    def finish(self, name, text, model="model"):
        """(downloaded folder, last evaluation) of a job that must succeed."""
        file = self.folder / "job.yaml"
        file.write_text(text.format(name=name, model=model))
        job = self.daemon.submit(file)
        self.daemon.wait_state(job, "SUCCEEDED")
        output = self.folder / f"download-{job}"
        self.daemon.run("download", job, output)
        return output, evaluation_lines(output / "metrics.jsonl")[-1]

    def held_out(self, name):
        """(token ids, row) of each row held out."""
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.model)
        for words in texts(2, 20):
            row = ROWS[name](words)
            yield torch.tensor([tokenizer(row["text"]).input_ids]), row

    def test_a_regression_gives_numbers(self):
        output, line = self.finish("regression", REGRESSION)
        base = AutoModelForSequenceClassification.from_pretrained(
            self.model, num_labels=1, problem_type="regression"
        )
        self.assertIn('num_labels=1, problem_type="regression"', (output / "README.md").read_text())
        model = PeftModel.from_pretrained(base, str(output)).eval()
        losses, targets, predicted = [], [], []
        for ids, row in self.held_out("regression"):
            with torch.no_grad():
                label = torch.tensor([row["label"]])
                found = model(input_ids=ids, labels=label)
            losses.append(found.loss.item())
            targets.append(row["label"])
            predicted.append(found.logits.item())
        loss = sum(losses) / len(losses)
        self.assertAlmostEqual(line["eval_loss"], loss, delta=1e-5 * loss)
        scores.assert_reported(self, line, scores.of_numbers(targets, predicted), delta=1e-5)
        self.assertNotIn("eval_entropy", line)
        mean = sum(row["label"] for _, row in self.held_out("regression")) / 20
        spread = sum((row["label"] - mean) ** 2 for _, row in self.held_out("regression")) / 20
        self.assertLess(loss, 0.7 * spread)  # That of who always says the mean.

    def test_several_labels_each_are_there_or_not(self):
        output, line = self.finish("several", SEVERAL)
        model = AutoModelForSequenceClassification.from_pretrained(output).eval()
        self.assertEqual(model.config.problem_type, "multi_label_classification")
        self.assertEqual(model.config.id2label, dict(enumerate(NAMES[:3])))
        losses, labels, predicted = [], [], []
        for ids, row in self.held_out("several"):
            label = torch.tensor([[float(name in row["label"]) for name in NAMES[:3]]])
            with torch.no_grad():
                found = model(input_ids=ids, labels=label)
            losses.append(found.loss.item())
            labels.append(label[0].int().tolist())
            predicted.append((found.logits[0] > 0).int().tolist())
        loss = sum(losses) / len(losses)
        self.assertAlmostEqual(line["eval_loss"], loss, delta=1e-5 * loss)
        scores.assert_reported(self, line, scores.of_several(labels, predicted))
        self.assertLess(loss, 0.6)  # ln 2: that of who knows nothing.

    def judge_tags(self, model, line):
        """Loss and accuracy over the words held out are those that were reported."""
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.folder / "bert")
        tokenizer.backend_tokenizer.pre_tokenizer.add_prefix_space = True
        wanted, predicted, loss = [], [], 0.0
        for words in texts(2, 20):
            encoding = tokenizer(words, is_split_into_words=True)
            places = [encoding.word_ids().index(word) for word in range(len(words))]
            with torch.no_grad():
                logits = model.eval()(input_ids=torch.tensor([encoding.input_ids])).logits[0]
            labels = torch.tensor([WORDS.get(word, 3) for word in words])
            wanted += labels.tolist()
            predicted += logits[places].argmax(-1).tolist()
            loss += torch.nn.functional.cross_entropy(
                logits[places].double(), labels, reduction="sum"
            ).item()
        scores.assert_reported(self, line, scores.of_classes(wanted, predicted))
        mean = loss / len(wanted)
        self.assertAlmostEqual(line["eval_loss"], mean, delta=1e-5 * mean)
        self.assertGreaterEqual(line["eval_accuracy"], 0.9)

    def test_words_have_classes(self):
        for name, architecture in (("bert", "Bert"), ("t5", "T5")):
            with self.subTest(name):
                output, line = self.finish("tags", TAGS + "method: full\n", name)
                model, info = AutoModelForTokenClassification.from_pretrained(
                    output, output_loading_info=True
                )
                self.assertFalse(info["missing_keys"] or info["unexpected_keys"])
                found = json.loads((output / "config.json").read_text())["architectures"]
                self.assertEqual(found, [f"{architecture}ForTokenClassification"])
                self.assertEqual(model.config.id2label, dict(enumerate(NAMES)))
                self.judge_tags(model, line)

    def test_an_adapter_of_words_is_peft_s(self):
        lora = TAGS + "method: lora\nmerge: true\nlora: {{r: 8}}\n"
        for name in ("bert", "t5"):
            with self.subTest(name):
                output, line = self.finish("tags", lora, name)
                config = json.loads((output / "adapter_config.json").read_text())
                self.assertEqual(config["task_type"], "TOKEN_CLS")
                model = self.folder / name
                base = AutoModelForTokenClassification.from_pretrained(model, num_labels=4)
                self.judge_tags(PeftModel.from_pretrained(base, str(output)), line)
                merged = AutoModelForTokenClassification.from_pretrained(output / "merged")
                self.assertEqual(merged.config.id2label, dict(enumerate(NAMES)))
                self.judge_tags(merged, line)


if __name__ == "__main__":
    unittest.main()
