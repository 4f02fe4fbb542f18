"""Every job file of examples/ runs as it stands, on what examples/make.py writes."""

import pathlib
import shutil
import subprocess
import sys
import unittest

from tests.harness.binaries import ROOT
from tests.harness.daemon import Daemon


class ExamplesTest(unittest.TestCase):
    def test_all_of_them(self):
        daemon = Daemon(device="cpu:0=2GiB")
        self.addCleanup(daemon.close)
        folder = pathlib.Path(daemon.folder) / "examples"
        ignored = shutil.ignore_patterns("model", "data", "__pycache__")
        shutil.copytree(ROOT / "examples", folder, ignore=ignored)
        subprocess.run([sys.executable, "-B", str(folder / "make.py")], check=True)
        files = sorted(folder.glob("*.yaml"))
        self.assertGreaterEqual(len(files), 6)
        jobs = {file.name: daemon.run("submit", file).stdout.strip() for file in files}
        for name, job in jobs.items():
            with self.subTest(name):
                done = daemon.run("watch", job, code=None)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("loss", daemon.run("plot", job).stdout)
                daemon.run("download", job, folder / f"{job}-out")


if __name__ == "__main__":
    sys.exit(unittest.main())
