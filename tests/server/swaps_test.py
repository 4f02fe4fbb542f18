"""What lies under a job's paths becomes something else after the submit, or never ends: each such
job ends by itself, with a reason, and neither the daemon nor anybody else's job notices.

The worker trains nothing (tests/server/testing/fake_worker.cc); snug-prepare is the real one.
"""

import ctypes
import json
import os
import random
import shutil
import threading
import time
import unittest

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon
from tests.server.tls_test import Site
from tokenizers import Tokenizer, models, pre_tokenizers

LIMIT_S = 10
SETTINGS = f"prepare: {{timeout_seconds: {LIMIT_S}}}\n"
# As many turns as the sandbox of templates lets a range have, in each of two loops.
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def write_tokenizer(model):
    """Of a few words; the model that jobs name has none."""
    words = {word: i for i, word in enumerate(["<unk>", "</s>", "a", "cat", "sat"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')


def write_rows(path, rows):
    tokens = ([3 + i % 60] * 9 for i in range(rows))
    lines = (json.dumps({"input_ids": row, "labels": row}) for row in tokens)
    path.write_text("\n".join(lines) + "\n")


class Endless:
    """Jobs of a FakeDaemon whose template never ends. Two of them hold all that prepares."""

    def __init__(self, daemon):
        self.daemon = daemon
        write_tokenizer(daemon.jobs / "model")
        self.file = daemon.jobs / "chat.yaml"
        self.file.write_text(f"model: ./model\nmethod: lora\nchat_template: '{ENDLESS}'\n")

    def dataset(self, name):
        path = self.daemon.jobs / f"{name}.jsonl"
        chat = [{"role": "user", "content": "a cat"}, {"role": "assistant", "content": "sat"}]
        path.write_text(json.dumps({"messages": chat}) + "\n")
        return f"dataset={path}"

    def submit(self, name):
        words = ("--no-check", self.dataset(name), "training.max_steps=1")
        return self.daemon.submit(self.file, *words)

    def hold_all(self):
        """Submits two and waits until both are being prepared; their ids."""
        names = [self.submit(name) for name in ("one", "two")]
        wait_for(lambda: len(self.preparing()) == 2, "both to be prepared")
        return names

    def preparing(self):
        found = []
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            state = os.fsencode(self.daemon.state)
            script = any(word.endswith(b"snug_prepare.py") for word in words)
            if script and any(state in word for word in words):
                found.append(entry)
        return found


class SwapsTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon(settings=SETTINGS)
        self.addCleanup(self.daemon.close)
        self.endless = Endless(self.daemon)

    def failed(self, name):
        """The error of a job that has to end so."""
        return self.daemon.wait_state(name, "FAILED")["error"]

    # Its neighbour is prepared meanwhile, or after it.
    def test_a_template_that_never_ends(self):
        begin = time.monotonic()
        name = self.endless.submit("one")
        neighbour = self.daemon.submit_script("steps=2")
        error = self.failed(name)
        self.assertEqual((error["reason"], error["field"]), ("PREPARE_LIMIT", "dataset"))
        self.assertIn("chat template", error["message"])
        self.assertLess(time.monotonic() - begin, LIMIT_S + 60)
        self.daemon.wait_state(neighbour, "SUCCEEDED")
        self.assertEqual(self.endless.preparing(), [])
        self.assertIsNone(self.daemon.process.poll())

    def test_a_template_that_never_ends_in_checks_and_previews(self):
        path = self.endless.dataset("one").removeprefix("dataset=")
        with open(self.endless.file, "a", encoding="utf-8") as file:
            file.write(f"dataset: {path}\n")
        for command in (["plan"], ["datasets", "preview"], ["submit"]):  # All read the first row.
            begin = time.monotonic()
            done = self.daemon.run(*command, self.endless.file, code=None)
            self.assertLess(time.monotonic() - begin, LIMIT_S + 60)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("PREPARE_LIMIT", done.stderr)
            self.assertIn(f"more than {LIMIT_S}s", done.stderr)
        self.assertIsNone(self.daemon.process.poll())
        self.daemon.wait_state(self.daemon.submit_script("steps=2"), "SUCCEEDED")

    def test_a_fifo_swapped_in_after_the_submit(self):
        held = self.endless.hold_all()
        waits = []
        for place in ("train.jsonl", "model/config.json"):
            folder = self.daemon.jobs / f"swap-{len(waits)}"
            folder.mkdir()
            shutil.copytree(self.daemon.jobs / "model", folder / "model")
            write_rows(folder / "train.jsonl", 7)
            data = [f"model={folder / 'model'}", f"dataset={folder / 'train.jsonl'}"]
            name = self.daemon.submit_script("steps=1", *data)
            self.assertEqual(self.daemon.job(name)["state"], "PREPARING")
            (folder / place).unlink()
            os.mkfifo(folder / place)
            waits.append(name)
        reasons = [self.failed(name)["reason"] for name in waits]
        self.assertEqual(reasons, ["BAD_DATASET", "BAD_MODEL_CONFIG"])
        for name in held:
            self.assertEqual(self.failed(name)["reason"], "PREPARE_LIMIT")
        self.daemon.wait_state(self.daemon.submit_script("steps=2"), "SUCCEEDED")


class PrepareMemoryTest(unittest.TestCase):
    """As many datasets are prepared at a time as `prepare.total_memory` has room for."""

    def test_the_budget_says_how_many(self):
        limits = f"timeout_seconds: {LIMIT_S}, memory: 2GiB, total_memory: 8GiB"
        daemon = FakeDaemon(settings=f"prepare: {{{limits}}}\n")
        self.addCleanup(daemon.close)
        endless = Endless(daemon)
        names = [endless.submit(str(number)) for number in range(6)]
        wait_for(lambda: len(endless.preparing()) == 4, "four to be prepared")
        most = 0
        while daemon.job(names[-1])["state"] == "PREPARING":
            most = max(most, len(endless.preparing()))
            time.sleep(0.1)
        self.assertEqual(most, 4)
        for name in names:
            self.assertEqual(daemon.wait_state(name, "FAILED")["error"]["reason"], "PREPARE_LIMIT")


class BracketsTest(unittest.TestCase):
    """A tokenizer.json that is nested without end."""

    def setUp(self):
        self.daemon = FakeDaemon(settings=SETTINGS)
        self.addCleanup(self.daemon.close)
        write_tokenizer(self.daemon.jobs / "model")
        self.rows = self.daemon.jobs / "texts.jsonl"
        self.rows.write_text('{"text": "a cat sat"}\n' * 8)

    def swap(self):
        path = self.daemon.jobs / "model/tokenizer.json"
        path.with_suffix(".new").write_bytes(b"[" * (200 << 20))
        path.with_suffix(".new").rename(path)

    def test_neither_a_check_nor_a_job_harms_the_daemon(self):
        words = ("--no-check", f"dataset={self.rows}", "training.max_steps=1")
        file = self.daemon.job_file()
        held = Endless(self.daemon).hold_all()
        swapped = self.daemon.submit(file, *words)
        self.swap()
        done = self.daemon.run("submit", file, f"dataset={self.rows}", code=1)
        self.assertIn("tokenizer.json", done.stderr)
        error = self.daemon.wait_state(swapped, "FAILED")["error"]
        self.assertIn("tokenizer.json", error["message"])
        for name in held:
            self.daemon.wait_state(name, "FAILED")
        self.assertIsNone(self.daemon.process.poll())
        self.daemon.kill()
        self.daemon.start()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (self.daemon.jobs / "model" / name).unlink()
        self.daemon.wait_state(self.daemon.submit_script("steps=2"), "SUCCEEDED")


class TenantSwapsTest(unittest.TestCase):
    SHARDS = 70  # More than the daemon keeps open of a dataset.

    def setUp(self):
        self.site = Site(settings=SETTINGS)
        self.addCleanup(self.site.close)
        self.user = self.site.token("blue", "user")
        self.data, self.secret = self.site.folder / "blue/data", self.site.folder / "secret"
        for folder, rows in ((self.data, 20), (self.secret, 33)):
            (folder / "shards").mkdir(parents=True)
            write_rows(folder / "rows.jsonl", rows)
            for shard in range(self.SHARDS):
                write_rows(folder / f"shards/{shard}.jsonl", rows)

    def submit(self, number, dataset="./data/rows.jsonl"):
        """A job on its tenant's rows that nothing has been prepared for; its id, or the error."""
        training = {"max_steps": 1, "max_seq_length": 16 + number}
        file = self.site.job("blue", "steps=1", dataset=dataset, training=training)
        words = ["submit", "--no-check", file, "--output", "json"]
        done = self.site.run(*words, token=self.user)
        said = json.loads(done.stdout if done.returncode == 0 else done.stderr)
        return said["id"] if done.returncode == 0 else said["error"]

    def ended(self, name):
        def job():
            found = self.site.ok("get", name, token=self.user)
            return found if found["state"] in ("SUCCEEDED", "FAILED") else None

        return wait_for(job, f"{name} to end")

    # F-48
    def test_a_folder_swapped_for_a_link_out_of_the_roots(self):
        held = Endless(self.site.daemon).hold_all()
        name = self.submit(0)
        self.data.rename(self.site.folder / "away")
        self.data.symlink_to(self.secret)
        job = self.ended(name)
        self.assertEqual(job["state"], "FAILED", job)
        self.assertEqual(job["error"]["field"], "dataset")
        self.assertEqual(job["error"]["reason"], "BAD_DATASET")
        self.assertNotIn(str(self.secret), json.dumps(job))
        for one in held:
            self.site.daemon.wait_state(one, "FAILED")

    # F-48
    def test_a_tokenizer_swapped_for_a_link_out_of_the_roots(self):
        model = self.site.folder / "blue/model"
        write_tokenizer(model)
        write_tokenizer(self.secret)
        held = Endless(self.site.daemon).hold_all()
        name = self.submit(0)
        (model / "tokenizer.json").unlink()
        (model / "tokenizer.json").symlink_to(self.secret / "tokenizer.json")
        job = self.ended(name)
        self.assertEqual(job["state"], "FAILED", job)
        self.assertEqual(job["error"]["field"], "model")
        self.assertNotIn(str(self.secret), json.dumps(job))
        for one in held:
            self.site.daemon.wait_state(one, "FAILED")

    # F-48: whenever it is looked at, it is one of the two.
    def test_a_folder_swapped_again_and_again(self):
        self.swap_again_and_again("./data/rows.jsonl", 20)

    # F-48
    def test_a_folder_of_many_files_swapped_again_and_again(self):
        self.swap_again_and_again("./data/shards", 20 * self.SHARDS)

    def swap_again_and_again(self, dataset, rows):
        link, over = self.site.folder / "blue/link", threading.Event()
        link.symlink_to(self.secret)
        renameat2 = ctypes.CDLL(None).renameat2

        def swap():
            both = os.fsencode(self.data), os.fsencode(link)
            while not over.is_set():
                renameat2(AT_FDCWD, both[0], AT_FDCWD, both[1], RENAME_EXCHANGE)
                time.sleep(random.choice((0, 0.01, 0.3)))

        swapper = threading.Thread(target=swap)
        swapper.start()
        self.addCleanup(swapper.join)
        self.addCleanup(over.set)
        seen = set()
        for number in range(12):
            job = self.submit(number, dataset)
            if isinstance(job, str):
                job = self.ended(job)
            error = job.get("error") or job
            seen.add(job.get("state", "refused"))
            if job.get("state") == "SUCCEEDED":
                self.assertEqual(int(job["dataset"]["rows"]), rows)
            else:
                self.assertIn(error["reason"], ("BAD_DATASET", "INPUT_CHANGED", "BAD_FIELD"))
                self.assertNotIn(str(self.secret), json.dumps(job))
            write_rows(self.secret / "rows.jsonl", 33)
        self.assertNotEqual(seen, {"SUCCEEDED"})  # Else nothing was ever swapped in time.
        self.assertIsNone(self.site.daemon.process.poll())


if __name__ == "__main__":
    unittest.main()
