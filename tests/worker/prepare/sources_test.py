"""Data as it lies: compressed files, folders of shards, what the datasets library saves and caches,
columns of other names, several datasets in one; and rows that are bad, all of them counted."""

import gzip
import json
import os
import shutil
import sys
import unittest

import pyarrow
import pyarrow.parquet
from testbed import PrepareTest

QA = [{"question": f"what is {i}?", "answer": f" {i} is a cat"} for i in range(3)]
PC = [{"prompt": row["question"], "completion": row["answer"]} for row in QA]


def text(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


class SourcesTest(PrepareTest):
    def write(self, name, data):
        path = self.path(*name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else json.dumps(data).encode())
        return path

    def write_arrow(self, name, rows):
        table = pyarrow.Table.from_pylist(rows)
        path = self.write(name, b"")
        with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as to:
            to.write_table(table)

    def write_parquet(self, name, rows):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), self.write(name, b""))

    def run_sources(self, *sources, options=()):
        """The run of a list of sources, each an object of Source's fields."""
        shutil.rmtree(self.path("out"), ignore_errors=True)
        with open(self.path("sources.json"), "w", encoding="utf-8") as file:
            json.dump(sources, file)
        self.dataset = ("--sources", self.path("sources.json"))
        return self.prepare(*options)

    def texts(self, *sources, options=()):
        """What is trained and what is not, row by row, as text."""
        run = self.run_sources(*sources, options=options)
        self.assertEqual(run.returncode, 0, run.stderr)
        tensors, self.summary = self.prepared()
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(os.path.join(self.model, "tokenizer.json"))
        offsets = tensors["row_offsets"].tolist()
        rows = (tensors["input_ids"][a:b].tolist() for a, b in zip(offsets, offsets[1:]))
        self.tensors = tensors
        return [tokenizer.decode(ids, skip_special_tokens=True) for ids in rows]

    def refused(self, *sources, options=()):
        run = self.run_sources(*sources, options=options)
        self.assertEqual(run.returncode, 2, run.stderr)
        return json.loads(run.stderr.splitlines()[-1])

    def all_of(self, rows=PC):
        return [row["prompt"] + row["completion"] for row in rows]


class CompressionTest(SourcesTest):
    def test_gzip_and_zstandard(self):
        whole = text(PC)
        files = [
            self.write("a.jsonl.gz", gzip.compress(whole[:40]) + gzip.compress(whole[40:])),
            self.write("b.jsonl.zst", pyarrow.compress(whole, codec="zstd", asbytes=True)),
            self.write("c.json.gz", gzip.compress(json.dumps(PC).encode())),
            self.write("d.csv.gz", gzip.compress(b"prompt,completion\n" + b"".join(
                f"{row['prompt']},{row['completion']}\n".encode() for row in PC))),
            self.write("packed", gzip.compress(whole)),  # Known by its first bytes alone.
        ]
        for path in files:
            with self.subTest(path):
                self.assertEqual(self.texts({"paths": [path]}), self.all_of())

    def test_what_is_cut_off_is_refused(self):
        for codec, packed in (
            ("gz", gzip.compress(text(PC * 50))),
            ("zst", pyarrow.compress(text(PC * 50), codec="zstd", asbytes=True)),
        ):
            with self.subTest(codec):
                path = self.write(f"x.jsonl.{codec}", packed[: len(packed) // 2])
                error = self.refused({"paths": [path]})
                self.assertEqual((error["reason"], error["file"]), ("BAD_DATASET", path))
                self.assertIn("cannot be decompressed", error["message"])

    def test_noise_behind_the_mark(self):
        path = self.write("x.jsonl.gz", b"\x1f\x8b" + b"noise" * 9)
        self.assertIn("cannot be decompressed", self.refused({"paths": [path]})["message"])


class FolderTest(SourcesTest):
    def expect(self, split, rows, **more):
        source = {"paths": [self.path("data")], "split": split, **more}
        self.assertEqual(self.texts(source), self.all_of(rows))

    def test_shards_in_the_order_of_their_names(self):
        self.write("data/part-2.jsonl", text(PC[1:]))
        self.write("data/part-1.jsonl.gz", gzip.compress(text(PC[:1])))
        self.write("data/.hidden.jsonl", b"noise")
        self.write("data/notes.md", b"noise")
        self.expect("", PC)
        # Lines are those of each file, and the files are told apart.
        self.assertEqual(self.tensors["source_line"].tolist(), [1, 1, 2])
        self.assertEqual(self.tensors["source_file"].tolist(), [0, 1, 1])
        with open(self.path("out", "dataset.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["files"], ["part-1.jsonl.gz", "part-2.jsonl"])

    def test_splits_by_the_names_of_files(self):
        self.write("data/train.jsonl", text(PC[:1]))
        self.write("data/sub/my_dev.jsonl", text(PC[1:2]))
        self.write_parquet("data/test-2.parquet", PC[2:])
        self.expect("", PC[:1])
        self.expect("validation", PC[1:2])
        self.expect("test", PC[2:])
        error = self.refused({"paths": [self.path("data")], "split": "exam"})
        self.assertEqual(error["field"], "dataset_split")
        self.assertIn('no split "exam"; name one of: test, train, validation', error["message"])

    def test_shards_as_the_hub_has_them(self):
        self.write_parquet("data/data/train_sft-00000-of-00002.parquet", PC[:1])
        self.write_parquet("data/data/train_sft-00001-of-00002.parquet", PC[1:2])
        self.write_parquet("data/data/test_sft-00000-of-00001.parquet", PC[2:])
        self.expect("train_sft", PC[:2])
        error = self.refused({"paths": [self.path("data")]})
        self.assertIn("several splits; name one of: test_sft, train_sft", error["message"])

    def test_a_card_that_lists_files(self):
        card = (
            "---\nlicense: mit\nconfigs:\n- config_name: plain\n  data_files:\n"
            "  - split: train\n    path: \"one/*.jsonl\"\n  - {split: test, path: two/x.jsonl}\n"
            "- config_name: other\n  data_files: two/*\n---\n# rows\n"
        )
        self.write("data/README.md", card.encode())
        self.write("data/one/x.jsonl", text(PC[:2]))
        self.write("data/two/x.jsonl", text(PC[2:]))
        self.expect("", PC[:2], config="plain")
        self.expect("test", PC[2:], config="plain")
        self.expect("", PC[2:], config="other")
        error = self.refused({"paths": [self.path("data")]})
        self.assertEqual(error["field"], "dataset_config")
        self.assertIn("name one of: plain, other", error["message"])

    def test_save_to_disk(self):
        for split, rows in (("train", PC[:2]), ("test", PC[2:])):
            names = [f"data-{i:05}-of-{len(rows):05}.arrow" for i in range(len(rows))]
            for name, row in zip(names, rows):
                self.write_arrow(f"data/{split}/{name}", [row])
            files = [{"filename": name} for name in names]
            self.write(f"data/{split}/state.json", {"_data_files": files})
            self.write(f"data/{split}/dataset_info.json", {})
        self.expect("", PC[:2], paths=[self.path("data", "train")])
        self.write("data/dataset_dict.json", {"splits": ["train", "test"]})
        self.expect("", PC[:2])
        self.expect("test", PC[2:])

    def test_cache_of_the_datasets_library(self):
        self.write("data/dataset_info.json", {"splits": {}})
        self.write_arrow("data/rows-train-00000-of-00002.arrow", PC[:1])
        self.write_arrow("data/rows-train-00001-of-00002.arrow", PC[1:2])
        self.write_arrow("data/rows-test.arrow", PC[2:])
        self.write_arrow("data/cache-0123456789abcdef.arrow", PC)  # Of a map().
        self.expect("", PC[:2])
        self.expect("test", PC[2:])

    def test_no_data(self):
        self.write("data/README.md", b"nothing")
        error = self.refused({"paths": [self.path("data")]})
        self.assertIn("no file that can be trained on (.jsonl", error["message"])


class ColumnsTest(SourcesTest):
    COLUMNS = {"prompt": "question", "completion": "answer"}

    def test_columns_of_other_names(self):
        self.write_parquet("rows.parquet", [{**row, "prompt": "no", "id": 7} for row in QA])
        for path in (self.write("rows.jsonl", text(QA)), self.path("rows.parquet")):
            source = {"paths": [path], "columns": self.COLUMNS}
            self.assertEqual(self.texts(source), self.all_of())
        self.assertIn("keys that are not used: id", self.summary["warnings"])

    def test_a_column_that_is_not_there(self):
        path = self.write("rows.jsonl", text(QA))
        error = self.refused({"paths": [path], "columns": {**self.COLUMNS, "prompt": "qestion"}})
        self.assertEqual((error["field"], error["line"]), ("columns", 1))
        self.assertEqual(
            error["message"],
            'no column "qestion"; did you mean "question"? the first row has: answer, question',
        )

    def test_a_field_that_no_format_has(self):
        path = self.write("rows.jsonl", text(QA))
        error = self.refused({"paths": [path], "columns": {"promt": "question"}})
        self.assertIn('"promt" is no field of a format; did you mean "prompt"?', error["message"])

    # The first row has it: it is the other that is bad.
    def test_a_row_without_the_column(self):
        path = self.write("rows.jsonl", text([*QA, {"question": "what?"}]))
        error = self.refused({"paths": [path], "columns": self.COLUMNS})
        self.assertEqual((error["field"], error["line"]), ("dataset", 4))
        self.assertIn('no column "answer"', error["message"])


class MixTest(SourcesTest):
    def test_weights_caps_and_formats(self):
        one = self.write("one.jsonl", text(PC))
        two = self.write("two.jsonl", text([{"text": f"on the mat {i}"} for i in range(5)]))
        texts = self.texts(
            {"paths": [one], "weight": 1.5, "max_samples": 2},
            {"paths": [two], "weight": 0.4},
        )
        rows = self.all_of()
        self.assertEqual(texts, [rows[0], rows[1], rows[1], "on the mat 2", "on the mat 4"])
        self.assertEqual(self.summary["format"], "prompt_completion, text")
        self.assertEqual(self.summary["rows"], 5)
        self.assertEqual(self.summary["source_rows"], 4)
        self.assertEqual(self.summary["duplicate_rows"], 0)  # The mix repeats, the data does not.
        self.assertEqual(self.summary["tokens"], len(self.tensors["input_ids"]))

    # What is held out is evaluated once, and never trained.
    def test_held_out_rows_of_a_mix(self):
        rows = [{"input_ids": [i, i], "labels": [i, i]} for i in range(20)]
        path = self.write("rows.jsonl", text(rows))
        split = ("--eval-split", "0.25", "--eval-output", self.path("eval"))
        run = self.run_sources({"paths": [path], "weight": 2}, options=split)
        self.assertEqual(run.returncode, 0, run.stderr)
        train, _ = self.prepared()
        held_out, _ = self.prepared(folder="eval")
        trained, evaluated = set(train["input_ids"]), set(held_out["input_ids"])
        self.assertEqual((len(train["input_ids"]), len(held_out["input_ids"])), (15 * 4, 5 * 2))
        self.assertFalse(trained & evaluated)


class BadRowsTest(SourcesTest):
    # 15 rows are bad in two ways, among good ones.
    def test_all_are_counted_and_ten_are_named(self):
        rows = [text(PC[:1]), b"{\n", b'{"prompt": "a"}\n'] * 6
        path = self.write("rows.jsonl", b"".join(rows[:-2]) + b"[]\n" * 5)
        error = self.refused({"paths": [path]})
        lines = error["message"].split("\n  ")
        self.assertEqual(lines[0], "15 of 21 rows are bad; the first 10")
        self.assertEqual(len(lines), 11)
        self.assertTrue(lines[1].startswith(f"{path}:2: not JSON: "))
        self.assertTrue(lines[2].startswith(f"{path}:3: "), lines[2])
        self.assertEqual((error["file"], error["line"]), (path, 2))

    def test_one_is_said_by_itself(self):
        path = self.write("rows.jsonl", text(PC) + b"{\n")
        error = self.refused({"paths": [path]})
        self.assertEqual(error["line"], 4)
        self.assertTrue(error["message"].startswith("not JSON"))


class ProcessesTest(SourcesTest):
    """Several processes make what one makes, in the same order."""

    ROWS = 2500

    def rows(self):
        for i in range(self.ROWS):
            words = f"the cat {i % 700} sat on"
            user = {"role": "user", "content": words}
            yield {"messages": [user, {"role": "assistant", "content": words[::-1]}]}

    def both(self, path, *options):
        """[(tensors, summary, stderr)] of one process, and of as many as there are cores."""
        template = "{% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}"
        found = []
        for memory in (1 << 30, 4 << 30):  # A process is worth a gibibyte.
            limits = ("--memory-bytes", str(memory), "--chat-template", template, *options)
            run = self.run_sources({"paths": [path]}, options=limits)
            found.append((run, self.prepared() if run.returncode == 0 else None))
        return found

    def test_same_rows_and_counts(self):
        path = self.write("rows.jsonl", text(self.rows()))
        (one, (tensors, summary)), (_, (others, other_summary)) = self.both(path)
        self.assertEqual(summary, other_summary)
        self.assertEqual(summary["rows"], self.ROWS)
        self.assertEqual(summary["duplicate_rows"], self.ROWS - 700)
        for name, tensor in tensors.items():
            self.assertEqual(tensor.tolist(), others[name].tolist(), name)
        self.assertIn(f"progress: {self.ROWS} of {self.ROWS} rows", one.stderr)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_all_processes_have_one_memory_limit(self):
        path = self.write("rows.jsonl", text(self.rows()))
        # Some rows take more memory than one of several processes has, or than all have.
        template = (
            "{{% if 'cat 600 ' in messages[0].content %}}{{% set x = 'x' * {size} %}}{{% endif %}}"
            "{{% for m in messages %}}{{{{ m.role + m.content + eos_token }}}}{{% endfor %}}"
        )
        runs = {}
        for size in (1, 700_000_000, 5_000_000_000):
            chat = ("--chat-template", template.format(size=size))
            options = ("--memory-bytes", str(4 << 30), *chat)
            runs[size] = self.run_sources({"paths": [path]}, options=options)
            if size == 1:
                self.assertEqual(runs[size].returncode, 0, runs[size].stderr)
                expected = self.prepared()
            elif size == 700_000_000:
                found = self.prepared()
        for name, tensor in expected[0].items():
            self.assertEqual(tensor.tolist(), found[0][name].tolist(), name)
        self.assertEqual(expected[1], found[1])
        self.assertNotIn("one process goes on", runs[1].stderr)
        self.assertIn("one process goes on", runs[700_000_000].stderr)
        error = json.loads(runs[5_000_000_000].stderr.splitlines()[-1])
        self.assertEqual(error["reason"], "PREPARE_LIMIT")

    def test_same_errors(self):
        rows = list(self.rows())
        for bad in (5, 300, 2400):
            rows[bad] = {"messages": []}
        path = self.write("rows.jsonl", text(rows))
        errors = [json.loads(run.stderr.splitlines()[-1]) for run, _ in self.both(path)]
        self.assertEqual(errors[0], errors[1])
        self.assertTrue(errors[0]["message"].startswith("3 of 2500 rows are bad\n"))


if __name__ == "__main__":
    sys.exit(unittest.main())
