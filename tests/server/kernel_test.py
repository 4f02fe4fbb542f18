"""What only the kernel does: it holds a worker to its control group of version 2, where snugd is
alone in one that it may write, keeps a process that waits in it, and mounts file systems. In a
Linux of its own (tests/harness/guest.py), by the numbers of the faults. The worker trains nothing.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.harness import guest, tracing
from tests.harness.binaries import binary
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon
from tests.harness.stuck_disk import StuckDisk

INSIDE = "SNUG_TEST_GUEST"
GROUPS = pathlib.Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max")
BOOT_S = 100
ENDLESS = "steps=100000 step_ms=50"
FORKING = f"{ENDLESS} fork_at=2"
GREEDY = "steps=12 step_ms=50 grow_at=8 grow_mb=2000 only_epoch=1"


@unittest.skipIf(INSIDE in os.environ, "this is the Linux of its own")
class OutsideTest(unittest.TestCase):
    def test_in_a_linux_of_its_own(self):
        self.boot()
        names = ("PYTHONPATH", "SNUG_BIN_DIR", "SNUG_FAKE_WORKER", "SNUG_PYTHON", "SNUG_SOURCE_DIR")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        command = [sys.executable, "-m", "unittest", "tests.server.kernel_test"]
        status, output = guest.run(command, {**environment, INSIDE: "1"}, 500)
        print(output)
        self.assertEqual(status, 0, output)
        self.assertIn("Ran 8 tests", output)  # With those of this class, which are skipped there.

    def boot(self):
        """Skips the test only where this machine refuses what User Mode Linux cannot do without;
        whatever else keeps it from booting is a failure."""
        status, output = guest.run(["true"], {}, BOOT_S)
        refusal = tracing.refusal() if status is None else ""
        if refusal:
            self.skipTest(f"User Mode Linux has to trace processes: {refusal}")
        self.assertEqual(status, 0, f"User Mode Linux does not boot in {BOOT_S} s:\n{output}")

    def test_a_refusal_to_trace_is_known_from_other_failures(self):
        command = [sys.executable, "-m", "tests.harness.tracing"]
        confined = subprocess.run(
            [binary("snug-confine"), *command], capture_output=True, text=True, check=True
        )
        self.assertEqual(confined.stdout, "PTRACE_TRACEME: Operation not permitted\n")


@unittest.skipUnless(INSIDE in os.environ, "in a Linux of its own")
class InsideTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (GROUPS / "cgroup.subtree_control").write_text("+memory +pids")
        cls.daemon = FakeDaemon(under=cls.under("snug"))
        cls.addClassCleanup(cls.daemon.close)

    @classmethod
    def under(cls, name):
        """The command that starts a daemon in a new group."""
        cls.group = GROUPS / name
        cls.group.mkdir()
        return ["sh", "-c", f'echo $$ > {cls.group}/cgroup.procs && exec "$@"', "sh"]

    def running(self, script=ENDLESS):
        """A job that takes steps; it is cancelled at the test's end."""
        name = self.daemon.submit_script(script)
        self.addCleanup(self.daemon.run, "cancel", name, code=None)
        return name, self.daemon.wait_step(name, 1)

    def files(self, name, epoch=1):
        """The limits of that attempt's group."""
        group = self.group / f"{name}.{epoch}"
        files = [group / limit for limit in LIMITS]
        return {file.name: file.read_text().strip() for file in files if file.exists()}

    # F-38: its neighbour goes on; its next attempt has more room, and ends well.
    def test_a_worker_that_takes_more_ends_alone(self):
        calm, job = self.running()
        before = job["progress"]["global_step"]
        greedy = self.daemon.submit_script(GREEDY)
        job = self.daemon.wait_state(greedy, "SUCCEEDED")
        self.assertEqual(job["epoch"], 2, job)
        log = (self.daemon.attempt(greedy, 1) / "worker.log").read_text()
        self.assertIn("[snug-shim: the kernel ended the worker: it had all of its memory]", log)
        group = self.group / f"{greedy}.1"
        self.assertIn(
            f"control group {group} had all of the memory that it may have",
            self.daemon.log.read_text(),
        )
        self.assertFalse(group.exists())
        self.assertEqual(self.daemon.wait_step(calm, int(before) + 2)["epoch"], 1)

    # While it has all of the processes that its group may have its neighbour goes on, and the
    # daemon starts another worker. Those that sleep end with it: the kernel removes no group in
    # which a process lives.
    def test_f38_a_worker_that_starts_processes_without_end(self):
        calm, _ = self.running()
        name, _ = self.running(FORKING)
        self.daemon.wait_step(name, 2)
        group = self.group / f"{name}.1"
        most = (group / "pids.max").read_text()
        self.assertEqual((group / "pids.current").read_text(), most)
        before = int(self.daemon.job(calm)["progress"]["global_step"])
        self.daemon.wait_state(self.daemon.submit_script("steps=3"), "SUCCEEDED")
        self.assertEqual(self.daemon.wait_step(calm, before + 2)["epoch"], 1)
        self.assertEqual((group / "pids.current").read_text(), most)
        self.daemon.run("cancel", name)
        self.assertEqual(self.daemon.wait_state(name, "CANCELLED")["epoch"], 1)
        self.assertFalse(group.exists())
        log = (self.daemon.attempt(name) / "worker.log").read_text()
        self.assertRegex(log, "started [0-9]+ processes: Resource temporarily unavailable")
        self.assertIsNone(self.daemon.process.poll())

    def test_the_group_has_the_attempts_limits(self):
        name, job = self.running()
        most = int(job["plan_changes"]["most_bytes"])
        page = os.sysconf("SC_PAGE_SIZE")
        limits = {
            "memory.max": str((most + (1 << 30)) // page * page),
            "memory.swap.max": "0",
            "memory.oom.group": "1",
            "pids.max": "4096",
        }
        self.assertEqual(self.files(name), limits)
        workers = (self.group / f"{name}.1" / "cgroup.procs").read_text().split()
        self.assertEqual(len(workers), 1, workers)
        self.assertIn("fake-worker", pathlib.Path(f"/proc/{workers[0]}/cmdline").read_text())
        others = (self.group / "daemon" / "cgroup.procs").read_text().split()
        self.assertIn(str(self.daemon.process.pid), others)

    def test_a_worker_keeps_its_group_while_the_daemon_is_away(self):
        name, _ = self.running()
        group, limits = self.group / f"{name}.1", self.files(name)
        self.daemon.kill()
        self.daemon.under = self.under("snug-2")
        self.daemon.start()
        step = int(self.daemon.job(name)["progress"]["global_step"])
        self.assertEqual(self.daemon.wait_step(name, step + 2)["epoch"], 1)
        self.assertEqual((group / "memory.max").read_text().strip(), limits["memory.max"])
        self.daemon.run("cancel", name)
        self.daemon.wait_state(name, "CANCELLED")
        wait_for(lambda: not group.exists(), "its shim to remove the group")

    def reserved(self):
        """Bytes of the device that are promised."""
        (device,) = self.daemon.json("devices")["devices"]
        return int(device["reserved_bytes"])

    # F-35: no signal ends who waits for a disk that does not answer.
    def test_a_process_that_cannot_be_ended_keeps_its_bytes(self):
        disk = StuckDisk(self.daemon.jobs / "stuck")
        self.addCleanup(disk.release)
        name, _ = self.running("steps=40 step_ms=20 stuck_at=3")
        self.assertTrue(disk.opened.wait(120))
        worker = self.daemon.job(name)["worker_pid"]
        self.daemon.run("cancel", name)
        undying = lambda: "does not end" in self.daemon.job(name)["reason"]
        wait_for(undying, "the daemon to say so", 120)
        state = pathlib.Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[0]
        self.assertEqual(state, "D")
        self.assertEqual(self.daemon.job(name)["state"], "CANCELLING")
        self.assertGreater(self.reserved(), 0)
        disk.release()
        self.daemon.wait_state(name, "CANCELLED")
        wait_for(lambda: self.reserved() == 0, "its bytes to be free")

    # F-13: its locks and its fsync are somebody else's word.
    def test_a_state_folder_on_a_file_system_of_a_process_is_refused(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        disk = StuckDisk(folder / "state")
        self.addCleanup(disk.release)
        line = [binary("snugd"), "--state-dir", disk.folder, "--socket", folder / "s"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is on a file system of a process (FUSE): use a local disk", done.stderr)


if __name__ == "__main__":
    unittest.main()
