"""A state folder on a disk of its own, which is full: a tmpfs that the test mounts, as root. The
worker trains nothing.
"""

import errno
import shutil
import signal
import subprocess
import unittest

from tests.harness import api
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon


class OwnDiskDaemon(FakeDaemon):
    """Its state folder is a disk of 256 MiB."""

    def start(self):
        if not self.state.is_dir():
            self.state.mkdir(mode=0o700)
            line = ["mount", "-t", "tmpfs", "-o", "size=256m,mode=700", "none", self.state]
            subprocess.run(line, check=True)
        super().start()

    def close(self):
        super().close()
        subprocess.run(["umount", "--lazy", self.state], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def filler(self):
        return self.state / "filler"

    def fill(self):
        """Takes all that is left of the disk."""
        with open(self.filler, "ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                while self.write(file, b"\0" * size):
                    pass

    @staticmethod
    def write(file, content):
        try:
            return file.write(content) == len(content)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False

    def make_room(self):
        self.filler.unlink()


class FullStoreTest(unittest.TestCase):
    def setUp(self):
        self.daemon = OwnDiskDaemon()
        self.addCleanup(self.daemon.close)

    def submit(self):
        """The status code of a submit, and its error's details."""
        with api.dial(self.daemon.socket) as channel:
            spec = api.spec_of(self.daemon, "steps=1")
            return api.refusal(channel, "CreateJob", api.request("CreateJob", spec=spec))

    def write_beyond_the_wal(self):
        """Stores until the WAL has grown. It begins again after each checkpoint, and what fits
        into the pages that it has needs no room on the disk.
        """
        wal = self.daemon.state / "snug.db-wal"
        size = wal.stat().st_size
        while wal.stat().st_size == size:
            self.daemon.run("cancel", self.daemon.submit_script("steps=1 step_ms=60000"))

    # F-21: the job ends while nothing more can be written: what the store has kept back is given
    # up for that.
    def test_f21_a_jobs_end_is_recorded_on_a_full_disk(self):
        name = self.daemon.submit_script("steps=200 step_ms=50")
        self.daemon.wait_step(name, 1)
        self.write_beyond_the_wal()
        self.assertTrue((self.daemon.state / "ballast").exists())
        self.daemon.process.send_signal(signal.SIGSTOP)
        wait_for((self.daemon.attempt(name) / "exit.json").is_file, "the worker to end")
        self.daemon.fill()
        self.daemon.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.daemon.wait_state(name, "SUCCEEDED")["epoch"], 1)
        self.assertFalse((self.daemon.state / "ballast").exists())
        self.daemon.kill()
        self.daemon.make_room()
        self.daemon.start()
        self.assertEqual(self.daemon.job(name)["state"], "SUCCEEDED")
        self.assertEqual(self.daemon.json("doctor").get("findings", []), [])


if __name__ == "__main__":
    unittest.main()
