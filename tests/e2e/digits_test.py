"""A small ViT learns to read digits from nothing: the images that scikit-learn ships, as folders of
PNG, by a job through the daemon, to 97 % of those that it has not seen."""

import unittest

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from transformers import (
    AutoModelForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

from tests.harness.daemon import Daemon, evaluation_lines

SIDE, SCALE = 16, 2  # The images are 8 x 8.
HELD_OUT = 360  # Of 1,797.
EPOCHS, BATCH = 40, 32
LEAST = 0.97
# A mirrored digit is none, or another one.
JOB = f"""
model: ./vit
task: image_classification
dataset: ./digits
eval_dataset: ./held-out
method: full
image_augmentation: none
training:
  num_train_epochs: {EPOCHS}
  per_device_train_batch_size: {BATCH}
  learning_rate: 0.001
  warmup_ratio: 0.1
  weight_decay: 0.01
  eval_strategy: epoch
"""


def write_digits(folder):
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    for place, number in enumerate(order):
        split = folder / ("held-out" if place < HELD_OUT else "digits")
        named = split / str(digits.target[number])
        named.mkdir(parents=True, exist_ok=True)
        pixels = np.round(digits.images[number] * (255 / 16)).astype(np.uint8)
        pixels = pixels.repeat(SCALE, 0).repeat(SCALE, 1)
        Image.fromarray(pixels).save(named / f"{number}.png")


def write_model(folder):
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=SIDE,
        patch_size=2,
        num_channels=1,
        num_labels=10,
    )
    ViTForImageClassification(config).save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    processor = ViTImageProcessorPil(size=size, image_mean=[0.5], image_std=[0.5])
    processor.save_pretrained(folder)
    return processor


class DigitsTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.folder = self.daemon.folder

    def test_a_vit_learns_digits_from_nothing(self):
        write_digits(self.folder)
        processor = write_model(self.folder / "vit")
        (self.folder / "job.yaml").write_text(JOB)
        job = self.daemon.submit(self.folder / "job.yaml")
        self.daemon.wait_state(job, "SUCCEEDED")
        output = self.folder / "output"
        self.daemon.run("download", job, output)
        line = evaluation_lines(output / "metrics.jsonl")[-1]
        print(f"{line['eval_accuracy']:.4f} of those held out", flush=True)
        self.assertGreaterEqual(line["eval_accuracy"], LEAST)
        # transformers reads as many of them right.
        model = AutoModelForImageClassification.from_pretrained(output).eval()
        files = sorted((self.folder / "held-out").rglob("*.png"))
        images = [Image.open(file).convert("L") for file in files]
        pixels = processor(images, return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            found = model(pixel_values=pixels).logits.argmax(-1).tolist()
        right = sum(model.config.id2label[n] == f.parent.name for n, f in zip(found, files))
        self.assertEqual(len(files), HELD_OUT)
        self.assertAlmostEqual(line["eval_accuracy"], right / HELD_OUT, delta=1e-12)


if __name__ == "__main__":
    unittest.main()
