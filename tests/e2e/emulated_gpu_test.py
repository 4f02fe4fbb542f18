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

    def start(self, leak=0):
        """The daemon; a worker's GPU loses so many bytes that nobody counts."""
        os.environ["SNUG_EMULATED_LEAK"] = str(leak)
        self.addCleanup(os.environ.pop, "SNUG_EMULATED_LEAK")
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
        self.start()
        file = jobs.lora_folder(self.folder / "lora", rows=8)
        name = self.daemon.submit(file, *CHANGES)
        self.daemon.wait_step(name, 2)
        os.kill(int(self.daemon.job(name)["worker_pid"]), signal.SIGKILL)
        self.daemon.wait_state(name, "SUCCEEDED")
        job = self.daemon.job(name)
        self.assertEqual(job["device"], "gpu:0")
        memory = job["memory"]
        self.assertEqual(memory["measured_peak_bytes"], memory["predicted_peak_bytes"])
        self.assertEqual(memory["looks"][0]["steps"], "0")
        for look in memory["looks"]:
            self.assertEqual(look["counted_bytes"], memory["predicted_peak_bytes"])
            self.assertLessEqual(int(look["seen_bytes"]), int(look["counted_bytes"]))
        self.assertEqual(memory["warning"], "")
        lines = metric_lines(self.daemon.attempt(name, epoch=2) / "metrics.jsonl")
        self.assertEqual([line["global_step"] for line in lines], list(range(1, STEPS + 1)))
        adapter = self.daemon.attempt(name, epoch=2) / "output" / "adapter_model.safetensors"
        trained = [key for key in load_file(adapter) if "lora_B" in key]
        self.assertTrue(trained)
        self.assertTrue(all(load_file(adapter)[key].any() for key in trained))

    # The driver names no processes here, as in a container: the worker's own looks tell.
    def test_memory_that_nobody_counted_is_a_warning(self):
        self.start(leak=100 << 20)
        name = self.daemon.submit(jobs.lora_folder(self.folder / "lora", rows=8), *CHANGES)
        self.daemon.wait_state(name, "SUCCEEDED")
        memory = self.daemon.job(name)["memory"]
        self.assertGreater(int(memory["uncounted_bytes"]), 64 << 20)
        self.assertLessEqual(int(memory["uncounted_bytes"]), 100 << 20)
        self.assertIn("most of it before its first step", memory["warning"])
        self.assertIn(f"warning    {memory['warning']}", self.daemon.run("get", name).stdout)


if __name__ == "__main__":
    unittest.main()
