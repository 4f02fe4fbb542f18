"""Documents with a class: the tokens are those of transformers' tokenizer, a class has the id that
labels.py says, and what cannot be classified is refused with the place where it stands."""

import json
import unittest

import numpy
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer

from testbed import PrepareTest, write_json

TASK = ("--task", "sequence_classification")
WORDS = "the cat sat on the mat and what is a cat "


class ClassificationTest(PrepareTest):
    def rows(self, tensors):
        at = tensors["row_offsets"]
        return [tensors["input_ids"][a:b].tolist() for a, b in zip(at, at[1:])]

    def about(self):
        with open(self.path("out", "dataset.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_texts_are_tokens_as_transformers_has_them(self):
        texts = ["the cat", "a dog and a cat", "", WORDS * 20]
        self.write_rows(*({"text": text, "label": i % 2} for i, text in enumerate(texts)))
        tensors, summary = self.prepared(*TASK, max_seq_length=16)
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        expected = [tokenizer(text, truncation=True, max_length=16).input_ids for text in texts]
        self.assertEqual(self.rows(tensors), expected)
        self.assertEqual(tensors["labels"].tolist(), [0, 1, 0, 1])
        self.assertEqual(tensors["labels"].dtype, numpy.int32)
        self.assertEqual(summary["format"], "classification")
        self.assertEqual(summary["truncatedRows" if "truncatedRows" in summary else
                                 "truncated_rows"], 1)
        ends = numpy.cumsum([len(ids) for ids in expected]) - 1
        self.assertEqual(numpy.flatnonzero(tensors["loss_weights"]).tolist(), ends.tolist())

    def test_pairs_are_cut_longest_first(self):
        pairs = [("the cat", "a dog"), (WORDS * 4, "the mat"), ("on", WORDS * 4), (WORDS, WORDS)]
        for keys in (("sentence1", "sentence2"), ("premise", "hypothesis")):
            self.write_rows(*({**dict(zip(keys, pair)), "label": 1} for pair in pairs))
            folder = f"out-{keys[0]}"
            run = self.prepare(*TASK, "--output", self.path(folder), max_seq_length=12)
            self.assertEqual(run.returncode, 0, run.stderr)
            tensors, _ = self.prepared(folder=folder)
            tokenizer = AutoTokenizer.from_pretrained(self.model)
            expected = [tokenizer(*p, truncation=True, max_length=12).input_ids for p in pairs]
            self.assertEqual(self.rows(tensors), expected)

    def test_bert_is_told_where_the_second_text_begins(self):
        """The types of tokens are those that transformers' tokenizer gives; ids have type 0."""
        tokenizer = Tokenizer.from_file(self.path("model", "tokenizer.json"))
        tokenizer.post_processor = processors.TemplateProcessing(
            "<s> $A </s>", "<s> $A </s> $B:1 </s>:1", [("<s>", 0), ("</s>", 1)]
        )
        tokenizer.save(self.path("model", "tokenizer.json"))
        with open(self.path("model", "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "model_type": "bert", "type_vocab_size": 2}
        write_json(self.model, "config.json", config)
        pairs = [("the cat", "a dog"), (WORDS * 4, "the mat"), ("on", WORDS * 4)]
        rows = [{"premise": a, "hypothesis": b, "label": 1} for a, b in pairs]
        rows += [{"text": "a cat", "label": 0}, {"input_ids": [5, 6, 7], "label": 0}]
        self.write_rows(*rows)
        tensors, _ = self.prepared(*TASK, max_seq_length=12)
        theirs = AutoTokenizer.from_pretrained(self.model)
        cut = {"truncation": True, "max_length": 12, "return_token_type_ids": True}
        expected = [theirs(*pair, **cut).token_type_ids for pair in pairs]
        expected += [theirs("a cat", **cut).token_type_ids, [0, 0, 0]]
        lengths = numpy.diff(tensors["row_offsets"])
        found = [
            [int(token >= begin) for token in range(length)]
            for length, begin in zip(lengths, tensors["second_begins"])
        ]
        self.assertEqual(found, expected)

    def test_names_of_rows_are_sorted(self):
        labels = ["news", "art", "sport", "art"]
        self.write_rows(*({"text": "a cat", "label": label} for label in labels))
        tensors, _ = self.prepared(*TASK, "--num-labels", "3")
        self.assertEqual(tensors["labels"].tolist(), [1, 0, 2, 0])
        self.assertEqual(self.about()["label_names"], ["art", "news", "sport"])

    def test_names_of_the_job_go_before_those_of_the_model(self):
        self.write_rows({"text": "a", "label": "no"}, {"text": "b", "label": "yes"})
        names = {"id2label": {"0": "yes", "1": "no"}, "label2id": {"yes": 0, "no": 1}}
        with open(self.path("model", "config.json"), encoding="utf-8") as file:
            write_json(self.model, "config.json", {**json.load(file), **names})
        tensors, _ = self.prepared(*TASK)
        self.assertEqual(tensors["labels"].tolist(), [1, 0])
        run = self.prepare(
            *TASK, "--label-name=no", "--label-name=yes", "--output", self.path("named")
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.prepared(folder="named")[0]["labels"].tolist(), [0, 1])

    def test_token_ids_need_no_tokenizer(self):
        rows = [{"input_ids": [5, 6, 7], "label": 1}, {"input_ids": [8], "label": 0}]
        rows.append({"input_ids": [9, 9, 0, 0], "attention_mask": [1, 1, 0, 0], "label": 1})
        self.write_rows(*rows)
        tensors, _ = self.prepared(*TASK)
        self.assertEqual(self.rows(tensors), [[5, 6, 7], [8], [9, 9]])
        self.assertEqual(tensors["labels"].tolist(), [1, 0, 1])

    def test_a_classifier_is_trained_as_one_unless_the_job_says_otherwise(self):
        self.write_rows({"text": "a cat", "label": 1})
        with open(self.path("model", "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "architectures": ["LlamaForSequenceClassification"]}
        write_json(self.model, "config.json", config)
        self.assertIn("labels", self.prepared()[0])

    def test_a_class_without_rows_is_told(self):
        self.write_rows({"text": "a", "label": 0}, {"text": "b", "label": 2})
        _, summary = self.prepared(*TASK, "--num-labels", "4")
        self.assertIn("2 of 4 classes have no row: 1, 3", summary["warnings"])

    def test_what_is_no_class_is_refused(self):
        good = {"text": "a cat", "label": 0}
        for label, message in (
            (5, "label 5 is outside 0 to 1 (num_labels 2): set num_labels to 6 or more"),
            (-1, "label -1 is outside 0 to 1"),
            (0.5, "a number with a fraction"),
            (True, "a boolean"),
            (None, "null"),
        ):
            with self.subTest(label=label):
                self.write_rows(good, {"text": "a dog", "label": label})
                error = self.error(*TASK)
                self.assertIn(message, error["message"])
                self.assertEqual((error["reason"], error["line"]), ("BAD_DATASET", 2))
        self.write_rows(good, {"text": "a dog", "label": "nwes"})
        names = ("--label-name=news", "--label-name=art")
        message = self.error(*TASK, *names)["message"]
        self.assertIn('unknown label "nwes"; did you mean "news"?', message)

    def test_several_classes_are_numbers_for_each(self):
        """By names in a list, as JSON in a table, or a number for each class."""
        problem = (*TASK, "--problem-type=multi_label_classification")
        listed = [["news", "art"], [], ["sport"], '["art"]']
        self.write_rows(*({"text": "a cat", "label": label} for label in listed))
        tensors, summary = self.prepared(*problem, "--num-labels", "3")
        expected = numpy.array([[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]], numpy.float32)
        numpy.testing.assert_array_equal(tensors["labels"], expected)
        self.assertEqual(tensors["labels"].dtype, numpy.float32)
        self.assertEqual(self.about()["label_names"], ["art", "news", "sport"])
        self.assertEqual(self.about()["problem_type"], "multi_label_classification")
        self.assertEqual(summary["warnings"], [])
        self.write_rows(*({"text": "a cat", "label": label} for label in expected.tolist()))
        run = self.prepare(*problem, "--num-labels", "3", "--output", self.path("numbers"))
        self.assertEqual(run.returncode, 0, run.stderr)
        tensors, _ = self.prepared(folder="numbers")
        numpy.testing.assert_array_equal(tensors["labels"], expected)

    def test_a_regression_has_numbers(self):
        self.write_rows({"text": "a cat", "label": 2}, {"text": "a dog", "label": "-0.5"})
        tensors, _ = self.prepared(*TASK, "--problem-type=regression")
        self.assertEqual(tensors["labels"].tolist(), [[2.0], [-0.5]])
        self.assertEqual(self.about()["num_labels"], 1)
        self.write_rows({"text": "a cat", "label": [2, 0.1]}, {"text": "a dog", "label": [3, 4]})
        more = ("--problem-type=regression", "--num-labels=2", "--output", self.path("two"))
        self.assertEqual(self.prepare(*TASK, *more).returncode, 0)
        labels = self.prepared(folder="two")[0]["labels"]
        numpy.testing.assert_array_equal(labels, numpy.float32([[2, 0.1], [3, 4]]))

    def test_a_model_of_one_output_is_a_regression(self):
        with open(self.path("model", "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "architectures": ["LlamaForSequenceClassification"]}
        config["id2label"] = {"0": "LABEL_0"}
        write_json(self.model, "config.json", config)
        self.write_rows({"text": "a cat", "label": 0.25})
        self.assertEqual(self.prepared()[0]["labels"].tolist(), [[0.25]])

    def test_what_is_no_list_of_numbers_is_refused(self):
        several, numbers = "multi_label_classification", "regression"
        for problem, label, message in (
            (several, [1, 0, 1], '"label" has 3 numbers, num_labels is 2'),
            (several, [2, 0], "2.0: a class is there (1) or not (0)"),
            (several, ["x"], 'unknown label "x"'),
            (several, "x", "this has a string"),
            (numbers, 1e39, "no finite number"),
            (numbers, [1, True], "this has a boolean"),
            (numbers, None, "this has null"),
        ):
            with self.subTest(problem=problem, label=label):
                self.write_rows({"text": "a cat", "label": [0, 1]}, {"text": "b", "label": label})
                names = ("--label-name=news", "--label-name=art")
                error = self.error(*TASK, f"--problem-type={problem}", *names)
                self.assertIn(message, error["message"])
                self.assertEqual(error["line"], 2)

    def test_a_column_of_another_name_is_hinted_at(self):
        self.write_rows({"text": "a cat", "labels": 0})
        self.assertIn('no "label"; did you mean "labels"?', self.error(*TASK)["message"])
        self.write_rows({"texts": "a cat", "label": 0})
        self.assertIn('no text; did you mean "texts"?', self.error(*TASK)["message"])

    def test_fewer_names_than_classes_are_no_order(self):
        self.write_rows({"text": "a", "label": "x"}, {"text": "b", "label": "y"})
        error = self.error(*TASK, "--num-labels", "3")
        self.assertEqual(error["field"], "label_names")
        self.assertIn("2 names of classes, but num_labels is 3: give the", error["message"])

    def test_more_names_than_classes_say_what_to_set(self):
        self.write_rows(*({"text": "a", "label": name} for name in "xyz"))
        error = self.error(*TASK, "--num-labels", "2")
        said = "3 names of classes, but num_labels is 2: set num_labels: 3"
        self.assertIn(said, error["message"])

    def test_conversations_have_no_classes(self):
        self.write_rows({"messages": [{"role": "user", "content": "hi"}], "label": 0})
        self.assertEqual(self.error(*TASK, "--format", "messages")["field"], "dataset_format")

    def test_a_preview_shows_the_documents(self):
        self.write_rows({"text": "the cat", "label": "x"}, {"text": "a dog", "label": "y"})
        run = self.prepare(*TASK, "--preview-rows", "2")
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("out"), encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual([row["trained_tokens"] for row in rows], [1, 1])


if __name__ == "__main__":
    unittest.main()
