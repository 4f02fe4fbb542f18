"""The daemon over an operating system that fails (tests/fault/faulty_os.cc): disks with errors,
full ones, slow ones, machines that lose power, no memory, a clock that jumps; by the faults'
numbers.

What was acknowledged before must be there after, and what was not may be there once at most. The
worker trains nothing.
"""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import threading
import time
import unittest

from tests.fault.faulty_daemon import FaultyDaemon, lose_power, remember
from tests.harness.fake_daemon import FakeDaemon

LONG = "SNUG_FAULT_LONG" in os.environ  # Each number of a call, not a few.
# Ends of a daemon that cannot go on: sysexits' EX_IOERR, EX_CANTCREAT, EX_TEMPFAIL, EX_DATAERR, an
# error at the start; an abort for want of memory.
ENDS = (74, 73, 75, 65, 1)
ABORT = -6


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

    def upload(self, name, draw, must=True):
        """Sends a file of some pages: its content by its id, {} where it was not taken."""
        file = self.daemon.jobs / f"{name}.jsonl"
        content = b"".join(b'{"text": "%x"}\n' % draw.getrandbits(64) for _ in range(2000))
        file.write_bytes(content)
        done = self.daemon.run("files", "upload", file, code=0 if must else None)
        return {done.stdout.strip(): content} if done.returncode == 0 else {}

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
                    self.assertIn(code, (*ENDS, ABORT, -11), self.daemon.log.read_text())
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
            order = [row[0] for row in rows.execute("SELECT seq FROM events ORDER BY seq")]
        self.assertEqual(order, list(range(1, len(order) + 1)))
        self.daemon.recover()


class MigrationTest(unittest.TestCase):
    """F-16: killed at each commit of a migration, the store is of the old schema or of the new."""

    def test_f16_killed_in_a_migration(self):
        daemon = FakeDaemon()
        self.addCleanup(daemon.close)
        daemon.kill()
        shutil.rmtree(daemon.state)
        folder = pathlib.Path(__file__).parents[1] / "server/job"
        for hit in range(1, 5):
            daemon.state.mkdir()
            with contextlib.closing(sqlite3.connect(daemon.state / "snug.db")) as rows:
                rows.executescript((folder / "schema_1.sql").read_text())
                jobs = rows.execute("SELECT count(*) FROM jobs").fetchone()
            words = [os.environ["SNUG_FAILING_DAEMON"], "--state-dir", daemon.state]
            words += ["--socket", daemon.socket, "--device", daemon.device, "--metrics-port", "0"]
            environment = {**os.environ, "SNUG_FAILPOINT": f"store.committed=kill@{hit}"}
            killed = subprocess.run(
                list(map(str, [*words, *daemon.flags])), env=environment, timeout=60, check=False
            )
            self.assertEqual(killed.returncode, -9, f"commit {hit} was not come to")
            daemon.start()
            daemon.kill()
            with contextlib.closing(sqlite3.connect(daemon.state / "snug.db")) as rows:
                self.assertEqual(rows.execute("SELECT count(*) FROM jobs").fetchone(), jobs)
            shutil.rmtree(daemon.state)


if __name__ == "__main__":
    unittest.main()
