"""tests/fault/README.md has each fault once, and names tests that there are."""

import pathlib
import re
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROWS = re.findall(r"(?m)^\| F-(\d\d) \|(.*)\|$", (TESTS / "fault/README.md").read_text())
NUMBERS = [*range(1, 70), *range(74, 80)]  # Those of one machine.


def is_numbered(number, name, before, after):
    """Whether a test bears the fault's number: in its name, in the comment above it, in its
    docstring, or in that of its class."""
    comment = re.search(r"(?:^[ ]*(?:#|//|@).*\n)*[ ]*\Z", before, re.MULTILINE)[0]
    docstring = re.match(r'.*\n\s*"""(.*?)"""', after, re.DOTALL)
    docstring = docstring[1] if docstring and docstring.start() == 0 else ""
    classes = re.findall(r'(?m)^class \w+.*\n    """((?:.|\n)*?)"""', before)
    said = comment + docstring.split("def ")[0] + (classes[-1] if classes else "")
    return f"_f{number}_" in name or f"F-{number}" in said


class ListTest(unittest.TestCase):
    def test_each_fault_is_there_once(self):
        self.assertEqual(sorted(int(number) for number, _ in ROWS), NUMBERS)

    def test_tests_are_there(self):
        shown = [(number, re.findall(r"`([\w/]+\.(?:py|cc)): (\w+)`", row)) for number, row in ROWS]
        self.assertGreaterEqual(sum(bool(named) for _, named in shown), 60)
        for number, named in shown:
            for file, name in named:
                text = (TESTS / file).read_text(encoding="utf-8")
                begin = "def " if file.endswith(".py") else r"TEST(?:_F|_P)?\(\w+, "
                self.assertRegex(text, rf"{begin}{name}[()]", f"F-{number}")
                before, after = re.split(rf"{begin}{name}[()]", text, maxsplit=1)
                self.assertTrue(
                    is_numbered(number, name, before, after), f"{file}: {name} has no F-{number}"
                )


if __name__ == "__main__":
    unittest.main()
