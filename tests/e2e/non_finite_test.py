"""A loss or gradient that is not finite stops the job at once, with the step and the lines of the
dataset's file that it came from."""

import dataclasses
import json
import re
import shutil
import unittest

from safetensors.numpy import load_file, save_file

from tests.harness import datasets, jobs
from tests.harness.daemon import ENDED, Daemon, metric_lines, wait_for

UNTRAINED, TRAINED = 3, 12  # Rows; snug-prepare leaves the first ones out.
POISON, CULPRIT_LINE = 7, 10  # A token whose embedding is infinite, on this line only.
# Its embedding is no row of the head.
SHAPE = dataclasses.replace(jobs.SHAPE, tied=False)


class NonFiniteTest(unittest.TestCase):
    """Jobs that fail at a known place."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def write(self, name):
        """A job folder whose dataset begins with rows of which nothing is trained."""
        file = jobs.full_folder(self.daemon.folder / name, shape=SHAPE)
        lengths = range(10, 10 + UNTRAINED + TRAINED)
        rows = datasets.random_rows(4, lengths, SHAPE.vocabulary)
        clean = [([max(i, POISON + 1) for i in ids], weights) for ids, weights in rows]
        untrained = [(ids, [0.0] * len(ids)) for ids, _ in clean[:UNTRAINED]]
        clean[CULPRIT_LINE - 1][0][2] = POISON
        datasets.write_pretokenized(untrained + clean[UNTRAINED:], file.parent / "train.jsonl")
        return file

    def failure(self, file, *changes, dataset="train.jsonl"):
        """The job once it has failed, its step as the message tells it, and the lines it names."""
        name = self.daemon.submit(file, *changes)

        def ended():
            job = self.daemon.job(name)
            return job if job["state"] in ENDED else None

        job = wait_for(ended, "the job to fail")
        self.assertEqual((job["state"], job["epoch"]), ("FAILED", 1), job)
        self.assertEqual(job["error"]["reason"], "NON_FINITE")
        message = job["error"]["message"]
        step = int(re.search(r"\bstep (\d+)", message)[1])
        # All steps before it are written down, and none of what came after.
        lines = metric_lines(self.daemon.attempt(name) / "metrics.jsonl")
        self.assertEqual([line["global_step"] for line in lines], list(range(1, step)))
        named = [int(line) for line in re.findall(rf"\b{dataset}:(\d+)", message)]
        return step, named, message

    def poison(self, file, key, row):
        """Makes a row of a tensor of the job's model infinite."""
        path = file.parent / "model" / "model.safetensors"
        tensors = load_file(path)
        tensors[key][row] = float("inf")
        save_file(tensors, path, metadata={"format": "pt"})

    def test_what_every_row_meets_names_every_row_of_the_batch(self):
        file = self.write("all")
        self.poison(file, "model.norm.weight", 0)
        batch = (f"training.per_device_train_batch_size={TRAINED}", "training.max_steps=9")
        step, named, message = self.failure(
            file, *batch, "training.gradient_accumulation_steps=1"
        )
        self.assertEqual(step, 1, message)
        self.assertEqual(named, list(range(UNTRAINED + 1, UNTRAINED + TRAINED + 1)), message)

    # F-27
    def test_one_row_that_is_to_blame_is_named_alone(self):
        file = self.write("row")
        self.poison(file, "model.embed_tokens.weight", POISON)
        one = ("training.per_device_train_batch_size=1", "training.gradient_accumulation_steps=1")
        step, named, message = self.failure(file, *one, f"training.max_steps={TRAINED}")
        self.assertLessEqual(step, TRAINED)
        self.assertEqual(named, [CULPRIT_LINE], message)
        # An equal file is prepared already; its lines still have its own name.
        shutil.copy(file.parent / "train.jsonl", file.parent / "copy.jsonl")
        one += (f"training.max_steps={TRAINED}", "dataset=copy.jsonl")
        _, named, message = self.failure(file, *one, dataset="copy.jsonl")
        self.assertEqual(named, [CULPRIT_LINE], message)
        self.assertNotIn("train.jsonl", message)


if __name__ == "__main__":
    unittest.main()
