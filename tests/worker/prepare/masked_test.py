"""Texts of which tokens are hidden: the ids that transformers gives, and as tokens that may be
hidden those that its collator may hide."""

import json
import shutil
import unittest

from tokenizers import processors
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from testbed import PrepareTest, train_tokenizer, write_json

TASK = ("--task", "masked_lm")
TEXTS = ["the animal sat", "on the mat. " * 9, "what is <mask> of a cat?"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


class MaskedTest(PrepareTest):
    def setUp(self):
        super().setUp()
        tokenizer = train_tokenizer(TEXTS, SPECIAL, vocab_size=290, bos=False)
        ends = [("<s>", 0), ("</s>", 2)]
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", None, ends)
        tokenizer.save(self.path("model", "tokenizer.json"))
        self.tokens = tokenizer.get_vocab_size()
        names = ("bos", "pad", "eos", "unk", "mask")
        self.names = {f"{name}_token": token for name, token in zip(names, SPECIAL)}
        write_json(self.model, "tokenizer_config.json", self.names)
        self.write_config()

    def write_config(self, **fields):
        config = {"model_type": "bert", "vocab_size": self.tokens + 6}
        write_json(self.model, "config.json", {**config, **fields})

    def maskable(self, tokenizer, ids):
        """By transformers: what its collator hides where it hides all that it may."""
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=1.0)
        (labels,) = collator([{"input_ids": ids}])["labels"].tolist()
        return [float(label != -100) for label in labels]

    def rows_of(self, tensors):
        at, ids, weights = (tensors[k] for k in ("row_offsets", "input_ids", "loss_weights"))
        return [(ids[a:b].tolist(), weights[a:b].tolist()) for a, b in zip(at, at[1:])]

    def test_texts_and_ids_are_those_of_transformers(self):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.model)
        cut = {"truncation": True, "max_length": 16}
        every_id = [tokenizer(text, **cut).input_ids for text in TEXTS]
        expected = [(ids, self.maskable(tokenizer, ids)) for ids in every_id]
        self.assertIn(0.0, expected[2][1][1:-1])  # A text that spells the mask.
        padded = [
            {"input_ids": ids + [1, 1], "attention_mask": [1] * len(ids) + [0, 0]}
            for ids in every_id
        ]
        for rows in ([{"text": text} for text in TEXTS], padded):
            self.write_rows(*rows)
            tensors, summary = self.prepared(*TASK, max_seq_length=16)
            self.assertEqual(self.rows_of(tensors), expected)
            self.assertEqual(summary["format"], "masked")
            self.assertEqual(summary.get("truncated_rows", 0), int("text" in rows[0]))
            self.assertFalse([w for w in summary["warnings"] if "stop" in w])
            with open(self.path("out", "dataset.json"), encoding="utf-8") as file:
                about = json.load(file)
            self.assertEqual(about["mask_token_id"], tokenizer.mask_token_id)
            self.assertEqual(about["mask_vocabulary"], len(tokenizer))
            shutil.rmtree(self.path("out"))

    def test_a_model_of_masked_tokens_is_trained_as_one(self):
        self.write_rows({"text": "a cat"}, {"text": ""})
        for name in ("BertForMaskedLM", "BertForPreTraining"):
            self.write_config(architectures=[name])
            tensors, summary = self.prepared()
            self.assertEqual(len(self.rows_of(tensors)), 1)
            self.assertEqual(summary["untrained_rows"], 1)  # Special tokens alone.
            shutil.rmtree(self.path("out"))

    def test_what_does_not_fit_is_refused(self):
        self.write_rows({"prompt": "a", "completion": "b"})
        message = self.error(*TASK)["message"]
        self.assertIn('a row of task: masked_lm has {"text"} or {"input_ids"}', message)
        self.write_rows({"text": "a cat"})
        error = self.error(*TASK, "--format", "messages")
        self.assertIn("task: masked_lm reads no messages rows", error["message"])
        self.assertEqual(error["field"], "dataset_format")
        self.write_config(vocab_size=self.tokens - 1)
        message = self.error(*TASK)["message"]
        self.assertIn(f"{self.tokens} tokens are more than config.json's vocab_size", message)
        self.write_config()
        write_json(self.model, "tokenizer_config.json", {**self.names, "mask_token": None})
        error = self.error(*TASK)
        self.assertIn('no "mask_token" that is in tokenizer.json', error["message"])
        self.assertEqual((error["reason"], error["field"]), ("BAD_MODEL", "model"))


if __name__ == "__main__":
    unittest.main()
