"""snug-prepare on bad input: each a typed error with file, line and reason, and no output
folder."""

import json
import os
import subprocess
import sys
import unittest

from testbed import PROGRAM, PrepareTest, write_json, write_model

GOOD = {"prompt": "a", "completion": " cat"}
CALL = {"function": {"name": "f", "arguments": '{"x": "y"}'}}
GOOD_CHAT = {
    "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [CALL]}]
}
TOKENS = {"input_ids": [5, 6], "labels": [-100, 6]}


class BadDatasetTest(PrepareTest):
    def expect(self, line, words, *rows, **named):
        """The run fails at `line` of train.jsonl with a message that holds `words`."""
        self.write_rows(*rows)
        error = self.error(**named)
        self.assertEqual(error["reason"], "BAD_DATASET")
        self.assertEqual(error["field"], "dataset")
        self.assertEqual(error["file"], self.path("train.jsonl"))
        self.assertEqual(error.get("line"), line)
        self.assertIn(words, error["message"])

    def test_broken_json(self):
        self.expect(
            2, "not JSON: Expecting ',' delimiter at column 16", GOOD, b'{"prompt": "a" "b"}'
        )

    # The blank line is no row, but it counts as a line.
    def test_line_numbers_count_blank_lines(self):
        self.expect(3, "not JSON", GOOD, b"", b"{")

    # F-40
    def test_a_line_without_an_end(self):
        with open(self.path("train.jsonl"), "wb") as file:
            file.write(json.dumps(GOOD).encode() + b"\n")
            file.truncate(200 << 20)  # Of it a third is read.
        error = self.error("--memory-bytes", str(400 << 20))
        self.assertEqual((error["reason"], error["line"]), ("BAD_DATASET", 2))
        self.assertIn("line is longer than 67108864 bytes", error["message"])

    # F-41
    def test_invalid_utf8(self):
        self.expect(2, "not UTF-8: invalid start byte at byte 12", GOOD, b'{"prompt": "\xff"}')

    def test_half_of_a_surrogate_pair(self):
        self.expect(1, "surrogate", b'{"prompt": "\\ud800", "completion": "x"}')

    # F-41
    def test_deep_nesting(self):
        self.expect(1, "nested too deeply", b"[" * 100000)

    def test_row_that_is_no_object(self):
        self.expect(1, "a row is a JSON object, this is a list", b"[1, 2]")

    def test_unknown_format(self):
        words = 'unknown row format (keys: title); accepted: pretokenized: {"input_ids"'
        self.expect(1, words, {"title": "x"})
        self.expect(1, "names of your own go into the job's columns", {"title": "x"})

    def test_prompt_of_messages_with_a_completion_of_text(self):
        row = {"prompt": [{"role": "user", "content": "x"}], "completion": "y"}
        self.expect(1, '"completion" is a string, but "prompt" is a list of messages', row)

    def test_mixed_formats(self):
        self.expect(2, "this row is pretokenized, but line 1 is prompt_completion", GOOD, TOKENS)

    def test_labels_of_other_length(self):
        row = {"input_ids": [5, 6], "labels": [5]}
        self.expect(2, '"labels" has 1 entries, "input_ids" has 2', TOKENS, row)

    def test_ids_that_are_no_integers(self):
        for value, kind in (
            (1.0, "a number with a fraction"),
            (True, "a boolean"),
            ("5", "a string"),
        ):
            row = {"input_ids": [5, value], "labels": [5, 5]}
            self.expect(1, f'"input_ids"[1] must be an integer, this is {kind}', row)

    def test_ids_outside_the_vocabulary(self):
        for token in (284, -1, 10**30):
            row = {"input_ids": [5, token], "labels": [5, -100]}
            self.expect(
                2, f"token id {token} is outside the model's vocabulary of 284", TOKENS, row
            )

    # Text whose tokenizer knows more tokens than the model has rows for.
    def test_tokenizer_larger_than_the_model(self):
        write_model(self.model, vocab_size=5)
        self.expect(1, "is outside the model's vocabulary of 5", GOOD)

    def test_label_that_is_neither_ignored_nor_the_id(self):
        row = {"input_ids": [5, 6], "labels": [6, -100]}
        self.expect(1, '"labels"[0] is 6, must be -100 or the input id 5', row)

    def test_attention_mask(self):
        for mask, words in (
            ([1, 0, 1], "has a 0 between ones"),
            ([1, 1, 2], "neither 0 nor 1"),
            ([0, 0, 0], "leaves no token"),
            ([1, 1], '"attention_mask" has 2 entries, "input_ids" has 3'),
            ([1, 1, 0], 'position 2 is trained, but "attention_mask" is 0 there'),
        ):
            row = {"input_ids": [5, 6, 7], "labels": [-100, 6, 7], "attention_mask": mask}
            self.expect(1, words, row)

    def test_empty_row(self):
        self.expect(1, '"input_ids" is empty', {"input_ids": [], "labels": []})

    # F-43
    def test_empty_file(self):
        self.expect(None, "the dataset has 0 rows")

    # F-43
    def test_nothing_trained(self):
        row = {"input_ids": [5, 6], "labels": [-100, -100]}
        self.expect(None, "no row has a trained token (2 rows read)", row, row)

    # The first token of a row cannot be predicted, so a row that trains it alone trains nothing.
    def test_only_the_first_token_trained(self):
        self.expect(None, "no row has a trained token", {"input_ids": [5, 6], "labels": [5, -100]})

    def test_missing_file(self):
        error = self.error()
        self.assertEqual((error["reason"], error["field"]), ("BAD_DATASET", "dataset"))
        self.assertEqual(error["message"], "cannot open: No such file or directory")

    def test_split_of_one_row(self):
        self.write_rows(GOOD)
        error = self.error("--eval-split", "0.5", "--eval-output", self.path("eval"))
        self.assertIn("the dataset has 1 rows: an evaluation split needs two", error["message"])


    # Escapes inside of JSON inside of a string: what the template prints is no text.
    def test_half_of_a_surrogate_pair_in_a_call(self):
        call = {"function": {"name": "f", "arguments": '{"x": "\\ud800"}'}}
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
        row = {"messages": turns}
        template = "{{ messages[-1].tool_calls[0].function.arguments.x }}"
        self.write_rows(GOOD_CHAT, row)
        error = self.error("--chat-template", template)
        self.assertEqual((error["reason"], error["line"]), ("BAD_DATASET", 2))
        self.assertIn("half of a surrogate pair", error["message"])


class TemplateTest(PrepareTest):
    """Templates that Jinja takes, and Python does not."""

    def test_is_not_jinja(self):
        deep = "{% for x in messages %}" * 25 + "a" + "{% endfor %}" * 25
        for template in (deep, "{{ " + "9" * 5000 + " }}"):
            self.write_rows(GOOD_CHAT)
            error = self.error("--chat-template", template)
            self.assertEqual(error["reason"], "BAD_CHAT_TEMPLATE")
            self.assertIn("is not Jinja", error["message"])


class BadModelTest(PrepareTest):
    def expect(self, name, words):
        self.write_rows(GOOD)
        error = self.error()
        self.assertEqual((error["reason"], error["field"]), ("BAD_MODEL", "model"))
        self.assertEqual(error["file"], self.path("model", name))
        self.assertIn(words, error["message"])

    def test_no_tokenizer(self):
        os.remove(self.path("model", "tokenizer.json"))
        self.expect("tokenizer.json", "no such file")

    def test_broken_tokenizer(self):
        write_json(self.model, "tokenizer.json", {"model": 3})
        self.expect("tokenizer.json", "not a tokenizer")

    def test_no_config(self):
        os.remove(self.path("model", "config.json"))
        self.expect("config.json", "no such file")

    def test_bad_vocabulary_size(self):
        write_json(self.model, "config.json", {"vocab_size": "many"})
        self.expect("config.json", '"vocab_size" must be a positive integer')

    # Rows and lists that hold what is no text.
    def test_bad_templates(self):
        names = [{"name": "default", "template": None}]
        write_json(self.model, "tokenizer_config.json", {"chat_template": names})
        self.write_rows(GOOD_CHAT)
        self.assertIn("neither text nor a list of names", self.error()["message"])

    def test_numbers_as_text(self):
        for key, words in (
            ("eos_token_id", '"eos_token_id" must be an integer'),
            ("max_position_embeddings", '"max_position_embeddings" must be an integer'),
        ):
            write_json(self.model, "config.json", {"vocab_size": 284, key: "1"})
            self.expect("config.json", words)

    def test_no_end_token(self):
        write_model(self.model, eos=False)
        self.expect("tokenizer_config.json", "no end-of-sequence token")

    def test_end_token_unknown_to_the_tokenizer(self):
        write_json(self.model, "tokenizer_config.json", {"eos_token": "<stop>"})
        self.expect("tokenizer_config.json", "'<stop>' is not in tokenizer.json")


class FailureTest(PrepareTest):
    # Nothing is wrong with the input: the folder cannot be made. Exit code 1, and still an error in
    # the last line.
    def test_output_below_a_file(self):
        self.write_rows(GOOD)
        run = self.prepare("--output", self.path("train.jsonl", "out"))
        self.assertEqual(run.returncode, 1, run.stderr)
        error = json.loads(run.stderr.splitlines()[-1])
        self.assertEqual(error["reason"], "PREPARE_FAILED")
        self.assertIn("Not a directory", error["message"])
        self.assertIn("Traceback", run.stderr)


class LimitsTest(PrepareTest):
    # The list of this row alone takes 240 MB, the line 60 MB.
    def test_memory(self):
        self.write_rows(b'{"input_ids": [' + b"5," * 30_000_000 + b'5], "labels": []}')
        error = self.error("--memory-bytes", str(300 << 20))
        self.assertEqual(error["reason"], "PREPARE_LIMIT")
        self.assertIn("needs more than 314572800 bytes of memory", error["message"])

    # Documents of which a thousand are more than fits: they do not come at once. With offsets they
    # took 4 GB.
    def test_long_documents(self):
        text = "the cat sat on the mat " * 6000
        self.write_rows(*[{"text": text[i:]} for i in range(100)])
        run = self.prepare("--memory-bytes", str(900 << 20))
        self.assertEqual(run.returncode, 0, run.stderr)

    # F-40
    def test_one_text_that_is_too_long(self):
        self.write_rows({"text": "a"}, {"text": "the cat " * 400000})
        error = self.error("--memory-bytes", str(600 << 20))
        self.assertEqual((error["reason"], error["line"]), ("PREPARE_LIMIT", 2))
        self.assertIn("this row has 3200004 characters of text", error["message"])
        self.assertIn("prepare.memory", error["message"])

    def test_time(self):
        self.write_rows(*[{"input_ids": [5] * 10000, "labels": [5] * 10000}] * 1000)
        error = self.error("--cpu-seconds", "1")
        self.assertEqual(error["reason"], "PREPARE_LIMIT")
        self.assertIn("more than 1 s of CPU time", error["message"])

    def test_network(self):
        begin = (
            f"import sys; sys.path.insert(0, {os.path.dirname(PROGRAM)!r}); import limits, socket\n"
            "limits.apply(4 << 30, 60); "
        )
        for call in (
            "socket.create_connection(('127.0.0.1', 1))",
            "socket.socket(socket.AF_INET)",
            "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
            "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'', '/dev/log')",
        ):
            code = [sys.executable, "-c", begin + call]
            run = subprocess.run(code, capture_output=True, text=True)
            self.assertIn("PermissionError: snug-prepare has no network", run.stderr, call)


if __name__ == "__main__":
    sys.exit(unittest.main())
