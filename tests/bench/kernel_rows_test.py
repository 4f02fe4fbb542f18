"""The benchmark of kernels measures every op of kernels/, and names no op that is not there."""

import re
import subprocess
import unittest

from tests.harness.binaries import ROOT, binary

BENCHMARK = binary("..") / "tests" / "bin" / "kernels_benchmark"


class KernelRowsTest(unittest.TestCase):
    """Ops are the functions on a stream that the headers declare."""

    def test_every_op_has_a_row(self):
        ops = set()
        for header in (ROOT / "kernels").glob("*.h"):
            ops.update(re.findall(r"^Error (\w+)\(const \w+& p, Stream", header.read_text(), re.M))
        listed = subprocess.run([BENCHMARK, "--list"], capture_output=True, text=True, check=True)
        rows = {line.split(",")[0] for line in listed.stdout.splitlines()}
        self.assertEqual(ops, rows)
        self.assertGreater(len(ops), 50)


if __name__ == "__main__":
    unittest.main()
