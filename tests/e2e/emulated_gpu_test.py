"""A job on gpu:0 from submit to adapter: the driver's library is the tests' own, the worker's GPU
is emulated. One kill of the worker in the middle: what resumes on a GPU is what was saved there.
"""

import os
import pathlib
import signal
import tempfile
import unittest

from safetensors.numpy import load_file

from tests.harness import jobs
from tests.harness.binaries import binary
from tests.harness.daemon import Daemon, metric_lines

GIB = 1 << 30
STEPS = 4
CHANGES = (
    f"training.max_steps={STEPS}",
    "training.save_steps=1",
    f"training.eval_steps={STEPS}",
    "training.per_device_train_batch_size=2",
    "training.gradient_accumulation_steps=1",
    "training.packing=false",
    "training.max_seq_length=64",
)


class EmulatedGpuTest(unittest.TestCase):
    """Daemon, node, worker and export, all of a GPU but the GPU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="snug-emulated-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        world = self.folder / "nvml"
        world.write_text(f"driver 580.65.06\ngpu GPU-aa {8 * GIB} {8 * GIB} Emulated\n")
        os.environ["FAKE_NVML"] = str(world)
        settings = self.folder / "snugd.yaml"
        worker, library = binary("snug-worker-emulated"), os.environ["SNUG_FAKE_NVML"]
        settings.write_text(f"worker_cuda: {worker}\ngpu_library: {library}\n")
        self.daemon = Daemon("gpu:0=512MiB", ["--config", settings])
        self.addCleanup(self.daemon.close)

    def test_a_job_survives_its_worker_and_exports_what_it_trained(self):
        file = jobs.lora_folder(self.folder / "lora", rows=8)
        name = self.daemon.submit(file, *CHANGES)
        self.daemon.wait_step(name, 2)
        os.kill(int(self.daemon.job(name)["worker_pid"]), signal.SIGKILL)
        self.daemon.wait_state(name, "SUCCEEDED")
        job = self.daemon.job(name)
        self.assertEqual(job["device"], "gpu:0")
        memory = job["memory"]
        self.assertEqual(memory["measured_peak_bytes"], memory["predicted_peak_bytes"])
        lines = metric_lines(self.daemon.attempt(name, epoch=2) / "metrics.jsonl")
        self.assertEqual([line["global_step"] for line in lines], list(range(1, STEPS + 1)))
        adapter = self.daemon.attempt(name, epoch=2) / "output" / "adapter_model.safetensors"
        trained = [key for key in load_file(adapter) if "lora_B" in key]
        self.assertTrue(trained)
        self.assertTrue(all(load_file(adapter)[key].any() for key in trained))


if __name__ == "__main__":
    unittest.main()
