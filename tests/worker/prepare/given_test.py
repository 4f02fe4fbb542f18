"""Files that the daemon opens for snug-prepare, and what lies in a file's place."""

import errno
import gzip
import json
import os
import resource
import socket
import sys
import tempfile
import threading
import time
import unittest

from tests.worker.prepare.testbed import PrepareTest

SECRET = {"text": "what is a cat? " * 7}


def few_files():
    """Of this process, before it becomes another program."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


class Daemon:
    """Its side of server/data/file_server.h. `files`: what it opens, by path; a number in a file's
    place is the errno that it answers; None: it says nothing."""

    def __init__(self, files):
        self._files, self.asked = files, []
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._list = tempfile.TemporaryFile()
        self._list.write(b"".join(os.fsencode(path) + b"\0" for path in files))
        self._list.seek(0)
        self.pass_fds = self._theirs.fileno(), self._list.fileno()
        self.options = [f"--file-server={self.pass_fds[0]}", f"--file-list={self.pass_fds[1]}"]

    def __enter__(self):
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.hang_up()
        self._thread.join()
        self.close()

    def hang_up(self):
        self._ours.shutdown(socket.SHUT_RDWR)

    def close(self):
        for end in (self._ours, self._theirs, self._list):
            end.close()

    def _serve(self):
        while True:
            path, answers, _, _ = socket.recv_fds(self._ours, 4096, 1)
            if not path:
                return
            self.asked.append(os.fsdecode(path))
            found = self._files.get(self.asked[-1], errno.ENOENT)
            with socket.socket(fileno=answers[0]) as answer:
                if found is None:
                    continue
                if isinstance(found, int):
                    answer.send(found.to_bytes(4, sys.byteorder))
                else:
                    socket.send_fds(answer, [bytes(4)], [found.fileno()])


class GivenTest(PrepareTest):
    def opened(self, *paths):
        """{path: file}"""
        files = {path: open(path, "rb") for path in paths}
        for file in files.values():
            self.addCleanup(file.close)
        return files

    def model_files(self):
        return self.opened(*(os.path.join(self.model, name) for name in os.listdir(self.model)))

    def write(self, name, rows):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return path

    def rows_of(self, paths, instead=None):
        """Rows of a dataset of `paths`, all of which a daemon has opened; each has gone by the time
        that they are read, or has become the file `instead`."""
        files = {**self.model_files(), **self.opened(*paths)}
        for path in paths:
            os.rename(path, path + ".moved")
        if instead:
            os.rename(instead, paths[0])
        sources = self.path("sources.json")
        with open(sources, "w", encoding="utf-8") as file:
            json.dump([{"paths": paths}], file)
        self.dataset = ("--sources", sources)
        with Daemon(files) as daemon:
            run = self.prepare(*daemon.options, pass_fds=daemon.pass_fds)
        self.assertEqual(run.returncode, 0, run.stderr)
        return self.prepared()[1]["rows"]

    # What is there by now is another file, or none.
    def test_the_file_that_was_opened_is_read(self):
        train = self.write("train.jsonl", [{"text": "a cat"}] * 3)
        secret = self.write("secret.jsonl", [SECRET] * 5)
        self.assertEqual(self.rows_of([train], secret), 3)

    def test_a_file_that_is_gone_is_read(self):
        train = self.write("train.jsonl", [{"text": "a cat"}] * 3)
        self.assertEqual(self.rows_of([train]), 3)

    # Each of several processes reads it from its beginning, at its own pace.
    def test_several_processes_read_one_descriptor(self):
        train = self.write("train.jsonl", [{"text": f"a cat {i}"} for i in range(4000)])
        self.assertEqual(self.rows_of([train]), 4000)
        tensors = self.prepared()[0]
        self.assertEqual(len(tensors["row_offsets"]), 4001)

    def test_tables_and_what_is_compressed(self):
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
        self.assertEqual(self.rows_of(paths), 5)

    # More than a process may have open at once, in a folder that is no longer there.
    def test_a_folder_of_many_files(self):
        folder = self.path("rows")
        os.mkdir(folder)
        paths = [self.write(f"rows/{i:04}.jsonl", [{"text": f"a cat {i}"}] * 4) for i in range(300)]
        hidden = self.write("rows/.jsonl", [SECRET])
        self.write("rows/late.jsonl", [SECRET])  # Which the daemon has not listed.
        limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"
        run = f"{limit}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        self.dataset = ("--dataset", folder)
        with Daemon({**self.model_files(), **self.opened(*paths, hidden)}) as daemon:
            os.rename(folder, folder + ".moved")
            done = self.prepare(*daemon.options, pass_fds=daemon.pass_fds, preexec_fn=few_files)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.prepared()[1]["rows"], 1200)

    def test_what_the_daemon_does_not_open(self):
        train = self.write("train.jsonl", [{"text": "a cat"}])
        for refused, said in (
            (errno.EACCES, "Permission denied"),
            (errno.ESTALE, "Stale file handle"),
        ):
            with Daemon({**self.model_files(), train: refused}) as daemon:
                error = self.error(*daemon.options, pass_fds=daemon.pass_fds)
            self.assertEqual(error["reason"], "BAD_DATASET")
            self.assertIn(f"cannot open: {said}", error["message"])
        with Daemon(self.model_files()) as daemon:
            error = self.error(*daemon.options, pass_fds=daemon.pass_fds)
            self.assertNotIn(train, daemon.asked)
        self.assertIn("cannot open: No such file", error["message"])

    # Nobody waits for an answer that does not come.
    def test_a_daemon_that_is_gone(self):
        train = self.write("train.jsonl", [{"text": "a cat"}])
        with Daemon({**self.model_files(), train: None}) as daemon:
            error = self.error(*daemon.options, pass_fds=daemon.pass_fds)
        self.assertIn("cannot open: Input/output error", error["message"])
        daemon = Daemon(self.model_files())
        daemon.hang_up()
        error = self.error(*daemon.options, pass_fds=daemon.pass_fds)
        self.assertIn("Broken pipe", error["message"])
        daemon.close()

    def test_a_models_files_that_are_given_are_all_it_has(self):
        self.write_rows({"messages": [{"role": "user", "content": "a cat"}]})
        files = {**self.model_files(), **self.opened(self.path("train.jsonl"))}
        for path in files:
            if path.startswith(self.model):
                with open(path + ".other", "w", encoding="utf-8") as file:
                    file.write("{}")
                os.rename(path + ".other", path)
        os.mkdir(os.path.join(self.model, "additional_chat_templates"))
        for name in ("chat_template.jinja", "additional_chat_templates/other.jinja"):
            with open(os.path.join(self.model, name), "w", encoding="utf-8") as file:
                file.write("another's")
        for self.model in (self.model, self.model + os.sep):
            with Daemon(files) as daemon:
                error = self.error(*daemon.options, pass_fds=daemon.pass_fds)
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
