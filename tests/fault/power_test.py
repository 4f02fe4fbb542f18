"""F-19: what a power cut leaves of checkpoints and of the shim's record: who has a final name is
whole. Writers run under tests/fault/faulty_os.cc, which knows what they have synced.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import unittest

from tests.fault.faulty_daemon import LAYER, tear
from tests.harness import assignments, jobs
from tests.harness.binaries import binary, worker_binary
from tests.harness.daemon import Daemon, wait_for

CYCLES = 3
SHIMS = 30


def under(program, folder, synced):
    """The environment of a program over the layer."""
    layer = {"LD_PRELOAD": LAYER, "FAULTY_PROGRAM": program}
    layer |= {"FAULTY_DIR": str(folder), "FAULTY_SYNCED": str(synced)}
    return {**os.environ, **layer}


def lose_power(folder, synced, draw):
    for file in folder.rglob("*"):
        if file.is_file():
            tear(file, synced, draw)


class PowerTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-power-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.synced = self.folder / "synced"
        self.synced.mkdir()
        self.draw = random.Random(19)

    def test_f19_checkpoints_after_a_power_cut(self):
        daemon = Daemon()
        self.addCleanup(daemon.close)
        file = jobs.full_folder(daemon.folder / "full")
        name = daemon.submit(file, "training.max_steps=2", "training.save_steps=1")
        daemon.wait_state(name, "SUCCEEDED")
        for cycle in range(CYCLES):
            folder = self.folder / f"run-{cycle}"
            points = folder / "points"
            attempt = assignments.write_changed(
                daemon.attempt(name), folder / "attempt", checkpoints_dir=str(points)
            )
            text = assignments.read(attempt).replace("max_steps: 2", "max_steps: 100000")
            assignments.write_text(attempt, text)
            line = [str(worker_binary()), str(attempt / assignments.NAME)]
            environment = under("snug-worker", folder, self.synced)
            with subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL) as worker:
                try:
                    wait_for(lambda: len(self.final(points)) >= 1, "a checkpoint")
                    time.sleep(self.draw.random() * 0.3)
                finally:
                    worker.kill()
            lose_power(folder, self.synced, self.draw)
            self.assertTrue(self.final(points))
            for point in self.final(points):
                self.assert_whole(point)

    @staticmethod
    def final(points):
        """Checkpoints that have their final name."""
        found = points.glob("step-*") if points.is_dir() else []
        return [point for point in found if not point.name.endswith(".tmp")]

    def assert_whole(self, point):
        manifest = json.loads((point / "MANIFEST.json").read_text())
        self.assertTrue(manifest["files"])
        for name, said in manifest["files"].items():
            content = (point / name).read_bytes()
            self.assertEqual(len(content), int(said["bytes"]), name)
            self.assertEqual(hashlib.sha256(content).hexdigest(), said["sha256"], name)

    def test_f19_the_record_of_an_attempts_end_after_a_power_cut(self):
        whole = 0
        for number in range(SHIMS):
            attempt = self.folder / "jobs" / "a" / "attempts" / str(number + 1)
            attempt.mkdir(parents=True)
            line = [str(binary("snug-shim")), str(attempt), "/bin/true"]
            environment = under("snug-shim", attempt, self.synced)
            with subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL) as shim:
                if number % 3:
                    time.sleep(self.draw.random() * 0.03)
                    shim.kill()
            lose_power(attempt, self.synced, self.draw)
            record = attempt / "exit.json"
            if record.exists():
                whole += 1
                said = json.loads(record.read_text())
                self.assertEqual((said["job"], said["epoch"]), ("a", number + 1))
        self.assertGreaterEqual(whole, SHIMS // 3)


if __name__ == "__main__":
    unittest.main()
