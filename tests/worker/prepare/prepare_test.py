"""snug-prepare on good input: ids and weights, split, summary, folder."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
import unittest
from unittest import mock

import golden
from testbed import ROOT, PrepareTest, write_json, write_model
from tokenizers import Tokenizer, processors

sys.path.insert(0, os.path.join(ROOT, "worker/prepare"))

import snug_prepare  # noqa: E402

TOKEN_ROW = {"input_ids": [5, 6, 7, 1], "labels": [-100, -100, 7, 1]}


def trl_rule(tokenizer, prompt, completion):
    """TRL's SFTTrainer for a prompt and a completion that are strings: ids and completion mask."""
    if not completion.endswith(tokenizer.eos_token):
        completion = completion + tokenizer.eos_token
    prompt_ids = tokenizer(text=prompt)["input_ids"]
    ids = tokenizer(text=prompt + completion)["input_ids"]
    split = golden.common_prefix_length(prompt_ids, ids)
    return ids, [0] * split + [1] * (len(ids) - split)


class TextTest(PrepareTest):
    # Ids and mask are those that TRL trains on, read by transformers: with and without a BOS, a
    # border with and without a space, an end token already there, an empty prompt, other scripts.
    def test_equals_trl(self):
        from transformers import AutoTokenizer

        rows = [
            ("what is a cat?", " an animal."),
            ("the cat ", "sat on the mat"),
            ("a dog", " and a cat</s>"),
            ("on the m", "at and a dog"),
            ("", "on the mat"),
            ("Größe 猫", " 🐈 ok"),
        ]
        for bos in (True, False):
            with self.subTest(bos=bos):
                self.setUp()
                write_model(self.model, bos=bos)
                self.write_rows(*({"prompt": p, "completion": c} for p, c in rows))
                tensors, _ = self.prepared()
                tokenizer = AutoTokenizer.from_pretrained(self.model)
                offsets = tensors["row_offsets"]
                self.assertEqual(len(offsets), len(rows) + 1)
                for row, begin, end in zip(rows, offsets, offsets[1:]):
                    ids, mask = trl_rule(tokenizer, *row)
                    self.assertEqual(tensors["input_ids"][begin:end].tolist(), ids, row)
                    # The first token is predicted from nothing; TRL's shift drops it as well.
                    weights = tensors["loss_weights"][begin:end].tolist()
                    self.assertEqual(weights, [0] + mask[1:], row)

    # A tokenizer that ends texts itself: the prompt does not end there, and the text ends once.
    def test_tokenizer_that_ends_texts(self):
        path = self.path("model", "tokenizer.json")
        tokenizer = Tokenizer.from_file(path)
        special = [("<s>", 0), ("</s>", 1)]
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", None, special)
        tokenizer.save(path)
        tokenizer.no_truncation()
        for completion in (" cat", " cat</s>"):
            with self.subTest(completion):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                self.write_rows({"prompt": "a", "completion": completion})
                tensors, _ = self.prepared()
                ids = tokenizer.encode("a cat").ids
                self.assertEqual(tensors["input_ids"].tolist(), ids)
                prompt = len(tokenizer.encode("a").ids) - 1
                weights = [0] * prompt + [1] * (len(ids) - prompt)
                self.assertEqual(tensors["loss_weights"].tolist(), weights)

    # The token " mat" spans the border: it is trained, and with it all of the completion.
    def test_token_across_the_border(self):
        self.write_rows({"prompt": "on the m", "completion": "at and a dog"})
        tensors, summary = self.prepared()
        tokenizer = Tokenizer.from_file(self.path("model", "tokenizer.json"))
        trained = [
            tokenizer.decode([token], skip_special_tokens=False)
            for token, weight in zip(tensors["input_ids"].tolist(), tensors["loss_weights"])
            if weight
        ]
        self.assertEqual("".join(trained), " mat and a dog</s>")
        self.assertEqual(summary["border_rows"], 1)
        self.assertIn("1 rows have a token that spans what is trained", summary["warnings"][0])

    # An end token that the row already carries is not doubled; an empty completion trains just
    # that.
    def test_empty_completion_trains_the_end_token(self):
        self.write_rows({"prompt": "a cat", "completion": ""})
        tensors, summary = self.prepared()
        self.assertEqual(tensors["input_ids"][-1], 1)
        self.assertEqual(summary["trained_tokens"], 1)

    # The second row loses its end, and with it the stop token; the third loses all that is trained.
    def test_truncation(self):
        long_prompt = "the cat sat on the mat " * 10
        self.write_rows(
            {"prompt": "a", "completion": " cat"},
            {"prompt": "a", "completion": " cat" * 30},
            {"prompt": long_prompt, "completion": "a cat"},
        )
        tensors, summary = self.prepared(max_seq_length=8)
        self.assertEqual(summary["rows"], 2)
        self.assertEqual(summary["truncated_rows"], 2)
        self.assertEqual(summary["rows_without_stop_token"], 1)
        self.assertEqual(summary["longest_row_tokens"], 8)
        self.assertEqual(len(tensors["input_ids"]), tensors["row_offsets"][-1])
        words = "1 rows have no trained token and were left out (1 of them because max_seq_length "
        self.assertIn(words + "cut off what is trained)", summary["warnings"])

    # A blank line, a row without a trained token, rows held out: numbers of rows and of lines drift
    # apart.
    def test_rows_remember_their_lines(self):
        good = {"prompt": "a", "completion": " cat"}
        untrained = {"prompt": "the cat sat on the mat " * 10, "completion": "a cat"}
        self.write_rows(good, b"", untrained, good, *[good] * 8)
        options = ("--eval-split", "0.3", "--eval-output", self.path("eval"))
        tensors, _ = self.prepared(*options, max_seq_length=8)
        held_out, _ = self.prepared(folder="eval")
        train, evaluation = tensors["source_line"].tolist(), held_out["source_line"].tolist()
        self.assertEqual(len(train), len(tensors["row_offsets"]) - 1)
        self.assertEqual(train, sorted(train))
        self.assertEqual(sorted(train + evaluation), [1, 4, 5, 6, 7, 8, 9, 10, 11, 12])

    def test_end_token_comes_from_config_when_the_tokenizer_names_none(self):
        with open(self.path("model", "tokenizer_config.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        self.write_rows({"prompt": "a", "completion": " cat"})
        tensors, _ = self.prepared()
        self.assertEqual(tensors["input_ids"][-1], 1)


class SpecialTokensTest(PrepareTest):
    """What a model's files call its end token is what transformers makes of them."""

    def expect(self, token):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.model)
        self.assertEqual(tokenizer.eos_token, token)
        shutil.rmtree(self.path("out"), ignore_errors=True)
        self.write_rows({"prompt": "a", "completion": " cat"})
        tensors, _ = self.prepared()
        self.assertEqual(tensors["input_ids"].tolist(), trl_rule(tokenizer, "a", " cat")[0])
        self.assertEqual(tensors["input_ids"][-1], tokenizer.eos_token_id)

    # A word of the vocabulary that tokenizer.json does not list as a token to split text at: what
    # would be trained is "<", "/", "s" and ">", which ends nothing.
    def test_end_token_that_is_a_mere_word(self):
        path = self.path("model", "tokenizer.json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] == "<s>"]
        write_json(self.model, "tokenizer.json", tokenizer)
        self.expect("</s>")

    # It has the last word, save beside a list of added tokens, where it is no longer read.
    def test_map_of_special_tokens(self):
        write_json(self.model, "special_tokens_map.json", {"eos_token": "<s>"})
        self.expect("<s>")
        names = {"bos_token": "<s>", "eos_token": "</s>", "added_tokens_decoder": {}}
        names["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_json(self.model, "tokenizer_config.json", names)
        self.expect("</s>")


class TokenRowsTest(PrepareTest):
    def test_ids_and_labels_are_taken_as_they_are(self):
        self.write_rows(TOKEN_ROW, {"input_ids": [9, 9], "labels": [9, 9]})
        tensors, summary = self.prepared()
        self.assertEqual(tensors["input_ids"].tolist(), [5, 6, 7, 1, 9, 9])
        # Label 0 of the second row is trained in the file, but nothing stands before it.
        self.assertEqual(tensors["loss_weights"].tolist(), [0, 0, 1, 1, 0, 1])
        self.assertEqual(tensors["row_offsets"].tolist(), [0, 4, 6])
        self.assertEqual(
            {name: str(tensor.dtype) for name, tensor in tensors.items()},
            {
                "row_offsets": "int64",
                "source_line": "int64",
                "input_ids": "int32",
                "loss_weights": "float32",
            },
        )
        self.assertEqual(tensors["source_line"].tolist(), [1, 2])
        self.assertEqual(summary["rows"], 2)
        self.assertEqual(summary["tokens"], 6)
        self.assertEqual(summary["trained_tokens"], 3)
        self.assertEqual(summary["rows_without_stop_token"], 1)

    # Pre-tokenised rows need the model's vocabulary, but no tokenizer.
    def test_no_tokenizer_needed(self):
        os.remove(self.path("model", "tokenizer.json"))
        self.write_rows(TOKEN_ROW)
        self.prepared()

    def test_padding_at_either_end_is_dropped(self):
        row = {"input_ids": [0, 5, 6, 0], "labels": [-100, -100, 6, -100]}
        self.write_rows({**row, "attention_mask": [0, 1, 1, 0]})
        tensors, _ = self.prepared()
        self.assertEqual(tensors["input_ids"].tolist(), [5, 6])
        self.assertEqual(tensors["loss_weights"].tolist(), [0, 1])

    # Lengths 2, 3, 4, 5, 17: bins end at powers of two, and the empty bin between them is listed.
    def test_length_histogram(self):
        self.write_rows(*({"input_ids": [5] * n, "labels": [5] * n} for n in (2, 3, 4, 5, 17)))
        _, summary = self.prepared()
        bins = [(b["up_to_tokens"], b["rows"]) for b in summary["length_histogram"]]
        self.assertEqual(bins, [(2, 1), (4, 2), (8, 1), (16, 0), (32, 1)])

    def test_keys_that_nothing_reads_are_told(self):
        self.write_rows({**TOKEN_ROW, "source": "x"})
        _, summary = self.prepared()
        self.assertEqual(summary["warnings"], ["keys that are not used: source"])


class FolderTest(PrepareTest):
    def test_dataset_json_names_hash_format_and_length(self):
        self.write_rows(TOKEN_ROW)
        self.prepared()
        with open(self.path("out", "dataset.safetensors"), "rb") as file:
            sha256 = hashlib.sha256(file.read()).hexdigest()
        with open(self.path("out", "dataset.json"), encoding="utf-8") as file:
            about = json.load(file)
        expected = {"format": "pretokenized", "max_seq_length": 64}
        self.assertEqual(about, {"sha256": sha256, **expected})
        self.assertEqual(sorted(os.listdir(self.folder)), ["model", "out", "train.jsonl"])

    # What a killed run left aside is cleared away; a folder that is whole already stays as it is.
    def test_runs_again(self):
        self.write_rows(TOKEN_ROW)
        os.makedirs(self.path("out.tmp", "rest"))
        self.prepared()
        before = os.stat(self.path("out", "dataset.json")).st_ino
        self.assertEqual(self.prepare().returncode, 0)
        self.assertEqual(os.stat(self.path("out", "dataset.json")).st_ino, before)
        self.assertFalse(os.path.exists(self.path("out.tmp")))

    # 40 rows, a tenth held out: whole rows, each on one side, the same at each run, others by seed.
    def test_evaluation_split(self):
        self.write_rows(*({"input_ids": [i, i], "labels": [i, i]} for i in range(40)))

        def held_out(seed, tag):
            options = ["--eval-split", "0.1", "--eval-output", self.path(tag), "--seed", seed]
            os.path.exists(self.path("out")) and os.rename(self.path("out"), self.path("o" + tag))
            train, summary = self.prepared(*options)
            evaluation, _ = self.prepared(folder=tag)
            self.assertEqual(summary["eval_rows"], 4)
            self.assertEqual(summary["rows"], 36)
            both = train["input_ids"].tolist() + evaluation["input_ids"].tolist()
            self.assertEqual(sorted(both), sorted([i for i in range(40)] * 2))
            return set(evaluation["input_ids"].tolist())

        first = held_out("1", "a")
        self.assertEqual(first, held_out("1", "b"))
        self.assertNotEqual(first, held_out("2", "c"))

    def test_progress_is_told(self):
        self.write_rows(*[TOKEN_ROW] * 1500)
        lines = self.prepare().stderr.splitlines()
        notes = ["pretokenized: 1500 rows, 6000 tokens, 50.0 % trained"]
        notes.append("1499 rows are the same as an earlier row")
        progress = ["progress: 1500 of 1500 rows"]
        self.assertEqual(lines, progress + ["note: " + note for note in notes])

    # 200 rows have taken 2 s: 400 more take 4. Less than a second is not worth saying.
    def test_progress_tells_the_time_that_is_left(self):
        clock, said = mock.Mock(), io.StringIO()
        clock.monotonic.return_value = 10.0
        with mock.patch.object(snug_prepare, "time", clock), contextlib.redirect_stderr(said):
            progress = snug_prepare.Progress(600)
            for seconds, rows in ((0.5, 100), (2.0, 100), (2.9, 100), (6.0, 299)):
                clock.monotonic.return_value = 10.0 + seconds
                progress.add(rows)
        lines = ["progress: 200 of 600 rows, 4 s left", "progress: 599 of 600 rows"]
        self.assertEqual(said.getvalue().splitlines(), lines)


if __name__ == "__main__":
    sys.exit(unittest.main())
