"""A worker whose files find no room, here a limit on the size of a file: it goes on without
checkpoints, and what it cannot do without fails with a reason; the signal of the limit kills
nobody. A finished run whose result cannot be written has not finished."""

import resource
import subprocess
import unittest

from tests.harness import assignments, jobs
from tests.harness.binaries import worker_binary
from tests.harness.daemon import Daemon, metric_lines

STEPS = 4
# More than metrics.jsonl of these steps and result.json, less than a checkpoint or an export.
LIMIT_BYTES = 4096


def limit_files():
    """In the worker, before it begins. The hard limit stays: nothing else of the test meets it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))


class FullDiskTest(unittest.TestCase):
    """A finished job's assignment, given to a worker again that may write only small files."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        file = jobs.full_folder(self.daemon.folder / "full")
        changes = (f"training.max_steps={STEPS}", "training.save_steps=2")
        name = self.daemon.submit(file, *changes)
        self.daemon.wait_state(name, "SUCCEEDED")
        self.first = self.daemon.attempt(name)

    def run_again(self):
        """An attempt under the limit: its folder, its result, its log."""
        folder = self.daemon.folder / "limited"
        points = str(folder / "points")
        attempt = assignments.write_changed(
            self.first, folder / "attempt", checkpoints_dir=points
        )
        done, result = assignments.run(attempt, preexec_fn=limit_files)
        self.assertEqual(done.returncode, 4, done.stderr)
        return attempt, result, done.stderr

    # F-22
    def test_training_goes_on_without_checkpoints_and_the_export_says_why_it_failed(self):
        attempt, result, log = self.run_again()
        self.assertEqual(result["failure_class"], "INFRASTRUCTURE")
        self.assertEqual(result["error"]["reason"], "DISK_FULL")
        self.assertIn("model.safetensors", result["error"]["message"])
        steps = [line["global_step"] for line in metric_lines(attempt / "metrics.jsonl")]
        self.assertEqual(steps, list(range(1, STEPS + 1)))
        for step in (2, 4):
            self.assertIn(f"no checkpoint at step {step}: UNAVAILABLE", log)
        self.assertEqual(list((attempt.parent / "points").iterdir()), [])
        self.assertFalse((attempt / "output").exists())
        self.assertFalse((attempt / "output.tmp").exists())

    # F-21
    def test_a_result_that_cannot_be_written_is_no_success(self):
        folder = assignments.write_changed(self.first, self.daemon.folder / "unheard" / "attempt")
        # A folder in its place: nothing is renamed over it.
        (folder / "result.json").mkdir()
        line = [str(worker_binary()), str(folder / assignments.NAME)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("result.json", done.stderr.splitlines()[-1])
        self.assertTrue((folder / "output" / "model.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
