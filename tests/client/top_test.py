"""`snug top` on a terminal of the test's own: it is drawn, follows jobs and the terminal's size,
and leaves the terminal as it was."""

import json
import os
import re
import signal
import time
import unittest

from tests.harness.binaries import binary
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon
from tests.harness.terminal import Terminal

LONG = "steps=100000 step_ms=50"
LEAVE = b"\x1b[?25h\x1b[?1049l"


class TopTest(unittest.TestCase):
    """A job that runs, one that waits."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon("cpu:0=1GiB", ONE_AT_A_TIME)
        cls.addClassCleanup(cls.daemon.close)
        cls.runs = cls.daemon.submit_script(LONG)
        cls.daemon.wait_step(cls.runs, 1)
        cls.waits = cls.daemon.submit_script(LONG)
        cls.daemon.wait_state(cls.waits, "QUEUED")

    def open(self, rows=24, columns=100):
        """`snug top` on a terminal, drawn."""
        command = [str(binary("snug")), "--server", f"unix:{self.daemon.socket}", "top"]
        terminal = Terminal(command, rows, columns)
        self.addCleanup(terminal.close)
        wait_for(terminal.screen, "a screen", 30)
        return terminal

    def test_it_shows_devices_jobs_and_the_queue_and_goes_on(self):
        terminal = self.open()
        wait_for(lambda: any(self.waits in line for line in terminal.screen()), "the queue", 30)
        lines = terminal.screen()
        bars = [line for line in lines if "[" in line]
        self.assertRegex(bars[0], r"^  predicted \[a* *\] [\d.]+ MiB$")
        self.assertRegex(bars[1], r"^  actual    \[a* *\] [\d.]+ MiB$")
        self.assertEqual({len(line.split("]")[0]) for line in bars}, {100 - 14 + 1})
        self.assertIn("1 job waits", lines)

        def step():
            (line,) = [each for each in terminal.screen() if each.startswith("a ")]
            return int(re.search(r" (\d+)/", line)[1])

        first = step()
        wait_for(lambda: step() > first, "later steps", 30)

    def test_it_fills_the_size_that_the_terminal_gets(self):
        terminal = self.open()
        terminal.resize(5, 50)
        wait_for(lambda: len(terminal.screen()) == 5, "five lines", 30)
        lines = terminal.screen()
        self.assertLessEqual(max(map(len, lines)), 50)
        self.assertRegex(lines[-1], r"^\.\.\. and \d+ lines more$")

    def test_keys_and_signals_leave_the_terminal_as_it_was(self):
        def q(terminal):
            os.write(terminal.master, b"q")

        def ctrl_c(terminal):
            os.write(terminal.master, b"\x03")

        def term(terminal):
            terminal.process.send_signal(signal.SIGTERM)

        for leave in (q, ctrl_c, term):
            with self.subTest(leave.__name__):
                terminal = self.open()
                self.assertNotEqual(terminal.settings(), terminal.before)
                leave(terminal)
                self.assertEqual(terminal.end(), 0)
                self.assertTrue(terminal.text.endswith(LEAVE), terminal.text[-100:])
                self.assertEqual(terminal.settings(), terminal.before)

    def test_other_keys_do_nothing(self):
        terminal = self.open()
        os.write(terminal.master, b"x\x1a")  # Ctrl-Z would leave the terminal as it must not be.
        time.sleep(0.3)
        self.assertIsNone(terminal.process.poll())

    def test_once_is_text_for_scripts(self):
        for words in (("top", "--once"), ("top",)):  # No terminal: once.
            text = self.daemon.run(*words).stdout
            self.assertNotIn("\x1b", text)
            self.assertRegex(text, rf"(?m)^a  {self.runs} .* RUNNING ")
            self.assertRegex(text, rf"(?m)^ +0  {self.waits} +QUEUED  waits for ")
        view = json.loads(self.daemon.run("top", "--output", "json").stdout)
        self.assertEqual([job["id"] for job in view["running"]], [self.runs])
        self.assertEqual([job["id"] for job in view["waiting"]], [self.waits])
        self.assertEqual(view["devices"][0]["reservations"][0]["job"], self.runs)

    def test_a_daemon_that_is_away_is_said_to_be(self):
        daemon = FakeDaemon()
        self.addCleanup(daemon.close)
        command = [str(binary("snug")), "--server", f"unix:{daemon.socket}", "top"]
        terminal = Terminal(command, 24, 100)
        self.addCleanup(terminal.close)
        wait_for(lambda: any("q leaves" in line for line in terminal.screen()), "a screen", 30)
        daemon.kill()
        wait_for(lambda: "q leaves" not in terminal.screen()[0], "that it is away", 30)
        self.assertIn("cpu:0", terminal.screen()[1])  # As it was known last.
        daemon.start()
        wait_for(lambda: "q leaves" in terminal.screen()[0], "that it is back", 30)


if __name__ == "__main__":
    unittest.main()
