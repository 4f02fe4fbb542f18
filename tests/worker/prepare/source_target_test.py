"""Sources and their targets: the ids and labels that transformers' examples of translation and
summarization give, and what does not fit is refused with the place where it stands."""

import shutil
import unittest

import torch
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from testbed import PrepareTest, write_json

TASK = ("--task", "seq2seq_lm")
TEXTS = [("the animal", "sat"), ("on the mat. " * 9, "a"), ("", "the mat " * 12)]


class SourceTargetTest(PrepareTest):
    def closed(self):
        """The model's tokenizer ends texts, as T5's does."""
        path = self.path("model", "tokenizer.json")
        tokenizer = Tokenizer.from_file(path)
        end = ("</s>", tokenizer.token_to_id("</s>"))
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A $B </s>", [end])
        tokenizer.save(path)

    def rows_of(self, tensors):
        """[(source ids, target ids, weights)]"""
        at, sources = tensors["row_offsets"], tensors["source_offsets"]
        found = []
        for row in range(len(at) - 1):
            target = slice(at[row], at[row + 1])
            source = tensors["source_ids"][sources[row] : sources[row + 1]]
            ids, weights = tensors["input_ids"][target], tensors["loss_weights"][target]
            found.append((source.tolist(), ids.tolist(), weights.tolist()))
        return found

    def by_transformers(self, texts, max_length):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.model)
        cut = {"truncation": True, "max_length": max_length}
        for source, target in texts:
            ids = tokenizer(text_target=target, **cut).input_ids
            yield tokenizer(source, **cut).input_ids, ids, [1.0] * len(ids)

    def test_texts_are_what_transformers_makes_of_them(self):
        self.closed()
        expected = list(self.by_transformers(TEXTS, 16))
        for keys in (("prompt", "completion"), ("input", "target")):
            self.write_rows(*(dict(zip(keys, texts)) for texts in TEXTS))
            shutil.rmtree(self.path("out"), ignore_errors=True)
            tensors, summary = self.prepared(*TASK, max_seq_length=16)
            self.assertEqual(self.rows_of(tensors), expected)
            self.assertEqual(summary["format"], "source_target")
            self.assertEqual(summary["truncated_rows"], 2)
            self.assertEqual(summary["rows_without_stop_token"], 0)

    def test_a_target_ends_whatever_the_tokenizer_writes(self):
        self.write_rows(*({"input": a, "target": b} for a, b in TEXTS if a))
        tensors, _ = self.prepared(*TASK, max_seq_length=16)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.model)
        for (source, target), (text, answer) in zip(self.rows_of_ids(tensors), TEXTS):
            self.assertEqual(source, tokenizer(text).input_ids[:16])
            ids = tokenizer(answer).input_ids
            self.assertEqual(target, ids[:15] + [tokenizer.convert_tokens_to_ids("</s>")])

    def rows_of_ids(self, tensors):
        return [(source, target) for source, target, _ in self.rows_of(tensors)]

    def test_ids_without_padding_train_as_transformers_does(self):
        rows = [
            {"input_ids": [5, 6, 0, 0], "attention_mask": [1, 1, 0, 0], "labels": [7, 8, -100]},
            {"input_ids": [9], "labels": [-100, 7, -100, 8]},
        ]
        self.write_rows(*rows)
        tensors, _ = self.prepared(*TASK)
        found = self.rows_of(tensors)
        self.assertEqual(found[0], ([5, 6], [7, 8], [1.0, 1.0]))
        self.assertEqual(found[1], ([9], [0, 7, 0, 8], [0.0, 1.0, 0.0, 1.0]))
        sizes = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
        config = T5Config(vocab_size=32, decoder_start_token_id=0, **sizes)
        model = T5ForConditionalGeneration(config).eval()
        labels = torch.tensor([rows[1]["labels"]])
        expected = model(input_ids=torch.tensor([[9]]), labels=labels).loss
        _, target, weights = found[1]
        logits = model(
            input_ids=torch.tensor([[9]]), decoder_input_ids=torch.tensor([[0, *target[:-1]]])
        ).logits[0]
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(target), reduction="none")
        torch.testing.assert_close((losses * torch.tensor(weights)).sum() / 2, expected)

    def test_bad_rows_are_told_by_field_and_line(self):
        good = {"input_ids": [5], "labels": [6]}
        for row, text in (
            ({"input": "a"}, '{"input", "target"}'),
            ({"input": "a", "target": 3}, '"target" must be a string'),
            ({"input_ids": [5]}, '"labels" must be a list'),
            ({"input_ids": [5], "labels": []}, '"labels" is empty'),
            ({"input_ids": [5, 1 << 20], "labels": [6]}, "outside the model's vocabulary"),
            ({"input_ids": [5], "labels": [-1]}, "outside the model's vocabulary"),
        ):
            self.write_rows(good, row)
            error = self.error(*TASK)
            self.assertIn(text, error["message"])
            self.assertEqual(error["line"], 2)

    def test_a_t5_needs_no_word_of_the_task(self):
        write_json(self.model, "config.json", {"model_type": "t5", "vocab_size": 4000})
        self.write_rows({"input_ids": [5], "labels": [6, 7]})
        error = self.error("--format", "messages")
        self.assertEqual(error["field"], "dataset_format")
        self.assertEqual(self.rows_of(self.prepared()[0]), [([5], [6, 7], [1.0, 1.0])])


if __name__ == "__main__":
    unittest.main()
