"""Every target of tests/fuzz/fuzz.py for a while: no crash, no leak, nothing slow or large."""

import os
import pathlib
import unittest

from tests.fuzz import fuzz
from tests.harness.binaries import ROOT

SECONDS = int(os.environ.get("SNUG_FUZZ_SECONDS", 60))


class FuzzTest(unittest.TestCase):
    def test_no_input_harms_a_parser(self):
        build = pathlib.Path(os.environ.get("SNUG_BIN_DIR", ROOT / "build" / "bin")).parent
        for target in fuzz.TARGETS:
            with self.subTest(target):
                inputs, found = fuzz.run(target, build, fuzz.Limits(seconds=SECONDS))
                print(f"{target}: {inputs} inputs in {SECONDS} s", flush=True)
                self.assertEqual(found, "")
                self.assertGreater(inputs, 1000 * SECONDS // 10)


if __name__ == "__main__":
    unittest.main()
