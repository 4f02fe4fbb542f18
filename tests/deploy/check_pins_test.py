"""deploy/check_pins.py: what setup.sh has to install."""

import os
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import version

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))


def missing(text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        command = [sys.executable, os.path.join(ROOT, "deploy/check_pins.py"), file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


class CheckPinsTest(unittest.TestCase):
    def test_installed_version_is_not_missing(self):
        self.assertEqual(
            missing(f"# a comment\ntokenizers=={version('tokenizers')}  # why\n\n"), []
        )

    def test_other_version_and_unknown_package_are_missing(self):
        pins = ["tokenizers==0.0.1", "no-such-package-of-snug==1.0"]
        self.assertEqual(missing("\n".join(pins)), pins)

    # The wheel of torch calls itself 2.11.0+cu130; the pin is 2.11.0.
    def test_local_version_counts_as_the_pinned_one(self):
        self.assertEqual(missing(f"torch=={version('torch').split('+')[0]}"), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
