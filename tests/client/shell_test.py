"""Completions and the manual page are made of the commands' help: shells take them, and every
command is in them."""

import os
import subprocess
import sys
import unittest

from tests.harness.binaries import binary

COMMANDS = "plan submit list get watch logs cancel devices download datasets import plot shell top"


def shell(name):
    line = [str(binary("snug")), "shell", name]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def completed(words):
    """What bash offers behind the words, the last of which is being typed."""
    script = shell("bash") + (
        "COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _snug; "
        'printf "%s\\n" "${{COMPREPLY[@]}}"'
    ).format(" ".join(f"'{word}'" for word in words))
    line = ["bash", "--norc", "-c", script]
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split()


class ShellTest(unittest.TestCase):
    def test_bash_completes_commands_and_options(self):
        self.assertEqual(completed(["snug", "ca"]), ["cancel"])
        self.assertEqual(completed(["snug", "logs", "--fo"]), ["--follow"])
        self.assertEqual(completed(["snug", "datasets", "prev"]), ["preview"])
        self.assertIn("--server", completed(["snug", "get", "--s"]))
        for command in COMMANDS.split():
            self.assertIn(command, completed(["snug", ""]))

    def test_other_shells_take_theirs(self):
        for name in ("zsh", "fish"):
            text = shell(name)
            for command in COMMANDS.split():
                self.assertIn(command, text)
            run = subprocess.run([name, "-n"], input=text, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""))

    # No line that begins with a dot is anything but a request of man's macros.
    def test_manual_page(self):
        page = shell("man")
        for command in COMMANDS.split():
            self.assertRegex(page, rf"\n\.SS {command}\b")
        requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
        self.assertEqual(requests, {".TH", ".SH", ".SS", ".TP", ".B"})
        self.assertIn("\\-f, \\-\\-follow", page)


if __name__ == "__main__":
    sys.exit(unittest.main())
