"""Files that the daemon hands on as descriptors, and what lies in a file's place."""

import contextlib
import json
import os
import subprocess
import sys
import time
import unittest

from tests.worker.prepare.testbed import PROGRAM, PrepareTest

SECRET = {"text": "what is a cat? " * 7}


class GivenTest(PrepareTest):
    def run_with(self, paths, given, *options):
        """A run whose --sources names `paths` and hands on those of `given`, {path: file}; its
        files are under other names by the time that it begins."""
        with contextlib.ExitStack() as stack:
            files = {path: stack.enter_context(open(path, "rb")) for path in given}
            for path, instead in given.items():
                os.rename(path, path + ".moved")
                if instead:
                    os.rename(instead, path)
            descriptors = {path: file.fileno() for path, file in files.items()}
            sources = self.path("sources.json")
            with open(sources, "w", encoding="utf-8") as file:
                json.dump([{"paths": paths, "descriptors": descriptors}], file)
            command = [sys.executable, PROGRAM, "--model", self.model, "--sources", sources]
            command += ["--output", self.path("out"), "--max-seq-length", "64", *options]
            numbers = tuple(descriptors.values())
            return subprocess.run(
                command, capture_output=True, text=True, timeout=100, pass_fds=numbers
            )

    def write(self, name, rows):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return path

    def rows_of(self, paths, given, *options):
        run = self.run_with(paths, given, *options)
        self.assertEqual(run.returncode, 0, run.stderr)
        return self.prepared()[1]["rows"]

    # What is there by now is another file, or none.
    def test_the_file_that_was_opened_is_read(self):
        train = self.write("train.jsonl", [{"text": "a cat"}] * 3)
        secret = self.write("secret.jsonl", [SECRET] * 5)
        self.assertEqual(self.rows_of([train], {train: secret}), 3)

    def test_a_file_that_is_gone_is_read(self):
        train = self.write("train.jsonl", [{"text": "a cat"}] * 3)
        self.assertEqual(self.rows_of([train], {train: None}), 3)

    # Each of several processes reads it from its beginning, at its own pace.
    def test_several_processes_read_one_descriptor(self):
        train = self.write("train.jsonl", [{"text": f"a cat {i}"} for i in range(4000)])
        self.assertEqual(self.rows_of([train], {train: None}), 4000)
        tensors = self.prepared()[0]
        self.assertEqual(len(tensors["row_offsets"]), 4001)

    def test_tables_and_what_is_compressed(self):
        import gzip

        import pyarrow
        import pyarrow.parquet

        packed = self.path("rows.jsonl.gz")
        with gzip.open(packed, "wb") as file:
            file.write(b'{"text": "a cat"}\n' * 2)
        table = self.path("rows.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"text": ["a dog", "on the mat"]}), table)
        stream = self.path("rows.arrow")
        with pyarrow.OSFile(stream, "wb") as sink:
            rows = pyarrow.table({"text": ["a dog"]})
            with pyarrow.ipc.new_file(sink, rows.schema) as file:
                file.write_table(rows)
        paths = [packed, table, stream]
        self.assertEqual(self.rows_of(paths, dict.fromkeys(paths)), 5)

    def test_a_models_files_that_are_given_are_all_it_has(self):
        self.write_rows({"messages": [{"role": "user", "content": "a cat"}]})
        names = ("config.json", "tokenizer.json", "tokenizer_config.json")
        with contextlib.ExitStack() as stack:
            files = {}
            for name in names:
                path = os.path.join(self.model, name)
                files[name] = stack.enter_context(open(path, "rb"))
                with open(path + ".other", "w", encoding="utf-8") as file:
                    file.write("{}")
                os.rename(path + ".other", path)
            os.mkdir(os.path.join(self.model, "additional_chat_templates"))
            for name in ("chat_template.jinja", "additional_chat_templates/other.jinja"):
                with open(os.path.join(self.model, name), "w", encoding="utf-8") as file:
                    file.write("another's")
            numbers = {name: file.fileno() for name, file in files.items()}
            given = ("--model-files", json.dumps(numbers))
            for self.model in (self.model, self.model + os.sep):
                error = self.error(*given, pass_fds=tuple(numbers.values()))
                self.assertIn("chat template", error["message"])

    # A writer never comes: nobody waits for one.
    def test_a_fifo_in_the_place_of_a_file(self):
        os.mkfifo(self.path("train.jsonl"))
        begin = time.monotonic()
        error = self.error()
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(error["reason"], "BAD_DATASET")
        self.assertIn("it is no file", error["message"])

    def test_a_fifo_in_the_place_of_a_models_file(self):
        self.write_rows({"text": "a cat"})
        os.remove(os.path.join(self.model, "tokenizer_config.json"))
        os.mkfifo(os.path.join(self.model, "tokenizer_config.json"))
        error = self.error()
        self.assertEqual(error["reason"], "BAD_MODEL")
        self.assertIn("it is no file", error["message"])


if __name__ == "__main__":
    unittest.main()
