"""Ctrl-C in `snug watch` on a terminal: the user leaves, the job goes on, and it is said how to
stop it."""

import os
import signal
import unittest

from tests.harness.binaries import binary
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon
from tests.harness.terminal import ESCAPES, Terminal

LONG = "steps=100000 step_ms=50"


class WatchInterruptTest(unittest.TestCase):
    """A job that runs as long as it is looked at."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon("cpu:0=1GiB")
        cls.addClassCleanup(cls.daemon.close)
        cls.job = cls.daemon.submit_script(LONG)
        cls.daemon.wait_step(cls.job, 1)

    def leave(self, *arguments):
        """What the terminal shows of a command that is left by the key, once it draws steps."""
        command = [str(binary("snug")), "--server", f"unix:{self.daemon.socket}", *arguments]
        terminal = Terminal(command, 24, 100)
        self.addCleanup(terminal.close)

        def shown():
            return ESCAPES.sub("", terminal.text.decode(errors="replace"))

        def drawn():
            terminal.read()
            return "\rstep " in shown()

        wait_for(drawn, "a step", 60)
        os.write(terminal.master, b"\x03")
        code = terminal.end()
        return code, shown().replace("\r\n", "\n")

    def check(self, job, code, text):
        """The shell sees a command that was interrupted; the job is where it was, and goes on."""
        self.assertEqual(code, -signal.SIGINT)
        self.assertTrue(
            text.endswith(
                f"\nsnug: the job goes on. Follow it: snug watch {job}; stop it and keep what it "
                f"made: snug cancel {job} --keep; let it wait: snug pause {job}\n"
            ),
            text,
        )
        self.assertEqual(self.daemon.job(job)["state"], "RUNNING")
        step = int(self.daemon.job(job)["progress"]["global_step"])
        self.daemon.wait_step(job, step + 2)

    def test_watch(self):
        code, text = self.leave("watch", self.job)
        self.check(self.job, code, text)

    def test_submit_and_watch(self):
        file = self.daemon.job_file()
        code, text = self.leave("submit", str(file), f"display_name={LONG}", "--watch")
        job = text.split("\n", 1)[0].strip()
        self.check(job, code, text)


if __name__ == "__main__":
    unittest.main()
