"""The checks of a dataset: each trap is counted, told in words, and absent where it is not."""

import json
import shutil
import sys
import unittest

from testbed import PrepareTest, write_json

TURN = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<s>\n' }}{% endfor %}"
GOOD = {"prompt": "a", "completion": " cat"}
TOKENS = {"input_ids": [5, 1], "labels": [-100, 1]}


class ChecksTest(PrepareTest):
    def summary(self, *rows, options=(), max_seq_length=64):
        self.write_rows(*rows)
        folder = f"out{len(self.taken)}"
        self.taken.append(folder)
        options = ("--output", self.path(folder), *options)
        run = self.prepare(*options, max_seq_length=max_seq_length)
        self.assertEqual(run.returncode, 0, run.stderr)
        _, summary = self.prepared(folder=folder)
        return summary

    def setUp(self):
        super().setUp()
        self.taken = []

    def configure(self, name, **values):
        with open(self.path("model", name), encoding="utf-8") as file:
            config = json.load(file)
        write_json(self.model, name, {**config, **values})

    def warned(self, summary, words):
        return [text for text in summary["warnings"] if words in text]

    # Nothing is wrong: nothing is said, and every number is there.
    def test_nothing_to_say(self):
        summary = self.summary(GOOD, {"prompt": "what", "completion": " is a dog"})
        self.assertEqual(summary["warnings"], [])
        self.assertEqual(summary["format"], "prompt_completion")
        for name in (
            "truncated_rows truncated_tokens rows_without_stop_token untrained_rows "
            "duplicate_rows rows_longer_than_model border_rows rows_with_masked_stop "
            "doubled_bos_rows"
        ).split():
            self.assertEqual(summary[name], 0, name)
        self.assertEqual(summary["source_rows"], 2)
        self.assertFalse(summary["pad_is_eos"])

    def test_duplicates(self):
        summary = self.summary(GOOD, {"prompt": "a", "completion": " dog"}, GOOD, GOOD)
        self.assertEqual(summary["duplicate_rows"], 2)
        self.assertTrue(self.warned(summary, "2 rows are the same as an earlier row"))

    # The same text, but another part of it is trained: no duplicate.
    def test_other_mask_is_no_duplicate(self):
        rows = ({"input_ids": [5, 6, 1], "labels": [-100, label, 1]} for label in (6, -100))
        self.assertEqual(self.summary(*rows)["duplicate_rows"], 0)

    def test_longer_than_the_model(self):
        self.configure("config.json", max_position_embeddings=16)
        rows = ({"input_ids": [5] * n, "labels": [5] * n} for n in (8, 12, 16, 17, 40))
        summary = self.summary(*rows, max_seq_length=12)
        self.assertEqual(summary["rows_longer_than_model"], 2)
        self.assertEqual(summary["truncated_rows"], 3)
        self.assertEqual(summary["truncated_tokens"], 4 + 5 + 28)
        self.assertTrue(self.warned(summary, "2 rows are longer than the model's 16 positions"))
        self.assertTrue(self.warned(summary, "3 rows are longer than max_seq_length (12 tokens)"))

    def test_rope_scaling_stretches_the_model(self):
        rows = [{"input_ids": [5] * n, "labels": [5] * n} for n in (16, 17, 32, 33)]
        original = "original_max_position_embeddings"
        for rope, longer in (
            ({"rope_type": "default"}, 3),
            ({"rope_type": "linear", "factor": 2.0}, 1),
            ({"type": "yarn", "factor": 2}, 1),
            ({"rope_type": "yarn", "factor": 4.0, original: 8}, 1),
            ({"rope_type": "llama3", "factor": 4.0, original: 4}, 3),
            ({"rope_type": "linear", "factor": "2"}, 3),
        ):
            self.configure("config.json", max_position_embeddings=16, rope_scaling=rope)
            summary = self.summary(*rows, max_seq_length=64)
            self.assertEqual(summary["rows_longer_than_model"], longer, rope)

    # Labels made by masking the padding token, which is the end token: the end is never learned.
    def test_padding_is_the_end_token(self):
        self.configure("tokenizer_config.json", pad_token="</s>")
        summary = self.summary({"input_ids": [5, 6, 7, 1], "labels": [-100, 6, 7, -100]})
        self.assertTrue(summary["pad_is_eos"])
        self.assertEqual(summary["rows_with_masked_stop"], 1)
        self.assertEqual(summary["rows_without_stop_token"], 1)
        self.assertTrue(self.warned(summary, "the padding token is the end token, and was masked"))
        self.assertTrue(self.warned(summary, "1 of 1 rows have no trained stop token"))

    # Masked by position, the same trap has no effect: our own end token is trained.
    def test_padding_does_not_mask(self):
        self.configure("tokenizer_config.json", pad_token="</s>")
        summary = self.summary(GOOD)
        self.assertEqual((summary["pad_is_eos"], summary["warnings"]), (True, []))

    # The template's turns end in <s> (id 0); the model stops at </s> (id 1).
    def test_end_of_turn_is_no_stop_token(self):
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "cat"}]
        options = ("--chat-template", TURN)
        summary = self.summary({"messages": turns}, options=options)
        self.assertEqual((summary["end_of_turn"], summary["end_of_turn_is_stop"]), ("<s>", False))
        self.assertEqual(summary["rows_without_stop_token"], 1)
        words = "ends a turn with '<s>' (id 0), which is none of the model's stop tokens [1]"
        self.assertTrue(self.warned(summary, words))
        write_json(self.model, "generation_config.json", {"eos_token_id": [1, 0]})
        summary = self.summary({"messages": turns}, options=options)
        self.assertTrue(summary["end_of_turn_is_stop"])
        self.assertEqual(summary["warnings"], [])

    def test_few_trained_tokens(self):
        row = {"input_ids": [5] * 199 + [1], "labels": [-100] * 199 + [1]}
        summary = self.summary(row, max_seq_length=200)
        self.assertTrue(self.warned(summary, "only 0.50 % of the tokens are trained"))

    def test_rows_of_the_split_that_are_trained_too(self):
        options = ("--eval-split", "0.5", "--eval-output", self.path("eval"))
        summary = self.summary(GOOD, GOOD, options=options)
        self.assertEqual((summary["rows"], summary["eval_rows_in_train"]), (1, 1))
        self.assertTrue(self.warned(summary, "1 of 1 evaluation rows are trained on as well"))

    # All of them, though they are one row; and what is found in them is said.
    def test_equal_rows_of_the_split(self):
        options = ("--eval-split", "0.5", "--eval-output", self.path("eval"))
        summary = self.summary(*[{**GOOD, "x": 1}] * 20, options=options)
        self.assertEqual((summary["eval_rows"], summary["eval_rows_in_train"]), (10, 10))
        self.assertTrue(self.warned(summary, "evaluation: keys that are not used: x"))

    # The one row held out has nothing to evaluate: that is said of it, not of the dataset.
    def test_split_without_a_trained_token(self):
        self.write_rows(*[{"input_ids": [5, 6], "labels": [-100, -100]}] * 2, TOKENS, TOKENS)
        words = "no row that eval_split holds out has a trained token (1 rows read)"
        for seed in range(20):  # Until it is one of the first two.
            options = ("--eval-split", "0.25", "--eval-output", self.path("eval"))
            run = self.prepare("--seed", str(seed), *options)
            if run.returncode:
                break
            shutil.rmtree(self.path("out"))
            shutil.rmtree(self.path("eval"))
        self.assertIn(words, json.loads(run.stderr.splitlines()[-1])["message"])

    # Alike as far as they are kept, but not the same.
    def test_rows_that_differ_behind_the_cut_are_no_duplicates(self):
        rows = [{"text": "the cat sat on the mat " * 5 + end} for end in ("a", "dog", "dog")]
        summary = self.summary(*rows, max_seq_length=8)
        self.assertEqual((summary["truncated_rows"], summary["duplicate_rows"]), (3, 1))

    # The second would have trained nothing in any case.
    def test_rows_whose_answer_is_cut_off(self):
        untrained = {"input_ids": [5] * 20, "labels": [-100] * 20}
        cut = {"input_ids": [5] * 20, "labels": [-100] * 19 + [5]}
        summary = self.summary(cut, untrained, {"input_ids": [5, 1]}, max_seq_length=8)
        self.assertEqual((summary["truncated_rows"], summary["untrained_rows"]), (2, 2))
        words = "left out (1 of them because max_seq_length cut off what is trained)"
        self.assertTrue(self.warned(summary, words))

    # And so it is said of a conversation, whose answers behind the cut are not looked for.
    def test_conversation_whose_answer_is_cut_off(self):
        turns = [{"role": "user", "content": "a " * 50}, {"role": "assistant", "content": "cat"}]
        short = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "cat</s>"}]
        summary = self.summary(
            {"messages": turns}, {"messages": short}, options=("--chat-template", TURN),
            max_seq_length=40,
        )
        self.assertTrue(self.warned(summary, "(1 of them because max_seq_length cut off"))

    # Text that was rendered before spells the BOS that the tokenizer adds: of prompt and completion
    # together one token is dropped, not one of each.
    def test_bos_is_not_doubled(self):
        summary = self.summary({"prompt": "<s>a", "completion": " cat"}, GOOD)
        self.assertEqual(summary["doubled_bos_rows"], 1)
        self.assertEqual(summary["duplicate_rows"], 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
