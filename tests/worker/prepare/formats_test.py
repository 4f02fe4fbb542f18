"""Kinds of files and formats of rows: how they are told apart, and what is said of a row that is
wrong. What good rows become is in golden_test."""

import json
import os
import sys
import tempfile
import unittest

from testbed import ROOT

sys.path.insert(0, os.path.join(ROOT, "worker/prepare"))

import files  # noqa: E402
import formats  # noqa: E402
from errors import PrepareError  # noqa: E402
from files.record import Record  # noqa: E402

USER = {"role": "user", "content": "a"}
CAT = {"role": "assistant", "content": "cat"}


def row(values, name=None):
    return read_rows([Record("f", 1, values)], name or "")[0]


def read_rows(records, name=""):
    reader, records = formats.RowReader(name), list(records)
    reader.settle(records[0])
    return [reader.read(record) for record in records]


class DetectionTest(unittest.TestCase):
    def test_by_keys(self):
        turns = [{"from": "human", "value": "a"}]
        for values, name in (
            ({"messages": [USER, CAT], "prompt": "a", "text": "x"}, "messages"),
            ({"conversations": [USER, CAT]}, "messages"),
            ({"conversations": turns, "id": 3}, "sharegpt"),
            ({"conversations": '[{"role": "user", "content": "a"}]'}, "messages"),  # of a table
            ({"conversations": '[{"from": "human", "value": "a"}]'}, "sharegpt"),
            ({"prompt": "a", "completion": "b"}, "prompt_completion"),
            ({"instruction": "a", "input": "", "output": "b", "text": "ab"}, "alpaca"),
            ({"text": "a", "meta": {}}, "text"),
            ({"input_ids": [1], "text": "a"}, "pretokenized"),
            ({"model_input": [1], "loss_fn_inputs": {"target_tokens": [2]}}, "pretokenized"),
        ):
            self.assertEqual(row(values).format, name)

    # The job's word counts: a column "label" may be something else, "text" may be the better one.
    def test_the_job_decides(self):
        values = {"prompt": "a", "completion": "b", "label": True, "text": "c"}
        found = row(values, "prompt_completion")
        self.assertEqual((found.completion, found.unused), ("b", ("label", "text")))
        self.assertEqual(row(values, "text").completion, "c")

    def test_preference_data_is_refused_by_name(self):
        for values, words in (
            ({"prompt": "a", "chosen": "b", "rejected": "c"}, "preference data (DPO"),
            ({"chosen": [USER, CAT], "rejected": [USER]}, "preference data (DPO"),
            ({"input": {}, "preferred_output": [], "non_preferred_output": []}, "OpenAI's form"),
            ({"prompt": "a", "completion": "b", "label": False}, "(KTO)"),
            ({"prompt": "a", "completion": "b", "label": "True"}, "(KTO)"),
            ({"messages": [USER, CAT], "kto_tag": True}, "(KTO)"),
            ({"prompt": "a", "completions": ["b"], "labels": [True]}, "stepwise supervision"),
            ({"prompt": [USER], "completion": [CAT], "label": True}, "(KTO)"),
            ({"prompt": [USER], "chosen": [CAT], "rejected": [CAT]}, "preference data (DPO"),
            ({"prompt": "a"}, "a prompt alone (GRPO"),
            ({"prompt": [USER], "answer": "b"}, "a prompt alone (GRPO"),
        ):
            with self.assertRaises(PrepareError) as caught:
                row(values)
            self.assertEqual((caught.exception.file, caught.exception.line), ("f", 1))
            self.assertIn(words, caught.exception.message)
            self.assertIn("supervised fine-tuning", caught.exception.message)


class FieldsTest(unittest.TestCase):
    """Each wrong row is refused with the field's name."""

    def expect(self, words, values):
        with self.assertRaises(PrepareError) as caught:
            row(values)
        self.assertEqual(caught.exception.reason, "BAD_DATASET")
        self.assertIn(words, caught.exception.message)

    def test_messages(self):
        image = {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}
        for words, messages in (
            ('"messages" must be a list, this is an object', {}),
            ('"messages" is empty', []),
            ('"messages"[1] must be an object, this is a string', [USER, "b"]),
            ('"messages"[0]."role" must be a string, this is null', [{"content": "a"}]),
            ('"role" is "asistant", must be one of', [USER, {**CAT, "role": "asistant"}]),
            ('"messages"[1] has no "content"', [USER, {"role": "assistant", "content": None}]),
            ('"content"[0]."type" is "image_url"; only "text"', [image, CAT]),
            *(
                ('"weight" must be a finite number', [USER, {**CAT, "weight": weight}])
                # The last ones are infinite, or 0, in float32.
                for weight in ("1", -1, True, float("nan"), 10**400, 1e39, 1e-50)
            ),
            ('"function_call" is the form', [USER, {**CAT, "function_call": {"name": "f"}}]),
            ("only an assistant's message has one", [{**USER, "weight": 1}, CAT]),
            ('"tool_calls" must be a list', [USER, {**CAT, "tool_calls": {}}]),
            ('"function"."name" must be a string', [USER, {**CAT, "tool_calls": [{}]}]),
        ):
            self.expect(words, {"messages": messages})

    def test_tools(self):
        calls = [{"function": {"name": "f", "arguments": "{}"}}] * 2
        messages = [USER, {**CAT, "tool_calls": calls}]
        row({"messages": messages, "parallel_tool_calls": True})
        words = '"parallel_tool_calls" is false, but "messages"[1] makes 2 calls'
        self.expect(words, {"messages": messages, "parallel_tool_calls": False})
        self.expect('"tools" is a string that is not JSON', {"messages": messages, "tools": "[f"})
        self.expect('"tools"[0] must be an object', {"messages": messages, "tools": ["f"]})
        self.expect('write "tools"', {"messages": messages, "functions": []})

    # As the cells of a table hold it.
    def test_parallel_tool_calls_as_text(self):
        messages = [USER, {**CAT, "tool_calls": [{"function": {"name": "f"}}] * 2}]
        for value in ("true", "True", ""):
            row({"messages": messages, "parallel_tool_calls": value})
        self.expect("makes 2 calls", {"messages": messages, "parallel_tool_calls": "false"})
        self.expect("must be true or false", {"messages": messages, "parallel_tool_calls": "no"})

    # Both parts in JSON are messages; one alone is an answer that happens to be JSON.
    def test_prompt_and_completion_as_text(self):
        prompt, completion = json.dumps([USER]), json.dumps([{**CAT, "weight": 0.5}])
        found = row({"prompt": prompt, "completion": completion})
        self.assertEqual((found.messages, found.weights), ([USER, CAT], [0.0, 0.5]))
        self.assertEqual(row({"prompt": "a", "completion": completion}).completion, completion)

    def test_sharegpt(self):
        for words, turn in (
            ('"from" is "bard", must be one of human', {"from": "bard", "value": "a"}),
            ('"value" must be a string', {"from": "gpt", "value": None}),
            ('"value" of a function_call is not JSON', {"from": "function_call", "value": "f()"}),
            ('"function"."name" must be', {"from": "function_call", "value": '{"x": 1}'}),
        ):
            self.expect(words, {"conversations": [turn]})

    # LLaMA-Factory's rule: of two system messages, that of the conversation.
    def test_sharegpt_with_two_systems(self):
        turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
        own = {"from": "system", "value": "own"}
        for written, system in ((turns, "column"), ([own, *turns], "own")):
            found = row({"conversations": written, "system": "column"})
            self.assertEqual(found.messages[0], {"role": "system", "content": system})
            self.assertEqual(len(found.messages), 3)

    # LLaMA-Factory's rule: what is empty has no line.
    def test_alpaca_with_empty_parts(self):
        for instruction, more, asked in (("a", "b", "a\nb"), ("a", "", "a"), ("", "b", "b")):
            values = {"instruction": instruction, "input": more, "output": "c"}
            self.assertEqual(row(values).messages[0]["content"], asked)

    def test_alpaca(self):
        good = {"instruction": "a", "output": "b"}
        self.expect('"output" must be a string, this is null', {**good, "output": None})
        self.expect("must be a user's words and the", {**good, "history": [["a", "b", "c"]]})
        self.expect('"history" must be a list', {**good, "history": {"a": "b"}})

    def test_pretokenized(self):
        both = {"input_ids": [5], "labels": [5], "completion_mask": [1]}
        self.expect('"labels" and a mask', both)
        masked = row({"input_ids": [5, 6, 7], "completion_mask": [False, True, True]})
        self.assertEqual(masked.weights, [0.0, 1.0, 1.0])
        padded = row({"input_ids": [5, 6, 0], "attention_mask": [1, True, 0]})
        self.assertEqual((padded.ids, padded.weights), ([5, 6], [1.0, 1.0]))
        inputs = {"target_tokens": [6, 8], "weights": [1, 1]}
        words = '"target_tokens"[0] is 6, but "model_input"[1] is 7'
        self.expect(words, {"model_input": [5, 7], "loss_fn_inputs": inputs})
        for weight in (float("nan"), 10**400, 1e39, 1e-50):
            inputs = {"target_tokens": [7], "weights": [weight]}
            words = '"weights"[0] must be a finite number'
            self.expect(words, {"model_input": [5], "loss_fn_inputs": inputs})


class FilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def read(self, name, text):
        path = self.file(name, text)
        kind = files.kind_of(path)
        records = list(kind.read(path))
        self.assertEqual(kind.count(path), len(records))
        return [(record.line, record.values) for record in records]

    def expect(self, line, words, name, text):
        with self.assertRaises(PrepareError) as caught:
            self.read(name, text)
        error = caught.exception
        self.assertEqual((error.line, error.file), (line, os.path.join(self.folder, name)))
        self.assertIn(words, error.message)

    # A byte order mark, blank lines, no newline at the end.
    def test_lines(self):
        rows = [(1, {"a": 1}), (3, {"a": 2})]
        self.assertEqual(self.read("x.jsonl", '\ufeff{"a":1}\n\n{"a":2}'), rows)
        self.assertEqual(self.read("x.json", '{"a":1}\n\n{"a":2}\n'), rows)
        self.assertEqual(self.read("x", '{"a":1}\n\n{"a":2}\n'), rows)

    def test_array(self):
        text = '[\n {"a": 1},\n\n {"a":\n 2}]\n'
        self.assertEqual(self.read("x.json", text), [(2, {"a": 1}), (4, {"a": 2})])
        self.assertEqual(self.read("x.json", "[]"), [])
        self.expect(3, "not JSON: Expecting ',' delimiter", "x.json", '[{"a": 1},\n{"b": 2\n"c"}]')
        self.expect(2, "expecting ',' or ']'", "x.json", '[{"a": 1}\n{"b": 2}]')
        self.expect(2, "a row is a JSON object, this is an integer", "x.json", '[{"a": 1},\n7]')
        self.expect(2, "something stands behind the array", "x.json", '[{"a": 1}]\n[]')
        self.expect(2, "not UTF-8", "x.json", b'[{"a": 1},\n{"a": "\xff"}]')

    # Cells over several lines: a record's line is the one it begins on.
    def test_csv(self):
        text = 'prompt,completion\n"a\nb","say ""c"""\nd,\n'
        rows = [(2, {"prompt": "a\nb", "completion": 'say "c"'})]
        rows.append((4, {"prompt": "d", "completion": ""}))
        self.assertEqual(self.read("x.csv", text), rows)
        self.assertEqual(self.read("x.tsv", "a\tb\n1\t2\n"), [(2, {"a": "1", "b": "2"})])
        self.expect(3, "1 cells, but the header has 2 columns", "x.csv", "a,b\n1,2\n3\n")
        self.expect(1, "names a column twice", "x.csv", "a,a\n1,2\n")
        self.expect(2, "not CSV: unexpected end of data", "x.csv", 'a\n"b\n')
        self.expect(2, "not UTF-8", "x.csv", b"a\n\xff\n")

    def test_tables_that_are_none(self):
        for name in ("x.parquet", "x.arrow"):
            self.expect(None, "not readable: ", name, "PAR1 no table")

    def test_unknown_kind(self):
        self.expect(None, "not a known kind of file", "x.xlsx", "PK\x03\x04")

    def table(self, **columns):
        import pyarrow
        import pyarrow.parquet

        path = os.path.join(self.folder, "x.parquet")
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return read_rows(files.kind_of(path).read(path))

    def refused(self, line, words, **columns):
        with self.assertRaises(PrepareError) as caught:
            self.table(**columns)
        self.assertEqual(caught.exception.line, line)
        self.assertIn(words, caught.exception.message)

    # Text as bytes is text; what is none is refused by row and column, and what no format reads is
    # not looked at: neither bytes nor times that Python cannot hold.
    def test_columns_that_are_no_text(self):
        import pyarrow

        good, bad = b"the c\xc3\xa4t", b"\xff\xd8"
        times = pyarrow.array([1, 2], pyarrow.timestamp("ns"))
        rows = self.table(text=[good, good], image=[bad, bad], at=times)
        self.assertEqual([row.completion for row in rows], ["the cät"] * 2)
        self.assertEqual(rows[0].unused, ("at", "image"))
        self.refused(2, '"text" is not UTF-8: invalid start byte at byte 0', text=[good, bad])
        offsets = pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0")
        text = pyarrow.StringArray.from_buffers(1, offsets, pyarrow.py_buffer(bad))
        self.refused(1, '"text" is not UTF-8', text=text)
        self.refused(1, '"text" is not readable', text=times)

    # A null is no column that is missing: the format stays, and the message names the field.
    def test_nulls_of_a_table(self):
        for nulls, line in (([None, "b"], 1), (["b", None], 2)):
            words = '"completion" must be a string, this is null'
            self.refused(line, words, prompt=["a", "a"], completion=nulls, text=["c", "c"])

    # Rows of 1 MB do not come a thousand at a time.
    def test_batches_of_a_table_by_size(self):
        from files import parquet

        self.table(text=["a" * (1 << 20) + str(i) for i in range(40)])
        with parquet._opened(os.path.join(self.folder, "x.parquet")) as file:
            self.assertLess(parquet._batch_rows(file.metadata), 20)

    # Known by what it holds, whatever it is called.
    def test_parquet_by_its_beginning(self):
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_pylist([{"a": {"b": 1}}, {"a": {"c": "x"}}])
        pyarrow.parquet.write_table(table, os.path.join(self.folder, "x"))
        path = os.path.join(self.folder, "x")
        records = list(files.kind_of(path).read(path))
        # Columns of a struct that a row has not are not there.
        self.assertEqual([r.values for r in records], [{"a": {"b": 1}}, {"a": {"c": "x"}}])
        self.assertEqual([r.line for r in records], [1, 2])


if __name__ == "__main__":
    sys.exit(unittest.main())
