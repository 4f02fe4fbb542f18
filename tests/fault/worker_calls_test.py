"""F-02: a worker that is killed at any of its syncs and renames, one after the other, leaves only
whole checkpoints under their names, and another one goes on from these to the same weights.

The worker is the real one, under tests/fault/faulty_os.cc. The set that is always run takes every
seventh call.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest

from tests.fault.faulty_daemon import LAYER
from tests.harness import assignments, jobs
from tests.harness.daemon import Daemon
from tests.harness.long_set import LONG

STEPS = 3  # Each with a checkpoint; then the output.
STRIDE = 1 if LONG else 7
FINAL = re.compile(r"step-(\d+)\.e\d+$")
LEAST_CALLS = {"sync": 20, "rename": 6}  # Of a run: that these are no few says that they are seen.


class WorkerCallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-calls-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        daemon = Daemon()
        cls.addClassCleanup(daemon.close)
        file = jobs.full_folder(daemon.folder / "full")
        name = daemon.submit(file, f"training.max_steps={STEPS}", "training.save_steps=1")
        daemon.wait_state(name, "SUCCEEDED")
        cls.first = daemon.attempt(name)
        cls.weights = cls.weights_of(cls.first)

    @staticmethod
    def weights_of(attempt):
        return (attempt / "output" / "model.safetensors").read_bytes()

    def run_worker(self, folder, call="", **fields):
        """Its attempt and its end, with the checkpoints in `folder`/points."""
        attempt = folder / f"attempt-{len(list(folder.glob('attempt-*')))}"
        assignments.write_changed(
            self.first, attempt, checkpoints_dir=str(folder / "points"), **fields
        )
        layer = {"LD_PRELOAD": LAYER, "FAULTY_PROGRAM": "snug-worker", "FAULTY_DIR": str(folder)}
        environment = {**os.environ, **layer, "FAULTY_CALL": call} if call else None
        return attempt, assignments.start(attempt, env=environment)

    def points_of(self, folder):
        """Checkpoints that have their final name, by step; each is whole."""
        points = {}
        for point in (folder / "points").glob("step-*"):
            found = FINAL.match(point.name)
            if not found:
                continue
            points[int(found[1])] = point
            manifest = json.loads((point / "MANIFEST.json").read_text())
            for name, said in manifest["files"].items():
                content = (point / name).read_bytes()
                self.assertEqual(len(content), int(said["bytes"]), name)
                self.assertEqual(hashlib.sha256(content).hexdigest(), said["sha256"], name)
        return points

    def kill_at(self, kind, number):
        """False: there are not so many calls."""
        folder = self.folder / f"{kind}-{number}"
        killed, ended = self.run_worker(folder, f"{kind}:kill@{number}")
        if ended.returncode == 0:
            return False
        self.assertEqual(ended.returncode, -9, ended.stderr)
        points = self.points_of(folder)
        newest = max(points, default=0)
        begin = {}
        if newest:
            metrics = str(killed / "metrics.jsonl")
            begin = {"resume_from": str(points[newest]), "previous_metrics": metrics}
        attempt, ended = self.run_worker(folder, epoch=2, **begin)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(self.weights_of(attempt), self.weights)
        self.assertEqual(max(self.points_of(folder)), STEPS)
        shutil.rmtree(folder)
        return True

    def test_f02_killed_at_any_sync_and_rename(self):
        for kind, least in LEAST_CALLS.items():
            number = 1
            while self.kill_at(kind, number):
                number += STRIDE
            with self.subTest(kind):
                self.assertGreater(number, least)


if __name__ == "__main__":
    unittest.main()
