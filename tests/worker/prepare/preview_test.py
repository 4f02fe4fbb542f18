"""A preview shows what a job would train on, text by text, and prepares nothing."""

import json
import os
import sys
import unittest

import golden
from testbed import PrepareTest
from tokenizers import Tokenizer


class PreviewTest(PrepareTest):
    def preview(self, *options, max_seq_length=512):
        run = self.prepare(*options, max_seq_length=max_seq_length)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("out"), encoding="utf-8") as file:
            return json.load(file)

    def golden(self, name, *options):
        """Of a golden case: the model and the dataset of the tests' data."""
        dataset, _, template, more = golden.CASES[name]
        self.model = golden.MODEL
        if template:
            more += ("--chat-template", golden.template_text(template))
        return self.preview("--dataset", os.path.join(golden.DATA, dataset), *more, *options)

    # Every row's pieces are the whole text, and its trained pieces what the golden file trains.
    def test_is_what_is_trained(self):
        tokenizer = Tokenizer.from_file(os.path.join(golden.MODEL, "tokenizer.json"))
        for name in golden.CASES:
            preview = self.golden(name, "--preview-rows", "10")
            expected = golden.expected(name)
            self.assertEqual(len(preview["rows"]), len(expected))
            for row, example in zip(preview["rows"], expected):
                weights = example["loss_weights"]
                shown = [[s["weight"]] * s["tokens"] for s in row["segments"]]
                self.assertEqual(sum(shown, []), weights)
                text = tokenizer.decode(example["input_ids"], skip_special_tokens=False)
                self.assertEqual("".join(s["text"] for s in row["segments"]), text, name)
                self.assertEqual(row["trained_tokens"], sum(map(bool, weights)))

    def test_text_of_a_row(self):
        row = self.golden("messages_marked", "--preview-rows", "1")["rows"][0]
        self.assertEqual(
            [(s["text"], s["weight"]) for s in row["segments"]],
            [
                (
                    "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\n"
                    "what is a cat?<|im_end|>\n<|im_start|>assistant\n",
                    0,
                ),
                ("an animal.<|im_end|>", 1),
                ("\n", 0),
            ],
        )

    def test_rows_shown_and_rows_counted(self):
        self.write_rows(*({"text": f"the cat {n}"} for n in range(300)))
        preview = self.preview("--preview-rows", "2")
        self.assertEqual([row["line"] for row in preview["rows"]], [1, 2])
        self.assertEqual((preview["summary"]["rows"], preview["whole"]), (300, True))

    # More rows than are scanned: the summary says of how many it is.
    def test_large_datasets_are_not_read_to_their_end(self):
        self.write_rows(*[{"input_ids": [5], "labels": [5]}] * 3, *[{"input_ids": [5, 6]}] * 10000)
        preview = self.preview("--preview-rows", "1")
        self.assertEqual(preview["summary"]["source_rows"], 10000)
        self.assertFalse(preview["whole"])

    def test_long_rows_are_shown_in_part(self):
        self.write_rows({"input_ids": [5, 6] * 5000})
        preview = self.preview("--preview-rows", "1", max_seq_length=9000)
        row = preview["rows"][0]
        self.assertEqual((row["tokens"], row["cut_tokens"]), (9000, 1000))
        self.assertEqual(row["left_out_tokens"], 9000 - 4096)
        self.assertEqual(sum(s["tokens"] for s in row["segments"]), 4096)

    # Nothing would be learned: a job is refused, a preview shows why.
    def test_rows_without_a_trained_token(self):
        self.write_rows({"input_ids": [5, 6], "labels": [-100, -100]})
        preview = self.preview("--preview-rows", "1")
        self.assertEqual(preview["rows"][0]["trained_tokens"], 0)
        words = "1 rows have no trained token and were left out"
        self.assertIn(words, preview["summary"]["warnings"])

    def test_length_of_the_model(self):
        self.model = golden.MODEL
        self.write_rows({"text": "a cat " * 300})
        preview = self.preview("--preview-rows", "1", max_seq_length=0)
        self.assertEqual(preview["rows"][0]["tokens"], 256)

    def test_without_a_tokenizer(self):
        os.remove(self.path("model", "tokenizer.json"))
        self.write_rows({"input_ids": [5, 6, 7], "labels": [-100, 6, 7]})
        texts = [s["text"] for s in self.preview("--preview-rows", "1")["rows"][0]["segments"]]
        self.assertEqual(texts, ["5", " 6 7"])

    def test_bad_rows_are_errors(self):
        self.write_rows({"text": "a"}, {"text": 1})
        self.assertEqual(self.error("--preview-rows", "5")["line"], 2)


if __name__ == "__main__":
    sys.exit(unittest.main())
