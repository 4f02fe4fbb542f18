"""A worker that cannot open its device says so in a result: the attempt failed for a reason that is
not the job's, and is made again. Without a GPU in this test: snug-worker has none anywhere, and no
machine has gpu:99."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from tests.harness import assignments
from tests.harness.binaries import binary

ASSIGNMENT = """
job_id: "job-1" epoch: 1 cap_bytes: 1000000
spec {{ model: "{0}/model" dataset: "{0}/data.jsonl" method: METHOD_LORA }}
plan {{ key {{ tokens: 8 documents: 1 longest_document: 8 }} threads: 1 memory {{ }} }}
train_data: "{0}/data" attempt_dir: "{0}" checkpoints_dir: "{0}/checkpoints" device: "{1}"
"""


class OpenDeviceTest(unittest.TestCase):
    def expect_refused(self, worker, device, message):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            assignments.write_text(folder, ASSIGNMENT.format(folder, device))
            # No variable of the caller's may name the one GPU that there is.
            environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
            line = [str(binary(worker)), str(folder / assignments.NAME)]
            run = subprocess.run(
                line, capture_output=True, text=True, env=environment, check=False
            )
            self.assertEqual(run.returncode, 4, run.stderr)
            result = json.loads((folder / "result.json").read_text())
        self.assertEqual(result["failure_class"], "INFRASTRUCTURE")
        self.assertEqual(result["error"]["reason"], "DEVICE_UNAVAILABLE")
        self.assertIn(message, result["error"]["message"])

    def test_worker_without_gpus(self):
        self.expect_refused("snug-worker", "gpu:0", "built without GPUs")

    @unittest.skipUnless(binary("snug-worker-cuda").exists(), "built without CUDA")
    def test_gpu_that_is_not_there(self):
        self.expect_refused("snug-worker-cuda", "gpu:99", "gpu:99")


if __name__ == "__main__":
    unittest.main()
