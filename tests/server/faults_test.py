"""Faults of workers, shims, links and signals, by their numbers; the worker trains nothing.

Those of descriptors, output and ports are in hardening_test, those with shortened limits in
scheduler/scheduler_test.cc.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from tests.harness import api, assignments
from tests.harness.binaries import binary
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon
from tests.server.wire_test import DATA, END_HEADERS, HEADERS, PREFACE, REQUEST, SETTINGS
from tests.server.wire_test import frame as http_frame

ENDLESS = "steps=100000 step_ms=50"
CLOSED_S = 5  # Within which a daemon that has come back closes the attempts that ended meanwhile.
AWAY_S = 600 if "SNUG_FAULT_LONG" in os.environ else 10


def varint(number):
    """As protobuf and the link's frames write it."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def field(number, value):
    """A field of a message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(event):
    return varint(len(event)) + event


def hello(job, epoch, nonce):
    """WorkerEvent.hello, framed."""
    who = field(1, job.encode()) + field(2, epoch) + field(3, nonce.encode())
    said = who + field(4, os.getpid())
    return frame(field(1, said))


class FaultsBase(unittest.TestCase):
    """What the tests of this file share."""

    def setUp(self):
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)

    def succeeded(self, name, epoch):
        """The job at its end, which came in this attempt with every step once."""
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], epoch)
        steps = int(job["progress"]["global_step"])
        self.assertEqual(self.daemon.steps(name, epoch), list(range(1, steps + 1)))
        return job

    def running(self, script):
        """A job that has done some steps."""
        name = self.daemon.submit_script(script)
        self.daemon.wait_step(name, 6)
        return name

    @contextlib.contextmanager
    def store(self):
        """The rows, while no daemon has them."""
        with contextlib.closing(sqlite3.connect(self.daemon.state / "snug.db")) as rows:
            yield rows
            rows.commit()

    def kill_all(self, *programs):
        for program in programs:
            for pid in self.daemon.processes(program):
                os.kill(pid, signal.SIGKILL)


class FaultsTest(FaultsBase):
    def test_f05_kill_between_spawn_and_hello(self):
        name = self.daemon.submit_script("steps=20 step_ms=100 hello_at=8")
        lock = self.daemon.attempt(name) / "metrics.jsonl"
        wait_for(lock.is_file, "the worker to begin")
        self.daemon.restart()
        self.succeeded(name, 1)

    def test_f08_shim_killed_with_its_worker_alive(self):
        name = self.running("steps=40 step_ms=50")
        (worker,) = self.daemon.processes("fake-worker")
        self.kill_all("snug-shim")
        self.succeeded(name, 2)
        self.assertFalse(os.path.exists(f"/proc/{worker}"))

    def test_f09_daemon_shim_and_worker_killed(self):
        name = self.running("steps=40 step_ms=50")
        self.daemon.kill()
        self.kill_all("snug-shim", "fake-worker")
        self.daemon.start()
        job = self.succeeded(name, 2)
        self.assertGreaterEqual(int(job["progress"]["resumed_from_step"]), 5)

    def test_f10_machine_started_anew(self):
        name = self.running("steps=40 step_ms=50")
        self.daemon.kill()
        self.kill_all("snug-shim", "fake-worker")
        with self.store() as rows:
            rows.execute("UPDATE attempts SET boot_id = 'of another boot'")
        self.daemon.start()
        self.succeeded(name, 2)

    # Another process has the number that the rows remember of the shim.
    def test_f11_recycled_process_number(self):
        name = self.running("steps=40 step_ms=50")
        self.daemon.kill()
        self.kill_all("snug-shim", "fake-worker")
        with subprocess.Popen(["sleep", "1000"], start_new_session=True) as stranger:
            self.addCleanup(stranger.kill)
            with self.store() as rows:
                rows.execute("UPDATE attempts SET shim_pid = ?", (stranger.pid,))
            self.daemon.start()
            self.succeeded(name, 2)
            self.assertIsNone(stranger.poll())
            stranger.kill()

    def dial(self):
        """A connection to the workers' socket."""
        link = socket.socket(socket.AF_UNIX)
        self.addCleanup(link.close)
        link.settimeout(60)
        link.connect(str(self.daemon.state / "link.sock"))
        return link

    def assert_closed(self, link):
        """What came before the end; WorkerCommand.refused, if anything."""
        said = b""
        with contextlib.suppress(ConnectionError):
            while more := link.recv(4096):
                said += more
        return said

    def link_errors(self):
        return int(re.search(r"^snug_link_errors_total (\d+)", self.daemon.metrics(), re.M)[1])

    # Who speaks for an attempt that is not the live one is refused, and the worker goes on.
    def test_f34_f37_impostors_on_the_link(self):
        name = self.running("steps=80 step_ms=50")
        pid = self.daemon.job(name)["worker_pid"]
        impostors = (
            hello(name, 1, "0" * 32),
            hello(name, 2, "0" * 32),
            hello(name, 0, ""),
            hello("nobody", 1, ""),
            frame(field(4, field(1, 7))),  # A heartbeat before Hello.
        )
        for said in impostors:
            link = self.dial()
            link.sendall(said)
            self.assertIn(b"\x12", self.assert_closed(link))  # Refused, with a reason.
        garbage = (b"\xff" * 100, frame(b"\xff\xff\xff"), varint(1 << 27), frame(b"x" * 5000))
        for said in garbage:
            link = self.dial()
            link.sendall(said)
            self.assert_closed(link)
        wait_for(lambda: self.link_errors() == len(impostors) + len(garbage), "all to be counted")
        self.assertEqual(self.daemon.job(name)["worker_pid"], pid)
        self.succeeded(name, 1)

    # More of them than there may be, all silent: the worker still gets in.
    def test_f37_idle_links_keep_no_worker_out(self):
        idle = [self.dial() for _ in range(300)]
        name = self.daemon.submit_script("steps=5")
        self.succeeded(name, 1)
        self.assert_closed(idle[0])

    # Everything stands still for a while, as on a machine that sleeps: nothing is taken for dead.
    def test_f67_all_stopped_for_a_while(self):
        name = self.running("steps=40 step_ms=50")
        everyone = [self.daemon.process.pid, *self.daemon.processes()]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        self.succeeded(name, 1)

    def test_f69_storms_of_signals(self):
        name = self.running("steps=40 step_ms=50")
        storm = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD", "SIGCONT", "SIGWINCH")
        (shim,) = self.daemon.processes("snug-shim")
        for _ in range(300):
            for each in storm:
                os.kill(self.daemon.process.pid, signal.Signals[each])
            for each in ("SIGHUP", "SIGINT", "SIGCHLD", "SIGCONT"):
                os.kill(shim, signal.Signals[each])
        self.assertIsNone(self.daemon.process.poll())
        self.succeeded(name, 1)

    # Some say nothing, some a byte now and then, some never read what they have asked for; each
    # holds one thread of the page. A job runs meanwhile.
    def test_f78_slow_scrapers(self):
        name = self.running("steps=60 step_ms=50")
        port = int(re.search(r"127\.0\.0\.1:(\d+)", self.daemon.log.read_text())[1])
        slow = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(40)]
        for i, one in enumerate(slow):
            self.addCleanup(one.close)
            one.sendall(b"GET /metrics HTTP/1.1\r\n" + b"Host: localhost\r\n\r\n" * (i % 3 == 0))
        for _ in range(4):
            for one in slow[1::3]:
                with contextlib.suppress(OSError):
                    one.sendall(b"x")
            begin = time.monotonic()
            self.assertIn("snug_jobs", self.daemon.metrics())
            self.assertLess(time.monotonic() - begin, 2)
            time.sleep(0.5)
        self.succeeded(name, 1)

    # The last good one is gone, too: the job says so and waits for its user, and goes on from one
    # that is put back.
    def test_f25_all_checkpoints_damaged(self):
        name = self.daemon.submit_script("steps=60 step_ms=50")
        pid = self.daemon.wait_step(name, 12)["worker_pid"]
        os.kill(pid, signal.SIGSTOP)
        folder = self.daemon.state / "jobs" / name / "checkpoints"
        files = {point / "weights": (point / "weights").read_text() for point in folder.iterdir()}
        self.assertGreaterEqual(len(files), 2)
        for file in files:
            file.write_text("something else")
        os.kill(pid, signal.SIGKILL)
        self.assert_damaged(name)
        self.daemon.restart()
        self.assert_damaged(name)
        self.daemon.run("resume", name)
        self.assert_damaged(name)
        for file, content in files.items():
            file.write_text(content)
        self.daemon.run("resume", name)
        job = self.succeeded(name, 2)
        self.assertGreaterEqual(int(job["progress"]["resumed_from_step"]), 10)

    def assert_damaged(self, name):
        job = wait_for(
            lambda: (job := self.daemon.job(name))["state"] == "PAUSED" and job, "it to be paused"
        )
        self.assertIn("every checkpoint of the job is damaged", job["reason"])
        self.assertEqual(job["epoch"], 1)

    # The old one is stopped when its shim dies, and the job goes on elsewhere: it never speaks
    # again, and what is said or written in its name counts for nothing.
    def test_f34_a_stopped_worker_and_its_successor(self):
        name = self.running("steps=200 step_ms=50")
        old = self.daemon.job(name)["worker_pid"]
        nonce = assignments.field(assignments.read(self.daemon.attempt(name)), "nonce")
        os.kill(old, signal.SIGSTOP)
        self.kill_all("snug-shim")
        wait_for(lambda: self.daemon.job(name)["epoch"] == 2, "another attempt")
        self.daemon.wait_step(name, 12)
        with contextlib.suppress(ProcessLookupError):
            os.kill(old, signal.SIGCONT)
        wait_for(lambda: not os.path.exists(f"/proc/{old}"), "the old worker to be gone", 30)
        link = self.dial()
        link.sendall(hello(name, 1, nonce))
        self.assertIn(b"\x12", self.assert_closed(link))  # Refused, with a reason.
        for file in ("result.json", "exit.json"):
            (self.daemon.attempt(name) / file).write_text('{"outcome": "SUCCEEDED"}')
        output = self.daemon.attempt(name) / "output"
        output.mkdir()
        (output / "adapter_model.safetensors").write_text("of the old one")
        self.assertEqual(self.daemon.job(name)["state"], "RUNNING")
        job = self.succeeded(name, 2)
        self.assertEqual(job["epoch"], 2)
        target = self.daemon.folder / "target"
        self.daemon.run("download", name, target)
        self.assertNotIn(b"of the old one", (target / "adapter_model.safetensors").read_bytes())

    # As far as limits of the daemon's own go, which its workers have, too: one that opens all that
    # it may fails alone. Memory and processes are control groups' (server/shim/cgroup_test.cc).
    def test_f38_a_worker_that_opens_all_files_it_may(self):
        self.daemon.kill()
        self.daemon.under = ["prlimit", "--nofile=256:256"]
        self.daemon.start()
        neighbour = self.running("steps=100 step_ms=50")
        (worker,) = self.daemon.processes("fake-worker")
        limits = pathlib.Path(f"/proc/{worker}/limits").read_text()
        self.assertRegex(limits, r"Max open files +256 +256")
        name = self.daemon.submit_script("steps=5 files_at=2")
        job = self.daemon.wait_state(name, "FAILED")
        self.assertIn("Too many open files", job["error"]["message"])
        self.succeeded(neighbour, 1)


class GatedReader:
    """A snug-inspect that waits before it reads, for as long as its gate is closed."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-reader-"))
        self.gate, self.reads = self.folder / "gate", self.folder / "reads"
        self.program = self.folder / "reader"
        lines = ("#!/bin/sh", f"echo >> {self.reads}", f"while [ -e {self.gate} ]")
        lines += ("do sleep 0.02", "done", f"exec {binary('snug-inspect').resolve()}")
        self.program.write_text("\n".join(lines) + "\n")
        self.program.chmod(0o700)
        # The daemon looks for this beside its reader.
        (self.folder / "snug-confine").symlink_to(binary("snug-confine").resolve())

    def close_gate(self):
        """From now on whoever reads waits."""
        self.reads.unlink(missing_ok=True)
        self.gate.touch()

    def open_gate(self):
        self.gate.unlink(missing_ok=True)

    def waiting(self):
        """How many have come since the gate was closed."""
        return len(self.reads.read_text().splitlines()) if self.reads.exists() else 0


class ClosingTest(FaultsBase):
    """What ended while the daemon was away is closed before anything is planned again."""

    RUNNING = 4

    def setUp(self):
        self.reader = GatedReader()
        self.addCleanup(shutil.rmtree, self.reader.folder, ignore_errors=True)
        settings = f"max_jobs_per_device: {self.RUNNING}\ninspect: {self.reader.program}\n"
        self.daemon = FakeDaemon(settings=settings)
        self.addCleanup(self.daemon.close)
        self.addCleanup(self.reader.open_gate)

    def states(self, names):
        listed = {job["id"]: job["state"] for job in self.daemon.json("list")["jobs"]}
        return {listed[name] for name in names}

    # No plan is stored any more, and nobody can read a model. Each job that waits is of another
    # length, so that there is more to read than threads that read.
    def test_f09_attempts_are_closed_while_nothing_can_be_planned(self):
        names = [self.daemon.submit_script(ENDLESS) for _ in range(self.RUNNING)]
        for name in names:
            self.daemon.wait_step(name, 6)
        for length in range(24, 30):
            waits = self.daemon.submit_script("steps=1", f"training.max_seq_length={length}")
            self.daemon.wait_state(waits, "QUEUED")
        self.daemon.kill()
        self.kill_all("snug-shim", "fake-worker")
        with self.store() as rows:
            rows.execute("UPDATE jobs SET plans = ''")
        self.reader.close_gate()
        self.daemon.start()
        wait_for(lambda: self.states(names) == {"QUEUED"}, "the attempts' ends", CLOSED_S)
        wait_for(lambda: self.reader.waiting() >= 2, "all threads that read to wait", 30)
        self.assertEqual(self.states(names), {"QUEUED"})
        self.assertEqual(self.daemon.processes("fake-worker"), [])
        self.reader.open_gate()
        for name in names:
            self.assertEqual(self.daemon.wait_state(name, "RUNNING")["epoch"], 2)


class AwayTest(FaultsBase):
    """F-06: the daemon is away for long."""

    def test_f06_workers_train_without_their_daemon(self):
        name = self.running(f"steps={AWAY_S * 10 + 200} step_ms=100")
        pid = self.daemon.job(name)["worker_pid"]
        self.daemon.kill()
        before = len(self.daemon.steps(name))
        time.sleep(AWAY_S)
        after = len(self.daemon.steps(name))
        self.assertGreater(after, before + AWAY_S * 5)
        self.daemon.start()
        job = self.daemon.wait_heard(name, after)
        self.assertEqual((job["state"], job["epoch"], job["worker_pid"]), ("RUNNING", 1, pid))
        metrics = self.daemon.metrics()
        self.assertIn('snug_attempts_total{outcome="lost"} 0', metrics)
        self.daemon.run("cancel", name)


class EndTest(FaultsBase):
    """F-68: told to end at a bad moment, it ends well within 20 s."""

    def assert_ends(self):
        begin = time.monotonic()
        self.assertEqual(self.daemon.kill(signal.SIGTERM), 0, self.daemon.log.read_text())
        self.assertLess(time.monotonic() - begin, 20)

    def test_f68_told_to_end_while_idle_and_while_a_job_runs(self):
        self.assert_ends()
        self.daemon.start()
        name = self.running("steps=100 step_ms=50")
        self.assert_ends()
        self.assertEqual(len(self.daemon.processes("fake-worker")), 1)
        self.daemon.start()
        self.succeeded(name, 1)

    # Requests whose ends never come, and an upload.
    def test_f68_told_to_end_with_calls_that_never_end(self):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as peer:
            peer.connect(str(self.daemon.socket))
            peer.sendall(PREFACE + http_frame(SETTINGS))
            for stream in range(1, 100, 2):
                peer.sendall(http_frame(HEADERS, REQUEST, stream, END_HEADERS))
                peer.sendall(http_frame(DATA, b"\0" + struct.pack(">I", 1000) + b"x", stream))
            never = threading.Event()

            def requests():
                yield api.request("UploadFile", header={"filename": "a.jsonl"}, content="QUFB")
                never.wait(120)

            with api.dial(self.daemon.socket) as channel:
                upload = api.raw(channel, "UploadFile").future(requests(), timeout=120)
                wait_for(lambda: list(self.daemon.state.glob("uploads/*/part-*")), "the upload", 60)
                self.assert_ends()
                self.assertIsNotNone(upload.exception(timeout=30))
                never.set()
        self.daemon.start()

    # From the moment that it is started: before it serves, too.
    def test_f68_told_to_end_while_it_starts(self):
        for _ in range(30):
            self.daemon.submit_script("steps=1")
        acknowledged = len(self.daemon.json("list", "--all", "--limit", 100)["jobs"])
        self.daemon.kill()
        command = ["--state-dir", self.daemon.state, "--socket", self.daemon.socket]
        command += ["--device", self.daemon.device, "--metrics-port", "0", *self.daemon.flags]
        line = [os.path.join(os.environ["SNUG_BIN_DIR"], "snugd"), *map(str, command)]
        codes, quiet = [], {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for delay in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 2.0):
            with subprocess.Popen(line, **quiet) as one:
                time.sleep(delay)
                one.send_signal(signal.SIGTERM)
                try:
                    codes.append(one.wait(20))
                finally:
                    one.kill()
        self.assertEqual(codes[-1], 0)
        # Before it hears of signals it has touched nothing.
        self.assertLessEqual(set(codes), {0, -signal.SIGTERM})
        self.daemon.start()
        listed = self.daemon.json("list", "--all", "--limit", 100)["jobs"]
        self.assertEqual(len(listed), acknowledged)
        self.assertEqual(self.daemon.json("doctor").get("findings", []), [])


if __name__ == "__main__":
    unittest.main()
