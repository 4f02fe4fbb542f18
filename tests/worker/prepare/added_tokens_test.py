"""Tokens that a job adds: one id each, in ids and in what goes with the model."""

import json
import os
import unittest

from testbed import PrepareTest, write_json
from transformers import AutoTokenizer

TOKENS = ["<think>", "<|tool call|>", "\u4e2d<end>"]
OPTIONS = [f"--added-token={token}" for token in TOKENS]
TEXT = "a cat<think>on the<|tool call|> mat \u4e2d<end>"
FIRST = 284  # The tokenizer's size.


class AddedTokensTest(PrepareTest):
    """model/ has 284 tokens and as many rows."""

    def ids_of(self, *options):
        tensors, summary = self.prepared(*options)
        return tensors["input_ids"].tolist(), summary

    def reference(self):
        """transformers' tokenizer with the same tokens."""
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        self.assertEqual(tokenizer.add_tokens(TOKENS), len(TOKENS))
        return tokenizer

    def test_ids_are_those_of_transformers_and_the_tokenizer_goes_along(self):
        self.write_rows({"text": TEXT})
        ids, _ = self.ids_of(*OPTIONS)
        tokenizer = self.reference()
        self.assertEqual(ids, tokenizer(TEXT + "</s>").input_ids)
        self.assertEqual([i for i in ids if i >= FIRST], [FIRST, FIRST + 1, FIRST + 2])
        with open(self.path("out", "dataset.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["first_added_id"], FIRST)
        for name in ("tokenizer_config.json",):
            with open(os.path.join(self.model, name), "rb") as file:
                content = file.read()
            with open(self.path("out", name), "wb") as file:
                file.write(content)
        exported = AutoTokenizer.from_pretrained(self.path("out"))
        self.assertEqual(len(exported), FIRST + len(TOKENS))
        self.assertEqual(exported(TEXT + "</s>").input_ids, ids)
        self.assertEqual(exported.decode(ids[1:-1]), TEXT)

    def test_tokenizer_config_names_them_where_it_names_others(self):
        path = os.path.join(self.model, "tokenizer_config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config["added_tokens_decoder"] = {"0": {"content": "<s>", "special": True}}
        write_json(self.model, "tokenizer_config.json", config)
        self.write_rows({"text": TEXT})
        self.ids_of(*OPTIONS)
        with open(self.path("out", "tokenizer_config.json"), encoding="utf-8") as file:
            named = json.load(file)["added_tokens_decoder"]
        self.assertEqual(named["0"], {"content": "<s>", "special": True})
        contents = [named[str(FIRST + i)]["content"] for i in range(3)]
        self.assertEqual(contents, TOKENS)
        self.assertEqual(len(AutoTokenizer.from_pretrained(self.path("out"))), FIRST + 3)

    def test_a_chat_template_may_write_them(self):
        template = "{% for m in messages %}<think>{{ m.content }}</s>{% endfor %}"
        self.write_rows({"messages": [{"role": "user", "content": "a"},
                                      {"role": "assistant", "content": "b"}]})
        ids, _ = self.ids_of(*OPTIONS, "--chat-template", template)
        self.assertEqual(ids.count(FIRST), 2)

    def test_rows_of_tokens_may_hold_their_ids_and_no_others(self):
        self.write_rows({"input_ids": [5, FIRST + 2, 1]})
        ids, summary = self.ids_of(*OPTIONS)
        self.assertEqual(ids, [5, FIRST + 2, 1])
        self.assertIn("added tokens that no row has", " ".join(summary["warnings"]))
        self.assertIn("'<think>', '<|tool call|>'", " ".join(summary["warnings"]))

    def test_an_id_behind_them_is_refused(self):
        self.write_rows({"input_ids": [5, FIRST + 3, 1]})
        self.assertIn("vocabulary of 287", self.error(*OPTIONS)["message"])

    def test_a_token_of_the_model_is_refused(self):
        self.write_rows({"text": TEXT})
        error = self.error("--added-token=</s>")
        self.assertEqual((error["reason"], error["field"]), ("BAD_ADDED_TOKENS", "added_tokens"))
        self.assertIn("'</s>' is a token of the model already", error["message"])

    def test_without_them_nothing_more_is_written(self):
        self.write_rows({"text": TEXT})
        self.ids_of()
        written = {"dataset.safetensors", "summary.json", "dataset.json"}
        self.assertEqual(set(os.listdir(self.path("out"))), written)


if __name__ == "__main__":
    unittest.main()
