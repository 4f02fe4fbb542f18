"""Folders of images: what the model reads is what transformers' processors give of them, bit for
bit, and what is no image is refused with its file."""

import json
import os
import shutil
import unittest

import numpy
import pyarrow
import pyarrow.parquet
from PIL import Image
from transformers import DeiTImageProcessorPil, ViTImageProcessorPil

from testbed import PrepareTest, write_json

SIDE, TOKENS = 24, 37
SQUARE, SHORT = {"height": SIDE, "width": SIDE}, {"shortest_edge": 30}
PROCESSORS = (
    ViTImageProcessorPil(size=SQUARE),
    ViTImageProcessorPil(size=SQUARE, image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]),
    ViTImageProcessorPil(size=SQUARE, do_normalize=False, resample=3),
    ViTImageProcessorPil(size=SQUARE, do_rescale=False, rescale_factor=0.25),
    DeiTImageProcessorPil(size={"height": 29, "width": 33}, crop_size=SQUARE),
    DeiTImageProcessorPil(size=SHORT, crop_size=SQUARE),
    DeiTImageProcessorPil(size={"shortest_edge": 17}, crop_size=SQUARE),  # Too small: padded.
)


class ImagesTest(PrepareTest):
    def setUp(self):
        super().setUp()
        shutil.rmtree(self.model)
        self.dataset = ("--dataset", self.path("data"))
        config = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
        config.update(image_size=SIDE, patch_size=4, num_channels=3)
        self.write_model(config, PROCESSORS[0])
        generator = numpy.random.default_rng(3)
        for name in ("cat", "dog"):
            for number, ending in enumerate(("png", "jpg", "webp", "PNG", "jpeg")):
                height, width = generator.integers(9, 70, 2)
                pixels = generator.integers(0, 256, (height, width, 3), numpy.uint8)
                image = Image.fromarray(pixels).convert("L" if ending == "PNG" else "RGB")
                self.save(image, "data", name, f"{number}.{ending}")

    def write_model(self, config, processor):
        os.makedirs(self.model, exist_ok=True)
        write_json(self.model, "config.json", config)
        processor.save_pretrained(self.model)
        self.config = config

    def save(self, image, *names):
        os.makedirs(os.path.dirname(self.path(*names)), exist_ok=True)
        image.save(self.path(*names))

    def prepared(self, *options, **named):
        return super().prepared(*options, max_seq_length=TOKENS, **named)

    def about(self):
        with open(self.path("out", "dataset.json"), encoding="utf-8") as file:
            return json.load(file)

    def fails(self, field=None, **named):
        error = self.error(max_seq_length=TOKENS, **named)
        if field:
            self.assertEqual(error["field"], field)
        return error

    def assert_as(self, processor, mode="RGB"):
        """Every image, as the processor has it."""
        tensors, summary = self.prepared()
        self.assertEqual((summary["format"], summary["rows"]), ("images", 10))
        for row, name in enumerate(self.about()["files"]):
            with Image.open(self.path("data", name)) as image:
                read = processor(image.convert(mode), return_tensors="np")["pixel_values"][0]
            pixels, values = tensors["pixels"][row], tensors["pixel_values"]
            ours = numpy.stack([v[pixels[..., c]] for c, v in enumerate(values)])
            numpy.testing.assert_array_equal(ours, read.astype(numpy.float32))
        return tensors

    def test_pixel_values_are_transformers_own(self):
        for processor in PROCESSORS:
            with self.subTest(str(processor)):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                self.write_model(self.config, processor)
                tensors = self.assert_as(processor)
                self.assertEqual(tensors["labels"].tolist(), [0] * 5 + [1] * 5)
        self.assertEqual(self.about()["label_names"], ["cat", "dog"])

    def test_grey_images(self):
        processor = ViTImageProcessorPil(size=SQUARE, image_mean=[0.5], image_std=[0.25])
        self.write_model({**self.config, "num_channels": 1}, processor)
        self.assert_as(processor, "L")

    def test_a_turned_image_is_turned_back(self):
        shutil.rmtree(self.path("data"))
        image = Image.new("RGB", (40, 20))
        image.paste((255, 0, 0), (0, 0, 20, 20))
        exif = Image.Exif()
        exif[0x0112] = 6  # A quarter to the right makes it upright.
        for name in ("a", "b"):
            os.makedirs(self.path("data", name))
            image.save(self.path("data", name, "x.png"), exif=exif)
        pixels = self.prepared()[0]["pixels"][0]
        self.assertEqual(pixels[2, 12].tolist(), [255, 0, 0])
        self.assertEqual(pixels[-3, 12].tolist(), [0, 0, 0])

    def test_classes_are_the_models_where_it_knows_them(self):
        names = {"0": "dog", "1": "bird", "2": "cat"}
        write_json(self.model, "config.json", {**self.config, "id2label": names})
        tensors, summary = self.prepared()
        self.assertEqual(tensors["labels"].tolist(), [2] * 5 + [0] * 5)
        self.assertIn("1 of 3 classes have no row: bird", " ".join(summary["warnings"]))

    def test_splits_are_folders_above_those_of_classes(self):
        os.rename(self.path("data"), self.path("train"))
        shutil.copytree(self.path("train", "cat"), self.path("data", "test", "cat"))
        os.rename(self.path("train"), self.path("data", "train"))
        self.assertEqual(self.prepared()[1]["rows"], 10)
        self.assertEqual(self.about()["label_names"], ["cat", "dog"])

    def test_rows_held_out_are_images_too(self):
        options = ("--eval-split", "0.2", "--eval-output", self.path("eval"), "--originals=1")
        train, summary = self.prepared(*options)
        held_out, _ = self.prepared(folder="eval")
        self.assertEqual((len(train["pixels"]), len(held_out["pixels"])), (8, 2))
        # No crops are taken from what is evaluated.
        self.assertEqual(len(train["original_widths"]), 8)
        self.assertNotIn("originals", held_out)
        self.assertEqual(summary["eval_rows_in_train"], 0)  # Digests are of pixels.

    def test_a_preview_names_files_and_classes(self):
        more = ("--preview-rows=7", "--scan-rows=7", "--num-labels=2")
        run = self.prepare(*more, max_seq_length=TOKENS)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("out"), encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual([row["tokens"] for row in rows], [TOKENS] * 7)
        texts = [row["segments"][0]["text"] for row in rows]
        self.assertEqual((texts[0], texts[-1]), ("0.png, class cat", "1.jpg, class dog"))
        # One of them is no image.
        with open(self.path("data", "cat", "2.webp"), "wb") as file:
            file.write(b"not a picture")
        os.remove(self.path("out"))
        self.assertIn("cannot be read as an image", self.error(*more)["message"])

    def test_what_is_no_image_is_named(self):
        bad = self.path("data", "cat", "9.png")
        for content, what in ((b"not a picture", "cannot be read as an image"), (b"", "cannot be")):
            with open(bad, "wb") as file:
                file.write(content)
            error = self.fails()
            self.assertEqual(error["file"], bad)
            self.assertIn(what, error["message"])
        with open(self.path("data", "cat", "1.jpg"), "rb") as file:
            half = file.read()
        with open(bad, "wb") as file:
            file.write(half[: len(half) // 2])
        self.assertEqual(self.fails()["file"], bad)

    def test_a_bomb_is_not_unpacked(self):
        Image.new("1", (20_000, 20_000)).save(self.path("data", "dog", "bomb.png"))
        error = self.fails()
        self.assertTrue(error["file"].endswith("bomb.png"))
        self.assertIn("has 20000 x 20000 pixels; at most 67108864", error["message"])

    def write_table(self, name, column, **metadata):
        """The images of data/ as the datasets library keeps them."""
        files = sorted(os.listdir(self.path("data", "cat")))
        paths = [self.path("data", folder, file) for folder in ("cat", "dog") for file in files]
        images = []
        for path in paths:
            with open(path, "rb") as file:
                images.append({"bytes": file.read(), "path": os.path.basename(path)})
        table = pyarrow.table({"image": images, column: [0] * 5 + [2] * 5})
        about = {"info": {"features": metadata}}
        pyarrow.parquet.write_table(
            table.replace_schema_metadata({"huggingface": json.dumps(about)}), self.path(name)
        )
        self.dataset = ("--dataset", self.path(name))

    def test_tables_with_bytes_give_the_same(self):
        names = ["cat", "bird", "dog"]
        expected, _ = self.prepared("--label-name=cat", "--label-name=bird", "--label-name=dog")
        shutil.rmtree(self.path("out"))
        self.write_table("train.parquet", "label", label={"names": names, "_type": "ClassLabel"})
        found, _ = self.prepared("--num-labels", "3")
        for name in ("pixels", "pixel_values", "labels"):
            numpy.testing.assert_array_equal(found[name], expected[name])
        self.assertEqual(self.about()["label_names"], names)
        shutil.rmtree(self.path("out"))
        self.write_table("other.parquet", "fine_label")
        self.assertIn('no "label"; did you mean "fine_label"?', self.fails()["message"])
        columns = [{"paths": [self.path("other.parquet")], "columns": {"label": "fine_label"}}]
        write_json(self.folder, "sources.json", columns)
        self.dataset = ("--sources", self.path("sources.json"))
        found, _ = self.prepared("--num-labels", "3")
        self.assertEqual(found["labels"].tolist(), [0] * 5 + [2] * 5)

    def test_a_table_without_bytes(self):
        table = pyarrow.table({"image": [{"bytes": None, "path": "x.png"}], "label": [1]})
        pyarrow.parquet.write_table(table, self.path("train.parquet"))
        self.dataset = ("--dataset", self.path("train.parquet"))
        error = self.fails()
        self.assertEqual(error["line"], 1)
        self.assertIn("must have the image's bytes, this is null", error["message"])

    def test_folders_that_are_none_of_classes(self):
        self.save(Image.new("RGB", (9, 9)), "data", "alone.png")
        self.assertIn("lies in no class's folder", self.fails()["message"])
        shutil.rmtree(self.path("data"))
        os.makedirs(self.path("data", "cat"))
        self.assertIn("holds no image", self.fails()["message"])
        self.dataset = ("--dataset", self.path("rows.jsonl"))
        open(self.path("rows.jsonl"), "wb").close()
        self.assertIn("is no folder", self.fails("dataset")["message"])

    def test_more_classes_than_the_head(self):
        names = {str(n): f"class {n}" for n in range(3)}
        write_json(self.model, "config.json", {**self.config, "id2label": names})
        error = self.error("--num-labels", "3", max_seq_length=TOKENS)
        self.assertIn("2 names of classes, but num_labels is 3", error["message"])

    def test_processors_that_are_not_known(self):
        for change, field in (
            ({"image_processor_type": "CLIPImageProcessor"}, "image_processor_type"),
            ({"size": {"height": 20, "width": 20}}, "image_size, 24"),
            ({"resample": "near"}, "resample"),
            ({"image_std": [0.5, 0.0, 0.5]}, "image_std"),
            ({"image_mean": [0.5]}, "image_mean"),
        ):
            with self.subTest(field):
                known = json.loads(PROCESSORS[0].to_json_string())
                write_json(self.model, "preprocessor_config.json", {**known, **change})
                error = self.fails()
                self.assertEqual(error["reason"], "BAD_MODEL")
                self.assertIn(field, error["message"])
        os.remove(self.path("model", "preprocessor_config.json"))
        self.assertIn("no such file", self.fails()["message"])


if __name__ == "__main__":
    unittest.main()
