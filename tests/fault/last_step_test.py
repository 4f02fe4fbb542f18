"""A worker that was killed after its last step's checkpoint, before the export: the next attempt
has nothing to train and still exports the same, with the same loss."""

import json
import pathlib
import unittest

from tests.fault import runs
from tests.harness import assignments, jobs
from tests.harness.daemon import Daemon


class LastStepTest(unittest.TestCase):
    """A finished job's assignment, given to a worker again, to go on from the last checkpoint."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def attempt_after_the_last_step(self, name):
        """Writes the second attempt's assignment; gives its folder."""
        first = self.daemon.attempt(name)
        (checkpoint,) = (first.parent.parent / "checkpoints").glob("step-*.e1")
        return assignments.write_changed(
            first,
            self.daemon.attempt(name, 2),
            epoch=2,
            resume_from=str(checkpoint),
            previous_metrics=str(first / "metrics.jsonl"),
        )

    def check(self, *job):
        """The second attempt's files and loss are those of the first."""
        name = self.daemon.submit(*job)
        self.daemon.wait_state(name, "SUCCEEDED")
        second = self.attempt_after_the_last_step(name)
        done, again = assignments.run(second)
        self.assertEqual(done.returncode, 0, done.stderr)
        first = self.daemon.attempt(name)
        results = [json.loads((first / "result.json").read_text()), again]
        self.assertEqual(results[0]["verified_loss"], results[1]["verified_loss"])
        losses = [result["progress"].get("eval_loss") for result in results]
        self.assertEqual(losses[0], losses[1])
        for path in sorted((first / "output").iterdir()):
            other = pathlib.Path(second / "output" / path.name)
            self.assertEqual(path.read_bytes(), other.read_bytes(), path.name)
        self.assertEqual(runs.steps_of(self.daemon, name, 1), runs.steps_of(self.daemon, name, 2))

    def test_full_job_without_evaluation_set(self):
        file = jobs.full_folder(self.daemon.folder / "full")
        self.check(file, "training.max_steps=7", "training.save_steps=7")

    def test_lora_job_with_evaluation_set(self):
        file = jobs.lora_folder(self.daemon.folder / "lora")
        changes = ("training.max_steps=4", "training.save_steps=4", "training.precision=fp32")
        self.check(file, *changes)


if __name__ == "__main__":
    unittest.main()
