"""kernels/README.md says where every op is, what tests it, and which test each oracle of the
methods has; and every op has a row among the refusals of bad arguments."""

import re
import subprocess
import unittest

from tests.harness.binaries import ROOT, binary

KERNELS = ROOT / "kernels"
TESTS = ROOT / "tests" / "kernels"
README = (KERNELS / "README.md").read_text(encoding="utf-8")

# Oracles of the methods: how many each group has, and the names of those that are not numbers.
ORACLES = {"MESA": 19, "LMBP": 9, "NORM": 10, "WTA": 16, "REV": 13, "MST": 18, "NEG": 7, "X": 3}
OTHER_ORACLES = {"LMBP-E1", "LMBP-E2"}
# Who has what no kernel alone can show.
LEVELS = ("worker", "planner", "program")


def table(heading):
    """The cells of each row of the first table below a heading."""
    below = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = re.search(r"(?:^\|.*\n)+", below, re.M)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def ops_of(header):
    text = header.read_text(encoding="utf-8")
    return re.findall(r"^Error (\w+)\(const \w+& p, Stream", text, re.M)


def ids_of(cell):
    """MESA-4, MESA-5; WTA-1, -2; NORM-1 to NORM-3; REV-3 (as a negative control)."""
    ids, group = [], None
    for word, name, to in re.findall(r"([A-Z]*)-(E?\d+)(?: to [A-Z]+-(\d+))?", cell):
        group = word or group
        last = int(to) if to else None
        names = range(int(name), last + 1) if last else [name]
        ids += [f"{group}-{n}" for n in names]
    return ids


def is_tested(oracle, tests):
    """Whether one of these test programs has a test that is named by the oracle."""
    group, number = oracle.split("-")
    name = re.compile(rf"^TEST.*, \w*{group.capitalize()}{number}(?!\d)", re.M)
    return any(
        name.search((TESTS / f"{test}.cc").read_text(encoding="utf-8"))
        for test in tests
        if (TESTS / f"{test}.cc").exists()
    )


class OpsTest(unittest.TestCase):
    """The table of ops by header."""

    def test_every_header_has_a_row_that_is_true(self):
        headers = {h.name: ops_of(h) for h in KERNELS.glob("*.h") if ops_of(h)}
        rows = {quoted(row[0])[0]: row for row in table("Ops")}
        self.assertEqual(sorted(headers), list(rows))
        for header, (_, ops, cpu, cuda, tests) in rows.items():
            self.assertEqual(headers[header], quoted(ops))
            for files in (cpu, cuda):
                self.defines(quoted(files), headers[header])
            self.assertTrue(quoted(tests), header)
            for test in quoted(tests):
                self.assertTrue((TESTS / f"{test}.cc").exists(), test)

    def defines(self, files, ops):
        """Between them these files define these ops, unless they are headers of other ops."""
        self.assertTrue(files)
        if any(name.endswith(".h") for name in files):
            return
        text = "".join((KERNELS / name).read_text(encoding="utf-8") for name in files)
        for op in ops:
            self.assertRegex(text, rf"(?m)^Error {op}\(")

    def test_every_op_is_refused_bad_arguments(self):
        program = binary("..") / "tests" / "bin" / "kernels_refusals_test"
        listed = subprocess.run(
            [program, "--gtest_list_tests"], capture_output=True, text=True, check=True
        ).stdout
        rows = re.findall(r"^  NameWhatIsWrongAndWriteNothing/(\w+)", listed, re.M)
        ops = {op for header in KERNELS.glob("*.h") for op in ops_of(header)}
        self.assertGreater(len(ops), 50)
        self.assertEqual(set(), ops - set(rows))
        for row in rows:  # GluBackwardFromCodes is of GluBackward.
            self.assertTrue(any(row.startswith(op) for op in ops), row)


class OraclesTest(unittest.TestCase):
    """The table of tests by id, and that of the references' defects."""

    def test_every_oracle_has_a_row(self):
        expected = {f"{g}-{n}" for g, last in ORACLES.items() for n in range(1, last + 1)}
        ids = {oracle for row in table("Tests by id") for oracle in ids_of(row[0])}
        self.assertEqual(expected | OTHER_ORACLES, ids)

    def test_named_tests_are_there(self):
        for oracles, where in table("Tests by id"):
            tests = [name for name in quoted(where) if name.endswith("_test")]
            for test in tests:
                self.assertTrue((TESTS / f"{test}.cc").exists(), test)
            for oracle in ids_of(oracles):
                elsewhere = any(level in where for level in LEVELS)
                self.assertTrue(is_tested(oracle, tests) or elsewhere, oracle)

    def test_defects_have_tests(self):
        rows = table("Defects of the references")
        self.assertGreater(len(rows), 10)
        for defect, tests in rows:
            self.assertTrue(quoted(tests), defect)
            for name in quoted(tests):
                test, _, case = name.partition(" ")
                paths = [TESTS / f"{test}.cc", ROOT / "tests/cuda_on_cpu" / f"{test}.cc"]
                sources = [p.read_text(encoding="utf-8") for p in paths if p.exists()]
                self.assertTrue(sources, name)
                self.assertTrue(re.search(rf"^TEST.*, {case}", sources[0], re.M), name)

    def test_ids_are_read(self):
        self.assertEqual(["WTA-1", "WTA-2", "REV-3"], ids_of("WTA-1, -2, REV-3 (as a control)"))
        self.assertEqual(["NORM-1", "NORM-2", "NORM-3"], ids_of("NORM-1 to NORM-3"))
        self.assertEqual(["LMBP-E1"], ids_of("LMBP-E1"))
        self.assertTrue(is_tested("MESA-4", ["quantize_test"]))
        self.assertFalse(is_tested("MESA-4", ["rope_test"]))
        self.assertFalse(is_tested("WTA-1", ["valid_tokens_test"]))


if __name__ == "__main__":
    unittest.main()
