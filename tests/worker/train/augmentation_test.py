"""Images as the worker trains them, against torchvision: the same numbers by what was drawn, to the
bit, and drawn as torchvision draws."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import load_file
from torchvision import transforms
from torchvision.transforms import functional, v2

ROOT = pathlib.Path(__file__).resolve().parents[3]
PREPARE = ROOT / "worker/prepare/snug_prepare.py"
TOOL = pathlib.Path(os.environ["SNUG_BIN_DIR"]).parent / "tests/bin/show_images"
SIDE, TOKENS, MOST = 24, 37, 48
# Width and height: around the model's, beyond what is kept, and beyond any crop's shape.
SIZES = [(24, 24), (31, 20), (17, 40), (48, 48), (90, 61), (64, 100), (47, 13), (9, 60), (200, 7)]
ADJUST = (
    functional.adjust_brightness,
    functional.adjust_contrast,
    functional.adjust_saturation,
)
EPOCHS = 300  # For what is drawn.


def far(ours, theirs):
    """Whether two samples are of two distributions (Kolmogorov and Smirnov; once in 1,000 of one).
    `theirs` may be drawn anew each time, so that the bound is a wide one."""
    ours, theirs = np.sort(ours), np.sort(theirs)
    at = np.concatenate([ours, theirs])
    apart = np.searchsorted(ours, at, "right") / len(ours)
    apart = np.abs(apart - np.searchsorted(theirs, at, "right") / len(theirs)).max()
    return apart > 1.95 * math.sqrt((len(ours) + len(theirs)) / (len(ours) * len(theirs)))


class AugmentationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(3)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.data, cls.tensors = cls.prepare("colours", 3)
        cls.drawn = cls.show(cls.data, "strong", EPOCHS)

    @classmethod
    def prepare(cls, name, channels):
        """(folder, tensors) of a dataset with originals, an image of each size."""
        folder, generator = cls.folder / name, np.random.default_rng(5)
        for number, (width, height) in enumerate(SIZES):
            label = folder / "images" / "abc"[number % 3]
            label.mkdir(parents=True, exist_ok=True)
            small = generator.integers(0, 256, (height // 3 + 1, width // 3 + 1, 3), np.uint8)
            image = Image.fromarray(small).resize((width, height))
            image.convert("RGB" if channels == 3 else "L").save(label / f"{number}.png")
        model = folder / "model"
        model.mkdir()
        config = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
        config.update(image_size=SIDE, patch_size=4, num_channels=channels)
        (model / "config.json").write_text(json.dumps(config))
        processor = {"image_processor_type": "ViTImageProcessor", "image_std": [0.25] * channels}
        processor.update(size={"height": SIDE, "width": SIDE}, image_mean=[0.4] * channels)
        (model / "preprocessor_config.json").write_text(json.dumps(processor))
        command = [sys.executable, PREPARE, "--model", model, "--dataset", folder / "images"]
        command += ["--output", folder / "data", "--max-seq-length", str(TOKENS)]
        subprocess.run([*command, "--originals=1"], check=True, capture_output=True)
        return folder / "data", load_file(folder / "data/dataset.safetensors")

    @classmethod
    def show(cls, data, augmentation, epochs, seed=7):
        """(lines, images), each [epochs][rows]."""
        file = cls.folder / "images.bin"
        command = [TOOL, data, augmentation, str(seed), str(epochs), file]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        rows = len(lines) // epochs
        images = np.fromfile(file, np.float32).reshape(epochs, rows, SIDE, SIDE, -1)
        return [lines[e * rows : (e + 1) * rows] for e in range(epochs)], images

    def originals(self, tensors):
        """As PIL images."""
        ends, widths = tensors["original_offsets"], tensors["original_widths"]
        channels = tensors["pixel_values"].shape[0]
        for begin, end, width in zip(ends, ends[1:], widths):
            pixels = tensors["originals"][begin:end].reshape(-1, width, channels)
            yield Image.fromarray(pixels.squeeze(2) if channels == 1 else pixels)

    def alone(self, tensors, image, line, colours):
        """An image by what was drawn of it, [channels, side, side], and where it is not erased."""
        size, kind = [SIDE, SIDE], functional.InterpolationMode.BILINEAR
        image = functional.resized_crop(image, *line["crop"], size, interpolation=kind)
        if line["mirrored"]:
            image = functional.hflip(image)
        for colour, factor in line["changes"] if colours else ():
            image = ADJUST[colour](image, factor)
        pixels = np.asarray(image).reshape(SIDE, SIDE, -1)
        values = np.stack([v[pixels[..., c]] for c, v in enumerate(tensors["pixel_values"])])
        top, left, height, width = line["erased"]
        seen = torch.ones(1, SIDE, SIDE)
        seen = functional.erase(seen, top, left, height, width, torch.zeros(1))
        return torch.tensor(values), seen[0] > 0

    def test_originals_are_the_images_as_far_as_they_are_not_large(self):
        files = json.loads((self.data / "dataset.json").read_text())["files"]
        for name, kept in zip(files, self.originals(self.tensors), strict=True):
            with Image.open(self.data.parent / "images" / name) as image:
                scale = MOST / max(image.size)
                if scale < 1:
                    size = [max(round(length * scale), 1) for length in image.size]
                    image = image.resize(size, Image.Resampling.BILINEAR)
                np.testing.assert_array_equal(np.asarray(kept), np.asarray(image))

    def test_crops_and_mirrored_images_are_torchvisions_to_the_bit(self):
        for channels, name in ((3, "colours"), (1, "greys")):
            data = self.folder / name / "data"
            if not data.exists():
                self.prepare(name, channels)
            tensors = load_file(data / "dataset.safetensors")
            for lines, images in zip(*self.show(data, "basic", 8)):
                for line, ours, original in zip(lines, images, self.originals(tensors)):
                    theirs, _ = self.alone(tensors, original, line, colours=False)
                    np.testing.assert_array_equal(ours, theirs.permute(1, 2, 0))
                    self.assertEqual(line["label"][1:], [-1, 1.0])

    def test_colours_and_mixtures_are_torchvisions_to_the_bit(self):
        labels, noise = self.tensors["labels"], []
        mixed, cut = v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)
        for lines, images in list(zip(*self.drawn))[:30]:
            originals = self.originals(self.tensors)
            pairs = [self.alone(self.tensors, o, n, True) for o, n in zip(originals, lines)]
            for row, (line, ours) in enumerate(zip(lines, images)):
                other, share = line["mixture"]["other"], line["mixture"]["share"]
                top, left, height, width = line["mixture"]["pasted"]
                ours = torch.tensor(ours).permute(2, 0, 1)
                if other < 0:
                    other = row
                # torchvision mixes an image with the one before it.
                both = torch.stack([pairs[other][0], pairs[row][0]])
                named = torch.tensor([int(labels[other]), int(labels[row])])
                box = (left, top, left + width, top + height)
                how = {"lam": share, "lam_adjusted": share, "box": box}
                how.update(labels=named, batch_size=2)
                by = cut if width else mixed
                theirs, targets = by.transform(both, how)[1], by.transform(named, how)[1]
                seen = pairs[row][1] & pairs[other][1]
                self.assertTrue(torch.equal(ours[:, seen], theirs[:, seen]))
                first, second, of_first = line["label"]
                target = torch.zeros(3)
                target[first] = of_first
                if second >= 0:
                    target[second] = 1 - of_first
                torch.testing.assert_close(target, targets, atol=1e-7, rtol=0)
                self.assertGreaterEqual(of_first, 0.5)
                erased = ~pairs[row][1] & pairs[other][1]
                if not width and share > 0.5:
                    noise.append((ours - both[0] * (1 - share))[:, erased] / share)
        noise = torch.cat([part.flatten() for part in noise])
        self.assertGreater(len(noise), 3000)
        self.assertFalse(far(noise.numpy(), torch.randn(100_000).numpy()))

    def test_parts_are_drawn_as_torchvisions(self):
        crop = transforms.RandomResizedCrop(SIDE)
        erasing = transforms.RandomErasing()
        original = list(self.originals(self.tensors))
        blank, parts = torch.zeros(3, SIDE, SIDE), [n["erased"] for e in self.drawn[0] for n in e]
        erased = [part for part in parts if part[2]]
        theirs = [erasing.get_params(blank, erasing.scale, erasing.ratio) for _ in erased * 4]
        kinds = [(erased, [part[:4] for part in theirs])]
        for row in range(len(SIZES) - 2):  # The last two have crops in the middle alone.
            ours = [lines[row]["crop"] for lines in self.drawn[0]]
            theirs = (crop.get_params(original[row], crop.scale, crop.ratio) for _ in range(1000))
            kinds.append((ours, list(theirs)))
        for ours, theirs in kinds:
            ours, theirs = np.array(ours, float), np.array(theirs, float)
            for figure in (lambda p: p[:, 2] * p[:, 3], lambda p: p[:, 2] / p[:, 3]):
                self.assertFalse(far(figure(ours), figure(theirs)))
            for side in range(4):
                self.assertFalse(far(ours[:, side], theirs[:, side]))

    def test_chances_and_shares(self):
        lines = [line for epoch in self.drawn[0] for line in epoch]
        count = len(lines)

        def near(found, share, of=count):
            self.assertAlmostEqual(found / of, share, delta=4 * math.sqrt(share / of))

        near(sum(line["mirrored"] for line in lines), 0.5)
        near(sum(line["erased"][2] > 0 for line in lines), 0.25)
        factors = np.array([[f for _, f in sorted(line["changes"])] for line in lines])
        for of_one in factors.T:
            self.assertFalse(far(of_one, np.random.default_rng(1).uniform(0.7, 1.3, 10_000)))
        for colour in range(3):
            near(sum(line["changes"][0][0] == colour for line in lines), 1 / 3)
        mixtures = [line["mixture"] for line in lines]
        shares = [m["share"] for m in mixtures if m["other"] >= 0 and not m["pasted"][2]]
        self.assertFalse(far(shares, torch.distributions.Beta(0.8, 0.8).sample((10_000,)).numpy()))
        near(len(shares), 0.5)
        cut, blank = v2.CutMix(num_classes=3), [torch.zeros(2, 3, SIDE, SIDE)]
        boxes = [cut.make_params(blank)["box"] for _ in range(4000)]
        theirs = np.array([(y1, x1, y2 - y1, x2 - x1) for x1, y1, x2, y2 in boxes])
        ours = np.array([m["pasted"] for m in mixtures if m["pasted"][2]])
        for side in range(4):
            self.assertFalse(far(ours[:, side], theirs[theirs[:, 2] * theirs[:, 3] > 0][:, side]))
        for row in range(len(SIZES)):
            others = [epoch[row]["mixture"]["other"] for epoch in self.drawn[0]]
            self.assertNotIn(row, others)
            for other in set(range(len(SIZES))) - {row}:
                near(others.count(other), 1 / (len(SIZES) - 1), EPOCHS)

    def test_an_epoch_a_row_and_a_seed_draw_by_themselves(self):
        lines, images = self.show(self.data, "strong", 3)
        self.assertEqual(lines, self.drawn[0][:3])
        self.assertEqual(images.tobytes(), self.drawn[1][:3].tobytes())
        others, _ = self.show(self.data, "strong", 3, seed=8)
        crops = [str(line["crop"]) for epoch in (*lines, *others) for line in epoch[:7]]
        self.assertGreater(len(set(crops)), 40)  # Of 42; small images have few.


if __name__ == "__main__":
    unittest.main()
