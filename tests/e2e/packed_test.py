"""Models whose files are quantised already, as bitsandbytes and transformers save them."""

import unittest

import torch
from safetensors.torch import load_file

from tests.harness import jobs, packed
from tests.harness.daemon import Daemon

# In the numbers of the files, which both sides quantise.
SHORT = ("training.max_steps=20", "training.precision=fp32")


class PackedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder / "jobs"
        cls.file = jobs.lora_folder(cls.folder)
        for kind in ("NF4", "INT8"):
            packed.write(cls.folder / "model", cls.folder / kind, kind)

    def adapter(self, *changes):
        """That a job makes with these changes, and the job."""
        name = self.daemon.submit(self.file, *SHORT, *changes)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        output = self.daemon.folder / name
        self.daemon.run("download", name, output)
        return load_file(output / "adapter_model.safetensors"), job

    # What is quantised here from the same weights has the same codes, but where a number lies in
    # the middle between two.
    def test_trains_as_over_a_base_that_is_quantised_here(self):
        for kind in ("NF4", "INT8"):
            with self.subTest(kind):
                theirs, there = self.adapter(f"model=./{kind}")
                ours, here = self.adapter(f"quantization={kind.lower()}")
                self.assertEqual(
                    there["memory"]["predicted_peak_bytes"], here["memory"]["predicted_peak_bytes"]
                )
                self.assertEqual(theirs.keys(), ours.keys())
                for key, tensor in ours.items():
                    torch.testing.assert_close(theirs[key], tensor, rtol=0.02, atol=2e-4)

    def test_what_does_not_go_with_it_is_refused_by_field(self):
        for changes, field in (
            (["quantization=int8"], "quantization"),
            (["merge=true"], "merge"),
        ):
            refused = self.daemon.run("submit", self.file, "model=./NF4", *changes, code=1)
            self.assertIn(f"  {field}: ", refused.stderr)


if __name__ == "__main__":
    unittest.main()
