"""Images through the daemon: jobs on folders of them, whose output transformers and PEFT load with
the image processor beside it, and which give the figures that were reported, whatever is drawn of
the images that are trained."""

import json
import pathlib
import unittest

import numpy as np
import torch
from peft import PeftModel
from PIL import Image
from transformers import (
    AutoModelForImageClassification,
    DeiTConfig,
    DeiTForImageClassification,
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

from tests.e2e import scores
from tests.fault import runs
from tests.harness.daemon import Daemon, evaluation_lines

NAMES = ["across", "down", "slanted"]  # How stripes run.
SIDE = 20
STEPS = 200  # The job must still run when it is told to pause.
JOB = """
model: ./{model}
task: image_classification
num_labels: 3
dataset: ./stripes
eval_dataset: ./held-out
training:
  max_steps: 250
  per_device_train_batch_size: 16
  learning_rate: 0.003
  lr_scheduler_type: constant
"""
ONE_STEP = """
model: ./vit
dataset: ./held-out
method: full
image_augmentation: strong
training:
  {{max_steps: 1, per_device_train_batch_size: 30, learning_rate: 1e-12}}
"""
ADAPTER = "method: lora\nmerge: true\nlora: {{r: 16, target_modules: all-linear}}\n"
SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": SIDE,
    "patch_size": 5,
    "initializer_range": 0.15,  # A frozen base must tell patches apart.
}
STAGES = {
    "embed_dim": 32,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 2,
    "image_size": SIDE,
    "patch_size": 5,
    "initializer_range": 0.15,
}


def write_stripes(folder, seed, count):
    """So many images of each class: stripes of any two colours, width and place."""
    generator = np.random.default_rng(seed)
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            y, x = np.mgrid[0:32, 0:28] + generator.integers(9)
            along = {"across": y, "down": x, "slanted": x + y}[name]
            colours = generator.integers(0, 256, (2, 3))
            colours[1] = (colours[0] + 128) % 256
            stripes = colours[along // generator.integers(2, 5) % 2].astype(np.uint8)
            Image.fromarray(stripes).save(folder / name / f"{number}.png")


class ImagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        write_stripes(cls.folder / "stripes", 1, 100)
        write_stripes(cls.folder / "held-out", 2, 10)
        cls.processor = ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
        torch.manual_seed(5)
        models = {
            "vit": ViTForImageClassification(ViTConfig(**SIZES, num_labels=3)),
            # Its head has other classes.
            "deit": DeiTForImageClassification(DeiTConfig(**SIZES, num_labels=7)),
            "swin": SwinForImageClassification(SwinConfig(**STAGES, num_labels=3)),
        }
        for name, model in models.items():
            model.save_pretrained(cls.folder / name)
            cls.processor.save_pretrained(cls.folder / name)

    def submit(self, text, **named):
        file = self.folder / "job.yaml"
        file.write_text(text.format(**named))
        return self.daemon.submit(file)

    def finish(self, text, model):
        """(downloaded folder, last evaluation) of a job that must succeed."""
        job = self.submit(text, model=model)
        self.daemon.wait_state(job, "SUCCEEDED")
        output = self.folder / f"download-{job}"
        self.daemon.run("download", job, output)
        return output, evaluation_lines(output / "metrics.jsonl")[-1]

    def figures(self, model, folder):
        """Labels, predictions and the loss over a folder's images."""
        labels, predicted, loss = [], [], 0.0
        files = sorted(pathlib.Path(self.folder / folder).rglob("*.png"))
        for file in files:
            with Image.open(file) as image:
                pixels = self.processor(image, return_tensors="pt")["pixel_values"]
            label = torch.tensor([NAMES.index(file.parent.name)])
            with torch.no_grad():
                logits = model.eval()(pixel_values=pixels).logits
            labels.append(label.item())
            predicted.append(logits.argmax(-1).item())
            loss += torch.nn.functional.cross_entropy(logits.double(), label).item()
        self.assertEqual(len(files), 30)
        return labels, predicted, loss / len(files)

    def judge(self, model, output, line):
        """Loss and metrics over the images held out are those that were reported."""
        config = json.loads((output / "preprocessor_config.json").read_text())
        self.assertEqual(config["image_processor_type"], "ViTImageProcessor")
        labels, predicted, loss = self.figures(model, "held-out")
        scores.assert_reported(self, line, scores.of_classes(labels, predicted))
        # Near 0 it is as exact as logits in float32 are.
        self.assertAlmostEqual(line["eval_loss"], loss, delta=max(1e-5 * loss, 1e-6))
        self.assertGreaterEqual(line["eval_accuracy"], 0.9)

    def test_a_whole_model(self):
        output, line = self.finish(JOB + "method: full\n", "vit")
        model, info = AutoModelForImageClassification.from_pretrained(
            output, output_loading_info=True
        )
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"])
        self.assertEqual(model.config.id2label, dict(enumerate(NAMES)))
        self.judge(model, output, line)

    def test_an_adapter_of_another_head(self):
        output, line = self.finish(JOB + ADAPTER + "image_augmentation: none\n", "deit")
        config = json.loads((output / "adapter_config.json").read_text())
        self.assertIsNone(config["task_type"])
        self.assertEqual(config["modules_to_save"], ["classifier"])
        self.assertIn("AutoModelForImageClassification", (output / "README.md").read_text())
        base = AutoModelForImageClassification.from_pretrained(
            self.folder / "deit", num_labels=3, ignore_mismatched_sizes=True
        )
        self.judge(PeftModel.from_pretrained(base, str(output)), output, line)
        merged = AutoModelForImageClassification.from_pretrained(output / "merged")
        self.assertEqual(merged.config.id2label, dict(enumerate(NAMES)))
        self.judge(merged, output / "merged", line)

    def test_an_adapter_of_a_model_in_stages(self):
        output, line = self.finish(JOB + ADAPTER + "image_augmentation: none\n", "swin")
        base = AutoModelForImageClassification.from_pretrained(self.folder / "swin")
        self.judge(PeftModel.from_pretrained(base, str(output)), output, line)
        merged, info = AutoModelForImageClassification.from_pretrained(
            output / "merged", output_loading_info=True
        )
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"])
        self.judge(merged, output / "merged", line)

    def test_a_job_that_is_paused_trains_the_same_images(self):
        file = self.folder / "strong.yaml"
        file.write_text(JOB.format(model="vit") + "method: full\nimage_augmentation: strong\n")
        job = (file, f"training.max_steps={STEPS}", "training.save_steps=20")
        undisturbed = runs.Undisturbed(self.daemon, job, STEPS)
        name = self.daemon.submit(*job)
        self.daemon.pause(name, STEPS // 8)
        self.daemon.run("resume", name)
        undisturbed.check(self, self.daemon, name, epoch=2)
        # And so does one whose batches are divided otherwise.
        rows = "training.per_device_train_batch_size=4", "training.gradient_accumulation_steps=4"
        name = self.daemon.submit(file, "training.max_steps=10", *rows)
        self.daemon.wait_state(name, "SUCCEEDED")
        for (_, one), (_, other) in zip(undisturbed.steps, runs.steps_of(self.daemon, name, 1)):
            self.assertAlmostEqual(one, other, delta=1e-4 * one)

    def test_trained_images_are_evaluated_as_they_are(self):
        job = self.daemon.wait_state(self.submit(ONE_STEP), "SUCCEEDED")
        model = AutoModelForImageClassification.from_pretrained(self.folder / "vit")
        _, _, loss = self.figures(model, "held-out")
        self.assertAlmostEqual(job["output"]["loss"], loss, delta=1e-5 * loss)

    def test_images_are_planned_and_previewed(self):
        # A folder that no job has prepared: its first image is read, and names one class of three.
        write_stripes(self.folder / "planned", 3, 2)
        file = self.folder / "planned.yaml"
        file.write_text("model: ./vit\ndataset: ./planned\nmethod: full\nnum_labels: 3\n")
        answer = self.daemon.json("plan", file)
        self.assertEqual((answer["plans"][0]["name"], answer["chosen"]), ("keep", 0))
        words = ("datasets", "preview", self.folder / "planned", "--model", self.folder / "vit")
        self.assertIn("0.png, class across", self.daemon.run(*words).stdout)
        (self.folder / "planned" / "across" / "0.png").write_bytes(b"no image")
        answer = self.daemon.run("plan", file, code=1)
        self.assertIn("cannot be read as an image", answer.stderr)

    def test_what_is_wrong_is_named(self):
        for line, field in (
            ("training: {max_seq_length: 64}", "an image of this model has 17 tokens"),
            ("training: {packing: true}", "training.packing"),
            ("training: {neftune_noise_alpha: 5}", "neftune_noise_alpha"),
            ("image_augmentation: harsh", "image_augmentation: one of none, basic, strong"),
            ("problem_type: regression", "problem_type"),
            ("task: sequence_classification", "which reads images"),
            ("dataset_format: text", "dataset_format"),
        ):
            with self.subTest(line):
                file = self.folder / "wrong.yaml"
                file.write_text(f"model: ./vit\ndataset: ./stripes\nmethod: full\n{line}\n")
                answer = self.daemon.run("submit", file, code=None)
                self.assertNotEqual(answer.returncode, 0)
                self.assertIn(field, answer.stderr)


if __name__ == "__main__":
    unittest.main()
