"""snugd where something of the machine runs out, is taken, or is in somebody else's hands."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import unittest

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon

DESCRIPTORS = 128
IDLE = 228  # Connections at once, more than that daemon can open.


def snug(daemon, *words):
    """A snug command that goes on beside the test."""
    line = [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snug"), "--server"]
    line += [f"unix:{daemon.socket}", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Crowd:
    """Connections that say nothing; those that the daemon closes are dialled again."""

    def __init__(self, path):
        self.path, self.there = str(path), []

    def press(self, seconds):
        """Keeps IDLE of them there for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.there = [one for one in self.there if not self.is_closed(one)]
            while len(self.there) < IDLE and time.monotonic() < end:
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                try:
                    one.connect(self.path)
                except BlockingIOError:  # As many wait to be accepted as the kernel lets.
                    one.close()
                    break
                self.there.append(one)
            time.sleep(0.01)

    @staticmethod
    def is_closed(one):
        try:
            return one.recv(4096) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def leave(self):
        for one in self.there:
            one.close()


class FewDescriptorsTest(unittest.TestCase):
    def setUp(self):
        under = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
        self.daemon = FakeDaemon(settings=ONE_AT_A_TIME, under=under)
        self.addCleanup(self.daemon.close)

    # F-52, F-75: no worker is taken for dead because nobody could look, so no job runs twice; and
    # the service is back when they have gone.
    def test_a_flood_of_connections_costs_no_worker(self):
        name = self.daemon.submit_script("steps=400 step_ms=50")
        self.daemon.wait_step(name, 1)
        crowd = Crowd(self.daemon.socket)
        self.addCleanup(crowd.leave)
        workers = self.daemon.processes("fake-worker")
        for _ in range(8):
            crowd.press(1.0)
            self.assertEqual(self.daemon.processes("fake-worker"), workers)
        files = len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))
        self.assertGreater(files, DESCRIPTORS // 2)
        crowd.leave()
        job = self.daemon.job(name)
        self.assertEqual((job["state"], job["epoch"]), ("RUNNING", 1))
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], 1)
        self.assertEqual(self.daemon.steps(name), list(range(1, 401)))

    # The worker ends while the crowd is there: how it ended is read all the same, and the next job
    # is started.
    def test_attempts_end_and_begin_under_a_flood(self):
        first = self.daemon.submit_script("steps=60 step_ms=50")
        second = self.daemon.submit_script("steps=5")
        self.daemon.wait_step(first, 1)
        self.daemon.wait_state(second, "QUEUED")
        crowd = Crowd(self.daemon.socket)
        self.addCleanup(crowd.leave)
        ended = self.daemon.attempt(second) / "exit.json"
        wait_for(lambda: crowd.press(0.2) or ended.is_file(), "the second job to end")
        crowd.leave()
        for name in (first, second):
            self.assertEqual(self.daemon.wait_state(name, "SUCCEEDED")["epoch"], 1)


class HardeningTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)

    # F-33
    def test_a_stopped_shim_does_not_hold_its_job(self):
        name = self.daemon.submit_script("steps=10000 step_ms=50")
        self.daemon.wait_step(name, 1)
        (shim,) = self.daemon.processes("snug-shim")
        os.kill(shim, signal.SIGSTOP)
        self.daemon.run("cancel", name)
        job = self.daemon.wait_state(name, "CANCELLED")
        self.assertEqual(job["state"], "CANCELLED")
        self.assertEqual(self.daemon.processes("fake-worker"), [])

    # F-68, F-62: the stream ends, the watch does not; it sees the job's end after the restarts.
    def test_watch_survives_orderly_stops(self):
        name = self.daemon.submit_script("steps=200 step_ms=50")
        self.daemon.wait_step(name, 1)
        with snug(self.daemon, "watch", name, "--output", "json") as watch:
            try:
                seen = []
                for _ in range(3):
                    seen.append(watch.stdout.readline())
                    self.assertEqual(self.daemon.kill(signal.SIGTERM), 0)
                    self.daemon.start()
                self.daemon.wait_state(name, "SUCCEEDED")
                out, err = watch.communicate(timeout=60)
            finally:
                watch.kill()  # It would wait for a daemon for ever.
            self.assertEqual(watch.returncode, 0, err)
        self.assertEqual(json.loads((seen + out.splitlines())[-1])["state"], "SUCCEEDED")

    # F-36: a gigabyte is printed; 64 MiB of it are kept.
    def test_a_worker_that_prints_without_end_is_cut(self):
        name = self.daemon.submit_script("steps=2 print_mb=300")
        self.daemon.wait_state(name, "SUCCEEDED")
        logs = list(self.daemon.attempt(name).glob("worker.log*"))
        self.assertEqual(len(logs), 2)
        self.assertLessEqual(sum(log.stat().st_size for log in logs), 64 << 20)
        shown = self.daemon.run("logs", name).stdout
        self.assertIn("bytes of output are left out", shown)

    # F-78
    def test_a_metrics_port_that_was_named_is_not_done_without(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.daemon.kill(signal.SIGTERM)
            fresh = self.start_by_hand(self.daemon.folder / "fresh", port)
            self.assertEqual(fresh.wait(60), 75)
            self.assertIn(f"127.0.0.1:{port}", fresh.stderr.read())
            again = self.start_by_hand(self.daemon.state, port)
            wait_for(lambda: self.daemon.run("list", code=None).returncode == 0, "snugd to serve")
        wait_for(lambda: self.scrape(port), "the port to be taken when it is free")
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(60), 0)

    def start_by_hand(self, state, port):
        line = [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snugd"), *self.daemon.flags]
        line += ["--state-dir", state, "--socket", self.daemon.socket, "--device", "cpu:0=1GiB"]
        line += ["--metrics-port", str(port)]
        process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def scrape(port):
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as page:
                page.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                return b"200" in page.recv(100)
        except OSError:
            return False

    def test_more_memory_than_the_machine_has_is_refused(self):
        line = [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snugd"), *self.daemon.flags]
        line += ["--state-dir", self.daemon.folder / "t", "--device", "cpu:0=900TiB"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("devices[0].capacity: ", done.stderr)
        self.assertIn(" is more than cpu:0 has", done.stderr)


if __name__ == "__main__":
    unittest.main()
