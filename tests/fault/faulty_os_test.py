"""The daemon over an operating system that fails (tests/fault/faulty_os.cc): disks with errors,
full ones, slow ones, machines that lose power, no memory, a clock that jumps; by the faults'
numbers.

What was acknowledged before must be there after, and what was not may be there once at most. The
worker trains nothing.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import grpc
from tests.fault.faulty_daemon import FaultyDaemon, lose_power, remember
from tests.harness import api
from tests.harness.binaries import binary
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon

LONG = "SNUG_FAULT_LONG" in os.environ  # Each number of a call, not a few.
# Ends of a daemon that cannot go on: sysexits' EX_IOERR, EX_CANTCREAT, EX_TEMPFAIL, EX_DATAERR, an
# error at the start; an abort for want of memory.
ENDS = (74, 73, 75, 65, 1)
ABORT, KILLED, FAULT = -signal.SIGABRT, -signal.SIGKILL, -signal.SIGSEGV
# They do what they are told: who has called them is to blame.
C_LIBRARY = re.compile(r"(ld-linux|libc|libm|libgcc_s|libstdc\+\+)[.-].*")
OURS = ("snugd", "faulty_os.so", "?")
FIXTURES = pathlib.Path(__file__).parents[1] / "server/job"
# For snugd-failing, beside which they are not.
PROGRAMS = "".join(f"{name}: {binary(f'snug-{name}')}\n" for name in ("shim", "inspect"))


def blamed(log):
    """The module whose code a daemon has ended in by SIGSEGV, by what tests/fault/faulty_os.cc has
    told; "snugd" where that is its own, or not known."""
    said = re.search(r"(?m)faulty_os: SIGSEGV in(.*)$", log)
    modules = said[1].split() if said else []
    return next((name for name in modules if not C_LIBRARY.fullmatch(name)), "snugd")


def die_at(test, daemon, point):
    """Starts snugd-failing over this daemon's state folder: it is killed there, by what
    server/failpoint.h has for SNUG_FAILPOINT."""
    words = [os.environ["SNUG_FAILING_DAEMON"], "--state-dir", daemon.state]
    words += ["--socket", daemon.socket, "--device", daemon.device, "--metrics-port", "0"]
    done = subprocess.run(
        list(map(str, [*words, *daemon.flags])),
        env={**os.environ, "SNUG_FAILPOINT": point},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    test.assertEqual(done.returncode, KILLED, f"{point}: {done.stderr}")


class FaultyOsTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FaultyDaemon()
        self.addCleanup(self.daemon.close)

    def ended(self):
        """What the daemon exits with."""
        return self.daemon.process.wait(60)

    # The Nth call fails, wherever it comes from: at the start, in a submit, in a job's end.
    def fail_each(self, call, what, numbers, ends=ENDS):
        hit = 0
        for number in numbers:
            with self.subTest(call=call, what=what, number=number):
                code = self.daemon.suffer(FAULTY_CALL=f"{call}:{what}@{number}")
                for _ in range(3 if code is None else 0):
                    self.daemon.submit_until_refused(4)
                    if self.daemon.hits() or self.daemon.process.poll() is not None:
                        break
                if self.daemon.process.poll() is not None:
                    code = self.ended()
                if code is not None:
                    self.assertIn(code, ends, self.daemon.log.read_text())
                    self.assertTrue(self.daemon.log.read_text().strip())
                hit += self.daemon.hits()
                self.daemon.recover()
        self.assertGreaterEqual(hit, len(numbers) * 2 // 3)  # The rest was not come to.

    def test_f17_a_sync_fails(self):
        self.fail_each("sync", "EIO", range(1, 51) if LONG else (1, 2, 3, 5, 9, 13, 20))

    def test_f18_a_write_fails_or_comes_short(self):
        self.fail_each("write", "EIO", range(1, 51) if LONG else (1, 12, 25, 40))
        self.fail_each("write", "short", range(1, 51) if LONG else (3, 29))

    # F-18: a call that was interrupted is made again, and nobody hears of it.
    def test_f18_interrupted_writes_are_made_again(self):
        for number in range(1, 51) if LONG else (1, 2, 3, 8, 30, 45):
            with self.subTest(number=number):
                self.assertIsNone(self.daemon.suffer(FAULTY_CALL=f"write:EINTR@{number}"))
                for _ in range(10):
                    self.assertEqual(self.daemon.submit_until_refused(2), "")
                    if self.daemon.hits():
                        break
                self.assertTrue(self.daemon.hits())
                self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())
                self.daemon.recover()

    def test_f20_f23_a_disk_that_takes_no_more(self):
        for what in ("ENOSPC", "EDQUOT"):
            with self.subTest(what=what):
                code = self.daemon.suffer(FAULTY_CALL=f"write:{what}@60+")
                if code is None:
                    said = self.daemon.submit_until_refused(40)
                    self.assertIn("STORE_FULL", said)
                    self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())
                    self.daemon.run("list")  # It goes on reading.
                self.daemon.recover()
                self.assertEqual(self.daemon.submit_until_refused(1), "")

    # Or a folder that is somebody else's.
    def test_f23_a_disk_that_is_read_only_all_of_a_sudden(self):
        for call in ("write:EROFS@60+", "write:EACCES@60+", "open:EROFS@300+", "open:EACCES@300+"):
            with self.subTest(call=call):
                code = self.daemon.suffer(FAULTY_CALL=call)
                if code is None:
                    self.daemon.submit_until_refused(40)
                    if self.daemon.process.poll() is not None:
                        code = self.ended()
                if code is not None:  # What is not durable is not gone on with.
                    self.assertIn(code, ENDS, self.daemon.log.read_text())
                self.assertTrue(self.daemon.log.read_text().strip())
                self.assertTrue(self.daemon.hits())
                self.daemon.recover()
                self.assertEqual(self.daemon.submit_until_refused(1), "")

    # Of what was not synced some pages are there after a power cut, and others are not.
    def test_f19_the_machine_loses_power(self):
        synced = self.daemon.folder / "synced"
        synced.mkdir()
        draw = random.Random(19)
        sent = {}
        for cycle in range(20 if LONG else 4):
            remember(self.daemon.state, synced)  # Of an earlier life all is synced.
            self.assertIsNone(self.daemon.suffer(FAULTY_SYNCED=synced), self.daemon.log)
            self.daemon.submit_until_refused(draw.randrange(1, 8))
            for i in range(2):
                sent |= self.upload(f"{cycle}-{i}", draw)
            broken = threading.Thread(target=self.upload, args=(f"{cycle}-cut", draw, False))
            broken.start()
            time.sleep(draw.random() * 0.1)
            self.daemon.kill()
            for program in ("snug-shim", "fake-worker"):
                for pid in self.daemon.processes(program):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
            broken.join()
            lose_power(self.daemon.state, synced, draw)
            self.daemon.recover()
            for name, content in sent.items():
                (kept,) = self.daemon.state.glob(f"uploads/*/{name}/dataset.jsonl")
                self.assertEqual(kept.read_bytes(), content, name)

    # A disk that lies: what it said it had written of the database is gone after a power cut, and
    # with it jobs that were acknowledged. The witness lies elsewhere, and what it says is refused.
    def test_f19_syncs_of_the_database_are_lost(self):
        synced = self.daemon.folder / "synced"
        synced.mkdir()
        self.assertEqual(self.daemon.submit_until_refused(2), "")
        self.daemon.kill()
        remember(self.daemon.state, synced)
        lies = {"FAULTY_CALL": "sync:lost@1+", "FAULTY_DIR": self.daemon.state / "snug.db"}
        self.assertIsNone(self.daemon.suffer(FAULTY_SYNCED=synced, **lies))
        self.assertEqual(self.daemon.submit_until_refused(5), "")
        self.assertTrue(self.daemon.hits())
        self.daemon.kill()
        for file in self.daemon.state.glob("snug.db*"):
            kept = synced / str(file.stat().st_ino)
            file.write_bytes(kept.read_bytes() if kept.is_file() else b"")
        self.assertEqual(self.daemon.suffer(), 65)
        self.assertRegex(self.daemon.log.read_text(), "and has (been at|held) ")

    def upload(self, name, draw, must=True):
        """Sends a file of some pages: its content by its id, {} where it was not taken."""
        file = self.daemon.jobs / f"{name}.jsonl"
        content = b"".join(b'{"text": "%x"}\n' % draw.getrandbits(64) for _ in range(2000))
        file.write_bytes(content)
        done = self.daemon.run("files", "upload", file, code=0 if must else None)
        return {done.stdout.strip(): content} if done.returncode == 0 else {}

    # A library may use a null pointer where there is no memory, our own code may not.
    def test_f74_memory_ends(self):
        draw = random.Random(74)
        numbers = (500, 20000, 60000, 120000)
        if LONG:
            numbers = [*range(1, 5000, 100), *(draw.randrange(5000, 200_000) for _ in range(50))]
        for number in numbers:
            with self.subTest(number=number):
                code = self.daemon.suffer(FAULTY_CALL=f"malloc:null@{number}")
                if code is None:
                    self.daemon.submit_until_refused(6)
                    if self.daemon.process.poll() is not None:
                        code = self.ended()
                if code is not None:
                    log = self.daemon.log.read_text()
                    self.assertIn(code, (*ENDS, ABORT, FAULT), log)
                    if code == FAULT:
                        self.assertNotIn(blamed(log), OURS, log)
                self.daemon.recover()

    # What the test of F-74 goes by: the daemon waits in the C library, which it has called itself.
    def test_a_fault_is_laid_to_whoever_called_the_c_library(self):
        self.assertIsNone(self.daemon.suffer(FAULTY_CALL="malloc:null@1000000000"))
        os.kill(self.daemon.process.pid, signal.SIGSEGV)
        self.assertEqual(self.ended(), FAULT)
        log = self.daemon.log.read_text()
        self.assertIn("faulty_os: SIGSEGV in libc", log)
        self.assertEqual(blamed(log), "snugd")
        told = "[warning] short of memory\nfaulty_os: SIGSEGV in libc.so.6 libgrpc.so.29 snugd\n"
        self.assertEqual(blamed(told), "libgrpc.so.29")
        for untold in ("", "faulty_os: SIGSEGV in\n", "faulty_os: SIGSEGV in libc.so.6\n"):
            self.assertEqual(blamed(untold), "snugd")
        self.daemon.recover()

    # F-75: no descriptors, no processes, no threads for a while: a job waits, and is done when
    # there are some again. The daemon lives on.
    def test_f75_descriptors_processes_and_threads_end(self):
        calls = ("open:EMFILE", "spawn:EAGAIN", "thread:EAGAIN")
        for call in (*calls, "open:ENFILE", "spawn:ENOMEM") if LONG else calls:
            with self.subTest(call=call):
                off = self.daemon.folder / "switch"
                off.write_bytes(b"\0")
                faults = {"FAULTY_SWITCH": off, "FAULTY_DIR": ""}  # All files are meant.
                self.assertIsNone(self.daemon.suffer(FAULTY_CALL=f"{call}@1+", **faults))
                before = self.daemon.submit_script(f"steps=40 step_ms=50 {call}")
                self.daemon.wait_step(before, 1)
                self.turn(off, 1)
                busy = threading.Thread(target=self.daemon.submit_until_refused, args=(3,))
                busy.start()
                time.sleep(5)
                self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())
                self.turn(off, 0)
                busy.join()
                if not call.startswith("thread"):
                    self.assertTrue(self.daemon.hits())
                self.assertEqual(self.daemon.submit_until_refused(1), "")
                self.assertEqual(self.daemon.wait_state(before, "SUCCEEDED")["epoch"], 1)
                for name in self.daemon.acknowledged:
                    self.daemon.wait_state(name, "SUCCEEDED")
                self.daemon.recover()

    # F-75, F-78: the machine has none left. Whoever came meanwhile is answered when it has, over
    # HTTP as well, whose library stops listening for good.
    def test_f75_connections_come_again(self):
        off = self.daemon.folder / "switch"
        off.write_bytes(b"\0")
        faults = {"FAULTY_SWITCH": off, "FAULTY_DIR": ""}
        self.assertIsNone(self.daemon.suffer(FAULTY_CALL="accept:ENFILE@1+", **faults))
        self.daemon.metrics()
        self.turn(off, 1)
        # One call of accept that is under way already lets one more in.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = [pool.submit(self.daemon.metrics) for _ in range(2)]
            told = lambda: "takes no connections for the moment" in self.daemon.log.read_text()
            wait_for(told, "the daemon to say so", 60)
            self.turn(off, 0)
            for answer in answers:
                self.assertIn("snug_jobs", answer.result())
        self.assertTrue(self.daemon.hits())
        self.daemon.run("list")
        self.daemon.recover()

    @staticmethod
    def turn(switch, on):
        with open(switch, "r+b") as file:
            file.write(bytes([on]))

    # No worker is taken for a stuck one, and no submit is lost, because the disk takes its time,
    # and all have a twentieth of a processor.
    def test_f76_each_sync_takes_long_and_the_processor_is_busy(self):
        self.assertIsNone(self.daemon.suffer(FAULTY_CALL="sync:delay@1+"))
        name = self.daemon.submit_script("steps=60 step_ms=100")
        self.daemon.acknowledged.append(name)
        self.daemon.wait_step(name, 1)
        ends = time.monotonic() + (120 if LONG else 12)
        while time.monotonic() < ends:
            everyone = [self.daemon.process.pid, *self.daemon.processes()]
            for number, seconds in ((signal.SIGSTOP, 0.95), (signal.SIGCONT, 0.05)):
                for pid in everyone:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(seconds)
        self.assertEqual(self.daemon.submit_until_refused(2), "")
        for job in self.daemon.acknowledged:
            self.assertEqual(self.daemon.wait_state(job, "SUCCEEDED")["epoch"], 1)
        self.daemon.recover()

    # F-68: told to end while commits are under way: what it acknowledged is there.
    def test_f68_told_to_end_during_commits(self):
        for _ in range(3):
            self.assertIsNone(self.daemon.suffer(FAULTY_CALL="sync:delay@1+"))
            busy = [
                threading.Thread(target=self.daemon.submit_until_refused, args=(20,))
                for _ in range(4)
            ]
            for one in busy:
                one.start()
            time.sleep(1)
            begin = time.monotonic()
            self.assertEqual(self.daemon.kill(signal.SIGTERM), 0, self.daemon.log.read_text())
            self.assertLess(time.monotonic() - begin, 20)
            for one in busy:
                one.join()
            self.daemon.recover()

    def test_f66_the_wall_clock_jumps(self):
        clock = self.daemon.folder / "clock"
        clock.write_bytes(struct.pack("q", 0))
        self.assertIsNone(self.daemon.suffer(FAULTY_CLOCK=clock))
        # It is so long that on a busy machine, too, all jumps come before its end.
        name = self.daemon.submit_script("steps=120 step_ms=100")
        self.daemon.wait_step(name, 3)
        for ahead in (86400, -2 * 86400, 3600, -20 * 365 * 86400, 0):
            with open(clock, "r+b") as file:
                file.write(struct.pack("q", ahead))
            step = int(self.daemon.job(name)["progress"]["global_step"])
            self.daemon.wait_step(name, step + 2)
            self.assertEqual(self.daemon.submit_until_refused(1), "")
        self.daemon.acknowledged.append(name)
        self.assertEqual(self.daemon.wait_state(name, "SUCCEEDED")["epoch"], 1)
        for job in self.daemon.acknowledged:
            self.daemon.wait_state(job, "SUCCEEDED")
        self.daemon.kill()
        with contextlib.closing(sqlite3.connect(self.daemon.state / "snug.db")) as rows:
            events = rows.execute("SELECT seq, wall_us FROM events ORDER BY seq").fetchall()
        order, times = zip(*events)
        self.assertEqual(order, tuple(range(1, len(order) + 1)))
        self.assertEqual(times, tuple(sorted(set(times))))
        self.daemon.recover()

    # Its first retry comes at once, its second after 10 s, which it is about to wait.
    def test_f66_a_retry_comes_in_time_though_the_clock_is_set_back(self):
        clock = self.daemon.folder / "clock"
        clock.write_bytes(struct.pack("q", 0))
        self.assertIsNone(self.daemon.suffer(FAULTY_CLOCK=clock))
        name = self.daemon.submit_script("steps=20 crash_at=2")
        waits = lambda: "tries again in" in (job := self.daemon.job(name))["reason"] and job
        epoch = wait_for(waits, "the job to wait for its retry", 60)["epoch"]
        with open(clock, "r+b") as file:
            file.write(struct.pack("q", -86400))
        wait_for(lambda: self.daemon.job(name)["epoch"] > epoch, "its retry", 120)
        self.daemon.run("cancel", name)
        self.daemon.recover()


class MigrationTest(unittest.TestCase):
    """F-16: killed at each commit of a migration, before it and after, the store is of the old
    schema or of the new."""

    def setUp(self):
        self.daemon = FakeDaemon(settings=PROGRAMS)
        self.addCleanup(self.daemon.close)
        self.daemon.kill()
        self.newest = self.schema()[0]
        shutil.rmtree(self.daemon.state)

    # From the first schema and from the last one before this daemon's.
    def test_f16_killed_in_a_migration(self):
        versions = [int(file.stem.split("_")[1]) for file in FIXTURES.glob("schema_*.sql")]
        older = [version for version in versions if version < self.newest]
        self.assertEqual(min(older), 1)
        for version in {1, max(older)}:
            with self.subTest(version=version):
                self.migrate_from(version)

    def migrate_from(self, version):
        """Kills at one commit after the other until the store is of the newest schema."""
        self.lay(version)
        jobs, left, migrated = self.jobs(), self.schema(), set()
        self.assertEqual(left[0], version)
        hit = 0
        while left[0] < self.newest:
            hit += 1
            self.kill_at(f"store.commit=kill@{hit}", version)
            self.assertEqual(self.schema(), left, f"before commit {hit}")
            self.kill_at(f"store.committed=kill@{hit}", version)
            before, left = left, self.schema()
            self.assertEqual(left[0], before[0] + 1, f"after commit {hit}")
            self.daemon.start()
            self.daemon.kill()
            self.assertEqual(self.jobs(), jobs)
            migrated.add(self.schema())
        self.assertEqual(migrated, {left})  # The one that the last commit had made.

    def lay(self, version):
        """A state folder with the store of that version alone."""
        shutil.rmtree(self.daemon.state, ignore_errors=True)
        self.daemon.state.mkdir()
        with contextlib.closing(sqlite3.connect(self.daemon.state / "snug.db")) as rows:
            rows.executescript((FIXTURES / f"schema_{version}.sql").read_text())

    def kill_at(self, point, version):
        self.lay(version)
        die_at(self, self.daemon, point)

    def read(self, *queries):
        """Rows of the store. A copy is looked at, with its log: the store stays as it was left."""
        with tempfile.TemporaryDirectory() as folder:
            for file in self.daemon.state.glob("snug.db*"):
                shutil.copy(file, folder)
            with contextlib.closing(sqlite3.connect(f"{folder}/snug.db")) as rows:
                return [tuple(rows.execute(query)) for query in queries]

    def schema(self):
        """The store's version, and its tables, indexes and triggers."""
        tables = "SELECT name, sql FROM sqlite_master ORDER BY name"
        ((version,),), made = self.read("PRAGMA user_version", tables)
        return version, made

    def jobs(self):
        (ids,) = self.read("SELECT id FROM jobs ORDER BY id")
        return ids


class CrashLoopTest(unittest.TestCase):
    """A job that was in the daemon's hands whenever that ended, twice, waits for somebody to look;
    others run."""

    def runs(self, daemon, *changes):
        """A job with other data than those before it."""
        text = (daemon.jobs / "train.jsonl").read_text()
        (daemon.jobs / "other.jsonl").write_text(text * 2)
        other = daemon.submit_script("steps=3", f"dataset={daemon.jobs}/other.jsonl", *changes)
        daemon.wait_state(other, "SUCCEEDED")
        self.assertIsNone(daemon.process.poll(), daemon.log.read_text())

    # It dies where it reads what a job's dataset was prepared to, the first time and at the next
    # start. At the third it would still die there, and does not go there.
    def test_a_job_whose_files_end_the_daemon_twice_is_parked(self):
        daemon = FaultyDaemon()
        self.addCleanup(daemon.close)
        daemon.wait_state(daemon.submit_script("steps=1"), "SUCCEEDED")
        (summary,) = daemon.state.glob("datasets/*/summary.json")
        dies = {"FAULTY_CALL": "read:kill@1", "FAULTY_DIR": summary}
        self.assertIsNone(daemon.suffer(**dies))
        job = {"job_id": "deadly", "spec": api.spec_of(daemon, "steps=2")}
        with api.dial(daemon.socket) as channel, contextlib.suppress(grpc.RpcError):
            api.call(channel, "CreateJob", **job)
        self.assertEqual(daemon.process.wait(60), KILLED)
        code = daemon.suffer(**dies)  # It may have answered before.
        self.assertEqual(daemon.process.wait(60) if code is None else code, KILLED)
        self.assertIsNone(daemon.suffer(**dies))
        held = daemon.wait_state("deadly", "PAUSED")
        said = "held: the daemon ended 2 times while it was at work on this job"
        self.assertIn(said, held["reason"])
        self.runs(daemon)
        self.assertFalse(daemon.hits())
        self.assertEqual(daemon.job("deadly")["state"], "PAUSED")
        daemon.acknowledged.append("deadly")
        daemon.recover()
        daemon.run("resume", "deadly")  # By whoever has looked.
        self.assertEqual(daemon.wait_state("deadly", "SUCCEEDED")["epoch"], 1)

    # It dies while it verifies the output of an attempt that ended without it, at two starts.
    def test_what_an_attempt_left_is_not_read_a_third_time(self):
        daemon = FakeDaemon(settings=PROGRAMS)
        self.addCleanup(daemon.close)
        name = daemon.submit_script("steps=40 step_ms=50")
        daemon.wait_step(name, 1)
        daemon.kill()
        wait_for((daemon.attempt(name) / "exit.json").is_file, "the worker to end")
        for _ in range(2):
            die_at(self, daemon, "inspect.send=kill")
        daemon.start()
        parked = daemon.wait_state(name, "PAUSED")
        said = "the daemon ended 2 times while it read what attempt 1 left"
        self.assertIn(said, parked["reason"])
        self.runs(daemon, "method=full")
        self.assertEqual(daemon.job(name)["state"], "PAUSED")
        self.assertEqual(daemon.json("doctor").get("findings", []), [])
        daemon.run("resume", name)
        self.assertEqual(daemon.wait_state(name, "SUCCEEDED")["epoch"], 2)


if __name__ == "__main__":
    unittest.main()
