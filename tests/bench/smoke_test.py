"""The benchmark of tests/bench/run.py still runs: every side once, tiny, no figure judged."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.bench import tasks
from tests.harness.binaries import ROOT


class SmokeTest(unittest.TestCase):
    """Runs the script as a person would, into another file."""

    def test_table_has_a_row_for_every_workload(self):
        script = ROOT / "tests" / "bench" / "run.py"
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "table.md"
            line = [sys.executable, "-B", script, "--smoke", "--repeats", "1", "--output", table]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [str(word) for word in line],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            text = table.read_text()
        names = ("LoRA fp32", "full bf16", "LoRA bf16, mixed", "phi3 bf16", "BM_Lower80Layers/4")
        names += tuple(workload.name for workload in tasks.WORKLOADS[:: tasks.VARIANTS])
        for name in names:
            self.assertIn(f"| {name} |", text)


if __name__ == "__main__":
    unittest.main()
