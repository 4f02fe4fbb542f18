"""Attempts that a service manager starts (SNUG_LAUNCHER): here systemd's own code for sockets whose
every connection gets a process, without the units around it."""

import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

from tests.harness.binaries import binary
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon


def parent_of(pid):
    """The id of the process that started it, or took it over."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


class LauncherTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="snug-launcher-")
        self.addCleanup(folder.cleanup)
        self.socket = pathlib.Path(folder.name) / "launcher.sock"
        environment = mock.patch.dict(os.environ, SNUG_LAUNCHER=str(self.socket))
        environment.start()
        self.addCleanup(environment.stop)
        self.manager = None
        self.start_manager()
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)

    def start_manager(self):
        self.socket.unlink(missing_ok=True)
        line = ["systemd-socket-activate", "--seqpacket", "--accept", "--inetd"]
        line += ["--listen", str(self.socket), str(binary("snug-launch"))]
        self.manager = subprocess.Popen(line, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.stop_manager)
        wait_for(self.socket.exists, "the launcher's socket")

    def stop_manager(self):
        self.manager.kill()
        self.manager.wait()

    def shim(self):
        (shim,) = wait_for(lambda: self.daemon.processes("snug-shim"), "a shim")
        return shim

    # The daemon has started nothing, and knows what is there as if it had: across its own end too.
    def test_workers_are_no_children_of_the_daemon(self):
        name = self.daemon.submit_script("steps=400 step_ms=50")
        self.daemon.wait_step(name, 1)
        shim = self.shim()
        self.assertEqual(parent_of(shim), self.manager.pid)
        self.assertEqual(os.getsid(shim), shim)
        self.assertEqual(os.readlink(f"/proc/{shim}/fd/0"), "/dev/null")
        self.daemon.restart()
        step = int(self.daemon.job(name)["progress"]["global_step"])
        self.daemon.wait_heard(name, step)
        self.assertEqual(self.daemon.processes("snug-shim"), [shim])
        self.daemon.run("cancel", name)
        self.assertEqual(self.daemon.wait_state(name, "CANCELLED")["epoch"], 1)
        wait_for(lambda: not self.daemon.processes("snug-shim"), "the shim to end")

    # What cannot be started is said, and the job is tried again.
    def test_a_launcher_that_is_away(self):
        self.stop_manager()
        self.socket.unlink()
        name = self.daemon.submit_script("steps=5")
        said = f"cannot reach the launcher at {self.socket}"
        wait_for(lambda: said in self.daemon.log.read_text(), "the daemon to say what is missing")
        self.start_manager()
        self.assertGreater(self.daemon.wait_state(name, "SUCCEEDED")["epoch"], 1)

    def test_what_is_no_request_starts_nothing(self):
        done = subprocess.run(
            [binary("snug-launch")], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"no request on standard input", done.stderr)


if __name__ == "__main__":
    unittest.main()
