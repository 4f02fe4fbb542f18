"""Words with a class each: tokens and labels are those of transformers' example of token
classification, and what does not fit is refused with the place where it stands."""

import json
import unittest

import numpy
from tokenizers import Tokenizer, processors
from transformers import RobertaTokenizer

from testbed import PrepareTest, write_json

TASK = ("--task", "token_classification")
WORDS = ["the", "animal?", "sat", "on", "the", "mat."]
TAGS = [0, 1, 2, 0, 0, 1]


class TaggedTokensTest(PrepareTest):
    def by_transformers(self, rows, max_length):
        """(ids, labels) of its example: a word's first token has its class, the others -100."""
        tokenizer = RobertaTokenizer.from_pretrained(self.model, add_prefix_space=True)
        found = []
        for row in rows:
            encoding = tokenizer(
                row["tokens"], is_split_into_words=True, truncation=True, max_length=max_length
            )
            labels, before = [], None
            for word in encoding.word_ids():
                labels.append(-100 if word in (None, before) else row["ner_tags"][word])
                before = word
            found.append((encoding.input_ids, labels))
        return found

    def assert_rows(self, tensors, expected):
        at, ids, labels = (tensors[k] for k in ("row_offsets", "input_ids", "token_labels"))
        found = [(ids[a:b].tolist(), labels[a:b].tolist()) for a, b in zip(at, at[1:])]
        self.assertEqual(found, expected)
        numpy.testing.assert_array_equal(tensors["loss_weights"], labels != -100)

    def about(self):
        with open(self.path("out", "dataset.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_the_first_token_of_a_word_has_its_class(self):
        path = self.path("model", "tokenizer.json")
        tokenizer = Tokenizer.from_file(path)
        ends = [("<s>", 0), ("</s>", 1)]  # As a RoBERTa's.
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", None, ends)
        tokenizer.save(path)
        rows = [{"tokens": WORDS, "ner_tags": TAGS}, {"tokens": ["a"], "ner_tags": [2]}]
        rows.append({"tokens": WORDS * 3, "ner_tags": [-100, *TAGS[1:]] * 3})
        self.write_rows(*rows)
        tensors, summary = self.prepared(*TASK, "--num-labels", "3", max_seq_length=16)
        expected = self.by_transformers(rows, 16)
        self.assertIn(-100, expected[0][1][1:])  # Words of several tokens are there.
        self.assert_rows(tensors, expected)
        self.assertEqual(summary["format"], "tagged_tokens")
        self.assertEqual(self.about()["num_labels"], 3)
        self.assertNotIn("problem_type", self.about())

    def test_names_are_sorted_and_may_stand_as_text(self):
        self.write_rows(
            {"tokens": ["the", "cat"], "ner_tags": ["O", "B"]},
            {"tokens": '["a", "mat"]', "ner_tags": '["O", "C"]'},
        )
        tensors, _ = self.prepared(*TASK, "--num-labels", "3")
        labels = tensors["token_labels"]
        self.assertEqual(labels[labels != -100].tolist(), [2, 0, 2, 1])
        self.assertEqual(self.about()["label_names"], ["B", "C", "O"])

    def test_ids_have_labels_token_by_token(self):
        self.write_rows(
            {"input_ids": [5, 6, 7], "labels": [1, -100, 0]},
            {"input_ids": [0, 8, 9], "labels": [-100, 0, 1], "attention_mask": [0, 1, 1]},
            {"input_ids": [8, 9], "labels": [-100, -100]},
        )
        tensors, summary = self.prepared(*TASK)
        self.assert_rows(tensors, [([5, 6, 7], [1, -100, 0]), ([8, 9], [0, 1])])
        self.assertEqual(summary["untrained_rows"], 1)

    def test_a_model_of_token_classes_is_trained_as_one(self):
        with open(self.path("model", "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "architectures": ["BertForTokenClassification"]}
        write_json(self.model, "config.json", config)
        self.write_rows({"tokens": ["a"], "ner_tags": [1]})
        self.assertIn("token_labels", self.prepared()[0])

    def test_what_does_not_fit_is_refused(self):
        for row, message in (
            ({"tokens": ["a", "b"], "ner_tags": [0]}, '"ner_tags" has 1 entries, "tokens" has 2'),
            ({"tokens": ["a"], "ner_tags": [7]}, "label 7 is outside 0 to 1"),
            ({"tokens": ["a"], "ner_tags": [None]}, "the label of 0 must be a class"),
            ({"tokens": ["a", 3], "ner_tags": [0, 0]}, '"tokens"[1] must be a string'),
            ({"tokens": [], "ner_tags": []}, '"tokens" is empty'),
            ({"tokens": ["a"], "tags": [0]}, 'no "ner_tags"; did you mean "tags"?'),
            ({"text": "a", "label": 0}, 'no "tokens"'),
            ({"input_ids": [5], "labels": [0, 1]}, '"labels" has 2 entries, "input_ids" has 1'),
        ):
            with self.subTest(row=row):
                self.write_rows({"tokens": ["a"], "ner_tags": [0]}, row)
                error = self.error(*TASK)
                self.assertIn(message, error["message"])
                self.assertEqual((error["reason"], error["line"]), ("BAD_DATASET", 2))


if __name__ == "__main__":
    unittest.main()
