"""A model and a dataset by their names on the hub, from a cache that huggingface_hub itself reads:
links to blobs, a branch, a tag. What is not there is downloaded by a command that exists."""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import unittest
from unittest import mock

from huggingface_hub import snapshot_download
from peft import AutoPeftModelForCausalLM, PeftConfig

from tests.harness import datasets, jobs
from tests.harness.daemon import Daemon
from tests.harness.long_set import LONG

COMMIT = "0123456789abcdef0123456789abcdef01234567"
JOB = """
model: org/tiny@{revision}
dataset: org/rows
method: lora
training: {{max_steps: 1, per_device_train_batch_size: 2, max_seq_length: 128}}
"""


def fill_cache(cache, name, files, kind="model"):
    """A repository as a download leaves it; gives its snapshot."""
    repository = cache / f"{kind}s--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (repository / "blobs", repository / "refs", snapshot):
        folder.mkdir(parents=True)
    for revision in ("main", "v2"):
        (repository / "refs" / revision).write_text(COMMIT)
    for file in files:
        blob = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


class HubCacheTest(unittest.TestCase):
    """One cache, named by the user's environment as huggingface_hub has it."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.folder = self.daemon.folder
        self.cache = self.folder / "hub"
        self.enterContext(mock.patch.dict(os.environ, HF_HUB_CACHE=str(self.cache)))

    def fill(self):
        """The snapshots of a model and of a dataset."""
        model = jobs.write_model_folder(self.folder / "model")
        rows = datasets.write_pairs(datasets.sentences(1, 16), self.folder / "train.jsonl")
        return (
            fill_cache(self.cache, "org/tiny", list(model.iterdir())),
            fill_cache(self.cache, "org/rows", [rows], "dataset"),
        )

    def write(self, revision):
        file = self.folder / "job.yaml"
        file.write_text(JOB.format(revision=revision))
        return file

    def test_a_job_trains_on_the_snapshot_that_huggingface_hub_finds(self):
        model, rows = self.fill()
        for revision in ("main", "v2", COMMIT) if LONG else ("v2",):
            with self.subTest(revision):
                offline = {"cache_dir": self.cache, "local_files_only": True}
                found = snapshot_download("org/tiny", revision=revision, **offline)
                self.assertEqual(pathlib.Path(found), model)
                job = self.daemon.job(self.daemon.submit(self.write(revision)))
                self.assertEqual(job["spec"]["model"], found)
                self.assertEqual(job["spec"]["dataset"], str(rows))
                self.daemon.wait_state(job["id"], "SUCCEEDED")
                output = self.folder / f"output-{revision}"
                self.daemon.run("download", job["id"], output)
                self.check_base(output)

    def check_base(self, output):
        """Whoever has the adapter finds its base by the hub's name, and at the same commit."""
        config = PeftConfig.from_pretrained(output)
        self.assertEqual(config.base_model_name_or_path, "org/tiny")
        self.assertEqual(config.revision, COMMIT)
        self.assertIn("\nbase_model: org/tiny\n", (output / "README.md").read_text())
        AutoPeftModelForCausalLM.from_pretrained(
            output, cache_dir=self.cache, local_files_only=True
        )

    def test_the_command_that_is_named_exists(self):
        self.fill()
        for change in ("model=org/other", "model=org/tiny@v3", "dataset=org/none"):
            with self.subTest(change):
                done = self.daemon.run("submit", self.write("main"), change, code=None)
                self.assertNotEqual(done.returncode, 0)
                (command,) = re.findall(r"Download it: +hf (.*)", done.stderr)
                self.assertEqual(self.parsed(command), 0)
                self.assertNotEqual(self.parsed(f"{command} --no-such-option"), 0)

    def parsed(self, words):
        """The exit code of hf, which reads its options before it gives help."""
        hf = pathlib.Path(sys.executable).with_name("hf")
        line = [str(hf), *words.split(), "--help"]
        return subprocess.run(line, capture_output=True, check=False).returncode


if __name__ == "__main__":
    unittest.main()
