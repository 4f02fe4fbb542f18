"""The quickstart's whole way, small: two jobs of three steps on 150 packages. What they learn is
not looked at; that they run as the quickstart promises is."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/sample"))

import quickstart  # noqa: E402

REPORT = re.compile(
    r"held-out loss   ([\d.]+) before, ([\d.]+) after\n"
    r"  training loss   ([\d.]+) at the first step, ([\d.]+) at the last\n"
    r"  plan            (.+)\n"
    r"  peak memory     ([\d,]+) MiB predicted, ([\d,]+) MiB measured, ([\d,]+) MiB reserved\n"
)
ASKED = re.compile(r"loss on all \d+: ([\d.]+) before, ([\d.]+) after")


class SampleOfQuickstartTest(unittest.TestCase):
    """When the quickstart makes its sample; the script that does is not run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="snug-")
        self.addCleanup(folder.cleanup)
        self.sample = pathlib.Path(folder.name) / "sample"

    def made(self, rows):
        """The words that the sample is made with; None: it is there already."""
        with mock.patch.object(quickstart, "python") as python, mock.patch("builtins.print"):
            quickstart.make_sample(self.sample, rows)
        return python.call_args and python.call_args.args

    def test_other_rows_are_another_sample(self):
        words = ("make_sample.py", "--output", self.sample, "--rows", 150)
        self.assertEqual(self.made(150), words)
        self.sample.mkdir()
        self.assertEqual(self.made(150), words)  # of an earlier release: it does not say
        (self.sample / "sample.json").write_text('{"rows": 150}')
        self.assertIsNone(self.made(150))
        self.assertEqual(self.made(200), (*words[:-1], 200))


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="snug-")
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def run_small(self):
        command = [sys.executable, "-B", ROOT / "deploy/sample/quickstart.py"]
        command += ["--rows", "150", "--steps", "3", "--work", self.work]
        run = subprocess.run(command, capture_output=True, text=True, timeout=500)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout

    def test_small_quickstart_shows_what_it_promises(self):
        out = self.run_small()
        reports, asked = REPORT.findall(out), ASKED.findall(out)
        self.assertEqual((len(reports), len(asked)), (2, 2), out)
        for report, (before, after) in zip(reports, asked):
            self.assert_losses(report, float(before), float(after))
            predicted, measured, reserved = (int(n.replace(",", "")) for n in report[5:])
            self.assertLessEqual(predicted, reserved)
            self.assertLessEqual(measured, reserved)
            self.assertGreater(measured, predicted / 2)
        self.assertEqual(reports[0][4], "keep")
        # Which kinds it takes, and on how much, is the rates' of this machine.
        share = r"(recompute|chunk) [0-9.]+ %"
        mix = rf"(recompute [1-6] of 6|{share}(, {share})?)"
        self.assertRegex(reports[1][4], f"^{mix}$")
        # The plan's table chose one before, for full rows; the dataset's own lengths may fit a
        # slightly faster or slower one.
        self.assertRegex(out, rf"\*  {mix}")
        for name in ("adapter_config.json", "adapter_model.safetensors", "metrics.jsonl"):
            self.assertTrue((self.work / "adapter" / name).is_file(), name)
        self.assertIn("snug_jobs", out)
        self.assertFalse((self.work / "snug.sock").exists())
        self.assertEqual(quickstart.rows_of(self.work / "sample"), 150)

    # The worker's own evaluation agrees with transformers on the files that it made.
    def assert_losses(self, report, before, after):
        self.assertAlmostEqual(float(report[0]), before, delta=0.0011)
        self.assertAlmostEqual(float(report[1]), after, delta=0.0021)
        self.assertLess(after, before)


if __name__ == "__main__":
    sys.exit(unittest.main())
