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
import sqlite3
import struct
import subprocess
import unittest

from tests.harness.daemon import Failed, wait_for
from tests.harness.fake_daemon import FakeDaemon

LAYER = os.environ["SNUG_FAULTY_OS"]
PAGE = 4096
# Ends of a daemon that cannot go on: sysexits' EX_IOERR, EX_CANTCREAT, EX_TEMPFAIL, EX_DATAERR, an
# error at the start; an abort for want of memory.
ENDS = (74, 73, 75, 65, 1)
ABORT = -6


class FaultyDaemon(FakeDaemon):
    """snugd whose calls fail as `faults` say, from the next start on."""

    def __init__(self):
        super().__init__()
        self.acknowledged = []

    def suffer(self, **faults):
        """Ends it, and starts it over an operating system with these faults. The code it exits
        with, where it does not get so far as to serve."""
        if self.process.poll() is None:
            self.kill()
        layer = {"LD_PRELOAD": LAYER, "FAULTY_DIR": self.state} | faults
        settings = [f"{name}={value}" for name, value in layer.items()]
        self.under = ["env", *settings] if faults else []
        try:
            self.start()
        except RuntimeError:
            return self.process.returncode
        return None

    def recover(self):
        """Starts it over a sound operating system; everything acknowledged is there, and once."""
        code = self.suffer()
        if code is not None:
            raise AssertionError(self.log.read_text())
        jobs = self.json("list", "--all", "--limit", 1000)["jobs"]
        ids = [job["id"] for job in jobs]
        missing = set(self.acknowledged) - set(ids)
        names = [job["display_name"] for job in jobs]
        doubled = {name for name in names if names.count(name) > 1}
        if missing or doubled:
            raise AssertionError(f"lost {missing}, doubled {doubled}")
        found = self.json("doctor").get("findings", [])
        if found:
            raise AssertionError(found)

    def submit_until_refused(self, most):
        """Submits jobs under names of their own; gives what the first refusal said, if any."""
        for _ in range(most):
            name = f"steps=1 n={len(os.listdir(self.folder))}-{random.getrandbits(40):x}"
            try:
                self.acknowledged.append(self.submit_script(name))
            except Failed as failed:
                return failed.done.stderr
        return ""


class FaultyOsTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FaultyDaemon()
        self.addCleanup(self.daemon.close)

    def ended(self):
        """What the daemon exits with."""
        return self.daemon.process.wait(60)

    # The Nth call fails, wherever it comes from: at the start, in a submit, in a job's end.
    def fail_each(self, call, what, numbers):
        for number in numbers:
            with self.subTest(call=call, what=what, number=number):
                code = self.daemon.suffer(FAULTY_CALL=f"{call}:{what}@{number}")
                if code is None:
                    self.daemon.submit_until_refused(4)
                    if self.daemon.process.poll() is not None:
                        code = self.ended()
                if code is not None:
                    self.assertIn(code, ENDS, self.daemon.log.read_text())
                    self.assertTrue(self.daemon.log.read_text().strip())
                self.daemon.recover()

    def test_f17_a_sync_fails(self):
        self.fail_each("sync", "EIO", (1, 2, 6, 9, 13))

    def test_f18_a_write_fails_or_comes_short(self):
        self.fail_each("write", "EIO", (1, 12, 25, 40))
        self.fail_each("write", "short", (3, 29))
        self.fail_each("write", "EINTR", (3, 30))

    def test_f20_f23_a_disk_or_a_quota_is_full(self):
        for what in ("ENOSPC", "EDQUOT"):
            with self.subTest(what=what):
                code = self.daemon.suffer(FAULTY_CALL=f"write:{what}@60+")
                if code is None:
                    said = self.daemon.submit_until_refused(40)
                    self.assertTrue(said)
                    self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())
                    self.daemon.run("list")  # It goes on reading.
                self.daemon.recover()
                self.assertEqual(self.daemon.submit_until_refused(1), "")

    # Of what was not synced some pages are there after a power cut, and others are not.
    def test_f19_the_machine_loses_power(self):
        synced = self.daemon.folder / "synced"
        synced.mkdir()
        draw = random.Random(19)
        for _ in range(4):
            for file in self.daemon.state.glob("snug.db*"):  # Of an earlier life all is synced.
                shutil.copy(file, synced / f"%{file.name}")
            self.assertIsNone(self.daemon.suffer(FAULTY_SYNCED=synced), self.daemon.log)
            self.daemon.submit_until_refused(draw.randrange(1, 12))
            self.daemon.kill()
            for program in ("snug-shim", "fake-worker"):
                for pid in self.daemon.processes(program):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
            self.lose_power(synced, draw)
            self.daemon.recover()

    def lose_power(self, synced, draw):
        for file in self.daemon.state.iterdir():
            if not file.is_file() or file.suffix == ".sock":
                continue
            kept = synced / f"%{file.name}"
            if file.name.endswith("-shm"):
                file.unlink()  # Memory of the processes that there were.
            elif file.name.startswith(("snug.db", "witness")) and kept.is_file():
                file.write_bytes(torn(kept.read_bytes(), file.read_bytes(), draw))

    def test_f74_memory_ends(self):
        for number in (500, 20000, 60000, 120000):
            with self.subTest(number=number):
                code = self.daemon.suffer(FAULTY_CALL=f"malloc:null@{number}")
                if code is None:
                    self.daemon.submit_until_refused(6)
                    if self.daemon.process.poll() is not None:
                        code = self.ended()
                if code is not None:
                    self.assertIn(code, (*ENDS, ABORT, -11), self.daemon.log.read_text())
                self.daemon.recover()

    # No worker is taken for a stuck one, and no submit is lost, because the disk takes its time.
    def test_f76_each_sync_takes_long(self):
        self.assertIsNone(self.daemon.suffer(FAULTY_CALL="sync:delay@1+"))
        name = self.daemon.submit_script("steps=5 step_ms=50")
        self.daemon.acknowledged.append(name)
        self.assertEqual(self.daemon.wait_state(name, "SUCCEEDED")["epoch"], 1)
        self.assertEqual(self.daemon.submit_until_refused(2), "")
        self.daemon.recover()

    def test_f66_the_wall_clock_jumps(self):
        clock = self.daemon.folder / "clock"
        clock.write_bytes(struct.pack("q", 0))
        self.assertIsNone(self.daemon.suffer(FAULTY_CLOCK=clock))
        name = self.daemon.submit_script("steps=60 step_ms=50")
        self.daemon.wait_step(name, 3)
        for ahead in (86400, -2 * 86400, 3600, -20 * 365 * 86400, 0):
            with open(clock, "r+b") as file:
                file.write(struct.pack("q", ahead))
            step = int(self.daemon.job(name)["progress"]["global_step"])
            self.daemon.wait_step(name, min(step + 4, 58))
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


def torn(old, new, draw):
    """Of a file whose last sync left `old` and whose writes since made it `new`: each page is one
    of both."""
    pages = []
    for at in range(0, max(len(old), len(new)), PAGE):
        first, second = old[at : at + PAGE], new[at : at + PAGE]
        pages.append(second if draw.random() < 0.5 and second else first or second)
    return b"".join(pages)


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
