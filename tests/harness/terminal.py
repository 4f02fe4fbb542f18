"""A terminal of a test's own."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with a program on it."""

    def __init__(self, command, rows, columns):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = self.settings()
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )
        self.text = b""

    def settings(self):
        """Echo, signals by keys and all that, as a shell would find them."""
        return termios.tcgetattr(self.slave)

    def resize(self, rows, columns):
        """The kernel tells the program."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """What is there."""
        while select.select([self.master], [], [], 0.05)[0]:
            self.text += os.read(self.master, 65536)

    def screen(self):
        """The lines of the last screen that was drawn in full, without colours."""
        self.read()
        screens = self.text.decode(errors="replace").split("\x1b[H")[1:]
        whole = [each.split("\x1b[J")[0] for each in screens if "\x1b[J" in each]
        return ESCAPES.sub("", whole[-1]).split("\r\n") if whole else []

    def end(self):
        """The exit code, after everything is read."""
        end = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.read()
        return self.process.poll()

    def close(self):
        """Ends the program if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)
