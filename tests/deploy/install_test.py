"""What `cmake --install` leaves can be moved, and runs a job by itself: nothing of the tree it was
built in is used, no .venv and no LibTorch but its own."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from tests.harness import jobs
from tests.harness.binaries import ROOT, binary
from tests.harness.daemon import Daemon

BUILD = pathlib.Path(str(binary("snug"))).parent.parent


def run(*words, **named):
    words = [str(word) for word in words]
    return subprocess.run(words, capture_output=True, text=True, check=True, **named).stdout


def run_a_job(test, home, folder):
    """A job in `folder`, by the programs of `home` alone: nothing names the tree."""
    programs = {"snugd": "snugd", "snug": "snug"}
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SNUG_", "PYTHON")) and key != "VIRTUAL_ENV"
    }
    environment["PATH"] = "/usr/bin:/bin"
    with (
        mock.patch("tests.harness.daemon.binary", lambda name: home / "bin" / programs[name]),
        mock.patch.dict(os.environ, environment, clear=True),
    ):
        daemon = Daemon(device="cpu:0=1GiB")
        test.addCleanup(daemon.close)
        job = jobs.lora_folder(folder / "job", rows=8)
        done = daemon.run("submit", job, "training.max_steps=2", "--watch")
        test.assertIn("SUCCEEDED", done.stdout)
        test.assertNotIn(str(ROOT), daemon.log.read_text())


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-install-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        first = self.folder / "first"
        run("cmake", "--install", BUILD, "--prefix", first)
        self.home = self.folder / "moved"
        first.rename(self.home)

    def test_what_is_there(self):
        for name in (
            "share/man/man1/snug.1",
            "share/man/man1/snug-sim.1",
            "share/man/man8/snugd.8",
            "share/bash-completion/completions/snug",
            "share/zsh/site-functions/_snug",
            "share/fish/vendor_completions.d/snug.fish",
            "share/doc/snug/README.md",
            "share/doc/snug/CHANGELOG.md",
        ):
            self.assertTrue((self.home / name).is_file(), name)
        self.assertTrue(run(self.home / "bin" / "snug", "--version").startswith("snug "))
        # No library is looked for in the tree.
        worker = self.home / "lib/snug/bin/snug-worker"
        linked = run("ldd", worker)
        self.assertNotIn("not found", linked)
        self.assertNotIn(str(ROOT), linked)

    def test_a_job(self):
        run_a_job(self, self.home, self.folder)


if __name__ == "__main__":
    sys.exit(unittest.main())
