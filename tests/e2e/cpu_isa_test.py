"""SNUG_CPU_ISA: a whole job on AVX2 alone, kernels and libraries, as on a CPU that has no more.

Losses are close to those of the default and not equal, where the default has more. (On an emulated
CPU without AVX-512 the worker gave the very losses that the variable gives.)
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

from tests.harness import jobs
from tests.harness.binaries import binary
from tests.harness.daemon import Daemon, metric_lines

STEPS = 12
# Relative, of a loss: fp32 adds in another order; bf16 rounds other sums, and a unit is 4e-3.
CLOSE = {"fp32": 1e-6, "bf16": 2e-3}


def has(flag):
    """Whether this CPU names the feature."""
    return f" {flag} " in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")


@unittest.skipUnless(has("avx2") and has("fma"), "a CPU with AVX2 is needed")
class CpuIsaTest(unittest.TestCase):
    """A LoRA job with adapters everywhere, packed, in both number types."""

    def losses(self, isa, precision):
        """Of a job's steps, in a daemon with that variable; bytes stay within the prediction."""
        with mock.patch.dict(os.environ):
            os.environ.pop("SNUG_CPU_ISA", None)
            if isa:
                os.environ["SNUG_CPU_ISA"] = isa
            daemon = Daemon()
            self.addCleanup(daemon.close)
            file = jobs.lora_folder(daemon.folder / "lora")
            name = daemon.submit(
                file, f"training.max_steps={STEPS}", f"training.precision={precision}"
            )
            job = daemon.wait_state(name, "SUCCEEDED")
        predicted = int(job["memory"]["predicted_peak_bytes"])
        self.assertLessEqual(int(job["memory"]["measured_peak_bytes"]), predicted)
        lines = metric_lines(daemon.attempt(name) / "metrics.jsonl")
        return [line["loss"] for line in lines]

    def test_a_job_trains_the_same_without_avx512(self):
        for precision, close in CLOSE.items():
            with self.subTest(precision):
                best, avx2 = self.losses(None, precision), self.losses("avx2", precision)
                self.assertEqual(len(best), STEPS)
                self.assertEqual(len(avx2), STEPS)
                for a, b in zip(avx2, best):
                    self.assertLessEqual(abs(a - b), close * b)
                if has("avx512_bf16"):
                    self.assertNotEqual(avx2, best, "the variable changed nothing")

    def test_the_fastest_products_are_measured_for_each_set(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("SNUG_CPU_ISA", None)
            daemon = Daemon()
            self.addCleanup(daemon.close)
            measured = [json.loads((daemon.state / "context.json").read_text())]
            for isa in ("avx2", "avx2"):
                os.environ["SNUG_CPU_ISA"] = isa
                daemon.restart()
                measured.append(json.loads((daemon.state / "context.json").read_text()))
        best, avx2 = ({each["of"] for each in found["facts"]} for found in measured[:2])
        self.assertNotEqual(best, avx2)
        self.assertEqual(measured[1], measured[2])  # What is known is not measured again.

    def test_a_name_that_is_none_is_refused(self):
        with mock.patch.dict(os.environ, SNUG_CPU_ISA="sse9"):
            done = subprocess.run(
                [binary("snug-worker"), "--measure-context"],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn('SNUG_CPU_ISA: "sse9" is none of baseline, avx2', done.stderr)
            with tempfile.TemporaryDirectory() as folder, mock.patch("tempfile.tempdir", folder):
                with self.assertRaisesRegex(RuntimeError, 'SNUG_CPU_ISA: "sse9"'):
                    Daemon()


if __name__ == "__main__":
    unittest.main()
