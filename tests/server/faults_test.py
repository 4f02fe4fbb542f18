"""Faults of workers, shims, links and signals, by their numbers; the worker trains nothing.

Those of descriptors, output and ports are in hardening_test, those with shortened limits in
scheduler/scheduler_test.cc.
"""

import contextlib
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time
import unittest

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon


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


class FaultsTest(unittest.TestCase):
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

    # They say nothing, and hold one thread of the page each.
    def test_f78_slow_scrapers(self):
        port = int(re.search(r"127\.0\.0\.1:(\d+)", self.daemon.log.read_text())[1])
        slow = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(40)]
        for one in slow:
            self.addCleanup(one.close)
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
        begin = time.monotonic()
        self.assertIn("snug_jobs", self.daemon.metrics())
        self.assertLess(time.monotonic() - begin, 30)


if __name__ == "__main__":
    unittest.main()
