"""snugd where something of the machine runs out, is taken, or is in somebody else's hands."""

import contextlib
import errno
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon
from tests.server.tls_site import Site

ANOTHER = 54399  # A user that nobody is.
DESCRIPTORS = 128
FEW = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
IDLE = 228  # Connections at once, more than that daemon can open.
ORPHANS = 4
BACK_S = 10  # The plan has 3; two clients start in this time, and the machine does other things.
OF_A_USER = 1500  # server/node/connection_caps.h


def snug(daemon, *words):
    """A snug command that goes on beside the test."""
    line = [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snug"), "--server"]
    line += [f"unix:{daemon.socket}", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def parent_of(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rsplit(")", 1)[1].split()[1])


class Crowd:
    """Connections that say nothing; those that the daemon closes are dialled again."""

    def __init__(self, address, size=IDLE):
        """`address`: a socket's path, or a host and a port."""
        self.size = size
        self.family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        self.address = address if isinstance(address, tuple) else str(address)
        self.there = []

    def press(self, seconds):
        """Keeps `size` of them there for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            closed = {one for one in self.there if self.is_closed(one)}
            for one in closed:
                one.close()
            self.there = [one for one in self.there if one not in closed]
            while len(self.there) < self.size and time.monotonic() < end:
                one = socket.socket(self.family)
                one.setblocking(False)
                error = one.connect_ex(self.address)
                if error == errno.EAGAIN:  # As many wait to be accepted as the kernel lets.
                    one.close()
                    break
                if error not in (0, errno.EINPROGRESS):
                    one.close()
                    raise OSError(error, os.strerror(error))
                self.there.append(one)
            time.sleep(0.01)

    @staticmethod
    def is_closed(one):
        try:
            return one.recv(4096) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def leave(self):
        for one in self.there:
            one.close()


class FewDescriptorsTest(unittest.TestCase):
    def start(self, settings=ONE_AT_A_TIME):
        self.daemon = FakeDaemon(settings=settings, under=FEW)
        self.addCleanup(self.daemon.close)

    def files(self):
        """How many the daemon has open."""
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def fill(self, crowd):
        """Presses until the daemon can open nothing more."""

        def is_full():
            crowd.press(0.1)
            return self.files() >= DESCRIPTORS - 2  # The reserve may have given one back.

        wait_for(is_full, "the daemon to have no descriptors left")

    # F-52, F-75: no worker is taken for dead because nobody could look, so no job runs twice; and
    # the service is back when they have gone.
    def test_a_flood_of_connections_costs_no_worker(self):
        self.start()
        name = self.daemon.submit_script("steps=400 step_ms=50")
        self.daemon.wait_step(name, 1)
        crowd = Crowd(self.daemon.socket)
        self.addCleanup(crowd.leave)
        workers = self.daemon.processes("fake-worker")
        for _ in range(8):
            crowd.press(1.0)
            self.assertEqual(self.daemon.processes("fake-worker"), workers)
        self.assertGreater(self.files(), DESCRIPTORS // 2)
        crowd.leave()
        job = self.daemon.job(name)
        self.assertEqual((job["state"], job["epoch"]), ("RUNNING", 1))
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual(job["epoch"], 1)
        self.assertEqual(self.daemon.steps(name), list(range(1, 401)))

    # The worker ends while the crowd is there: how it ended is read all the same, and the next job
    # is started.
    def test_attempts_end_and_begin_under_a_flood(self):
        self.start()
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

    # CVE-2023-4785: gRPC's own listener accepted nothing any more after it once had no descriptor
    # for a connection. The crowd is at an address of gRPC with TLS, three times as many as the
    # daemon may open files. When it has left, TLS and the socket answer.
    def test_f52_the_tls_address_answers_after_it_had_no_descriptors(self):
        site = Site(under=FEW)
        self.addCleanup(site.close)
        self.daemon = site.daemon
        token = site.token("blue", "viewer")
        name = self.daemon.submit_script("steps=100000 step_ms=50")
        self.daemon.wait_step(name, 1)
        workers = self.daemon.processes("fake-worker")
        port = int(site.address().rsplit(":", 1)[1])
        crowd = Crowd(("127.0.0.1", port), 3 * DESCRIPTORS)
        self.addCleanup(crowd.leave)
        self.fill(crowd)
        crowd.press(5)
        crowd.leave()
        left = time.monotonic()
        answers = lambda: site.run("list", token=token).returncode == 0
        wait_for(answers, "an answer over TLS", BACK_S)
        answers = lambda: self.daemon.run("list", code=None).returncode == 0
        wait_for(answers, "an answer over the socket", BACK_S)
        self.assertLess(time.monotonic() - left, BACK_S)
        self.assertIsNone(self.daemon.process.poll())
        self.assertEqual(self.daemon.processes("fake-worker"), workers)
        step = int(self.daemon.job(name)["progress"]["global_step"])
        job = self.daemon.wait_step(name, step + 2)
        self.assertEqual((job["state"], job["epoch"]), ("RUNNING", 1))

    # F-08, F-52, F-75: the crowd is at the port of the page, where it takes every number that is
    # not the reserve's. Shims are killed, and their workers stopped, so that none ends by itself.
    # Whatever the daemon cannot open then, no job goes on while an older worker of it lives.
    def test_no_second_attempt_while_a_worker_lives(self):
        self.start(f"max_jobs_per_device: {ORPHANS}\n")
        names = [self.daemon.submit_script("steps=100000 step_ms=50") for _ in range(ORPHANS)]
        for name in names:
            self.daemon.wait_step(name, 6)
        orphans = self.daemon.processes("fake-worker")
        self.assertEqual(len(orphans), ORPHANS)
        port = int(re.search(r"127\.0\.0\.1:(\d+)", self.daemon.log.read_text())[1])
        crowd = Crowd(("127.0.0.1", port))
        self.addCleanup(crowd.leave)
        for worker in orphans:
            self.fill(crowd)
            self.orphan(worker)
            crowd.press(0.5)
        crowd.press(5)
        crowd.leave()
        doubled = self.daemon.state / "doubled"  # By a worker that finds another one of its job.
        wait_for(lambda: doubled.exists() or all(map(self.goes_on, names)), "all to go on")
        self.assertFalse(doubled.exists(), doubled.exists() and doubled.read_text())
        for name in names:
            self.daemon.wait_state(name, "RUNNING")
        self.assertFalse(set(orphans) & set(self.daemon.processes("fake-worker")))
        self.assertFalse(doubled.exists())

    def goes_on(self, name):
        """Whether a worker of a later attempt has begun."""
        begun = self.daemon.attempt(name).parent.glob("*/metrics.jsonl")
        return any(path.parent.name != "1" for path in begun)

    @staticmethod
    def orphan(worker):
        """Kills its shim, then stops it. Were it stopped before, the kernel would end it with its
        shim, as it does with stopped groups of processes that lose their last parent."""
        shim = parent_of(worker)
        os.kill(shim, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # The daemon was faster.
            while parent_of(worker) == shim:
                pass
            os.kill(worker, signal.SIGSTOP)


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

    # F-78: what has never served says so at each start; what has served before goes on without.
    def test_a_metrics_port_that_was_named_is_not_done_without(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.daemon.kill(signal.SIGTERM)
            for _ in range(2):
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


class ConnectionsTest(unittest.TestCase):
    # F-52
    def test_one_user_of_the_socket_cannot_have_all_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        daemon = FakeDaemon()
        self.addCleanup(daemon.close)
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(OF_A_USER + 100)]
        for one in crowd:
            self.addCleanup(one.close)
            one.connect(str(daemon.socket))
            one.setblocking(False)
        closed = set()

        def are_closed():
            closed.update(i for i, one in enumerate(crowd) if Crowd.is_closed(one))
            return len(closed) >= 100

        wait_for(are_closed, "the connections above the limit to be closed")
        self.assertGreaterEqual(min(closed), OF_A_USER - 10)  # Some may be the harness's.
        for one in crowd:
            one.close()
        daemon.run("list")  # There is room again.


class SharedFolderTest(unittest.TestCase):
    # Somebody else has made /tmp/snug-UID, and could put a socket of his own there.
    @unittest.skipIf(os.geteuid() != 0, "only root can start a daemon of another user")
    def test_no_daemon_serves_in_a_folder_of_somebody_else(self):
        shared = pathlib.Path(f"/tmp/snug-{ANOTHER}")
        shared.mkdir(mode=0o755)
        self.addCleanup(shutil.rmtree, shared)
        home = tempfile.mkdtemp(prefix="snug-another-")
        self.addCleanup(shutil.rmtree, home)
        os.chown(home, ANOTHER, ANOTHER)
        line = ["setpriv", f"--reuid={ANOTHER}", f"--regid={ANOTHER}", "--clear-groups"]
        line += [str(pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snugd"), "--device", "cpu:0=1GiB"]
        line += ["--state-dir", f"{home}/state", "--socket", str(shared / "snug.sock")]
        done = subprocess.run(line, env={**os.environ, "HOME": home}, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{shared} is not a folder of this user alone", done.stderr)
        self.assertEqual(list(shared.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
