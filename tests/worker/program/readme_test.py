"""The block that worker/program/README.md walks through is the one that its command prints."""

import re
import shlex
import subprocess
import unittest

from tests.harness import binaries

README = binaries.ROOT / "worker" / "program" / "README.md"


def section():
    return README.read_text().split("## A worked block\n")[1].split("\n## ")[0]


def shown_lines(text):
    """The lines of the tape in the section's blocks; one that is broken stands in one again."""
    for block in re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in re.split(r"\n(?= *\d+ block )", block):
            yield " ".join(line.split())


class ReadmeTest(unittest.TestCase):
    def test_the_worked_block_is_what_the_command_prints(self):
        (command,) = re.findall(r"`build/(tests/bin/show_tape [^`]*)`", section())
        tool, *arguments = shlex.split(command)
        printed = subprocess.run(
            [binaries.binary("show_model").parents[1] / tool, *arguments],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        tape = {" ".join(line.split()) for line in printed.splitlines()}
        shown = list(shown_lines(section()))
        self.assertGreater(len(shown), 10)
        self.assertEqual([line for line in shown if line not in tape], [])


if __name__ == "__main__":
    unittest.main()
