"""The units of the Debian package are as hard as systemd-analyze measures, and say why they are not
harder."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from tests.harness.binaries import ROOT

FOLDER = ROOT / "deploy/debian"
SERVICES = {"snugd.service": 2.0, "snug-worker@.service": 2.0}  # The most exposure, of 10.


def analyze(*words):
    words = ["systemd-analyze", *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def left_off(path):
    """Directives that systemd-analyze misses in a unit."""
    found = json.loads(analyze("security", "--offline=true", "--json=short", path).stdout)
    names = [entry["name"] for entry in found if entry.get("set") is False]
    # "RootDirectory=/RootImage=", "SystemCallFilter=~@resources": those with a set by the set.
    return [name if "=~@" in name else re.split("[=/]", name)[0] for name in names]


def reasons(text):
    """The list of directives at the top of a unit, each with its reason."""
    return re.findall(r"^#   ([A-Z][\w=~@, ]*?)  +\S", text, re.MULTILINE)


class UnitsTest(unittest.TestCase):
    def test_exposure(self):
        for name, most in SERVICES.items():
            threshold = f"--threshold={most * 10:.0f}"
            done = analyze("security", "--offline=true", threshold, FOLDER / name)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("Overall exposure level", done.stdout)

    # The threshold is one that a unit can miss.
    def test_a_unit_without_hardening_is_too_exposed(self):
        with tempfile.TemporaryDirectory() as folder:
            bare = pathlib.Path(folder) / "bare.service"
            bare.write_text("[Service]\nExecStart=/bin/true\n")
            done = analyze("security", "--offline=true", "--threshold=20", bare)
            self.assertNotEqual(done.returncode, 0)

    def test_what_is_left_off_has_its_reason(self):
        for name in SERVICES:
            text = (FOLDER / name).read_text()
            said = [word for group in reasons(text) for word in re.split(", ", group)]
            for directive in left_off(FOLDER / name):
                known = [word for word in said if word.split("=")[0] == directive.split("=")[0]]
                self.assertTrue(known, f"{name}: {directive} is left off without a reason")
            # Nor is there a reason for what is not left off.
            for word in said:
                line, _, value = word.partition("=")
                setting = re.search(rf"^{line}=(.*)$", text, re.MULTILINE)
                kept = setting and not value and line not in left_off(FOLDER / name)
                self.assertFalse(kept, f"{name}: {word} is set, and a reason says it is not")

    # Every setting is one that systemd knows, and in its place.
    def test_units_are_understood(self):
        units = [FOLDER / name for name in (*SERVICES, "snug-worker.socket", "snug.slice")]
        said = analyze("verify", "--man=no", *units).stderr
        of_programs = re.compile(r".* is not executable: No such file or directory")
        lines = [line for line in said.splitlines() if "snug" in line]
        self.assertEqual([], [line for line in lines if not of_programs.match(line)])


if __name__ == "__main__":
    unittest.main()
