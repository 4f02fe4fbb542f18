"""Models whose files are quantised already, as bitsandbytes and transformers save them."""

import json
import shutil
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
        skipped = ["lm_head", "model.layers.0.mlp"]
        packed.write(cls.folder / "model", cls.folder / "MIXED", "NF4", skipped=skipped)

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

    def test_modules_that_are_left_out_take_their_bytes(self):
        _, mixed = self.adapter("model=./MIXED")
        _, packed_all = self.adapter("model=./NF4")
        mixed, packed_all = (job["memory"]["predicted_peak_bytes"] for job in (mixed, packed_all))
        self.assertGreater(int(mixed), int(packed_all))

    def test_files_that_are_not_as_they_say_are_refused_by_tensor_and_list(self):
        path = self.folder / "MIXED" / "config.json"
        config = json.loads(path.read_text())
        fields = config["quantization_config"]
        for skipped, key in (
            (["model.layers.0.mlp", "o_proj"], "model.layers.0.self_attn.o_proj.weight"),
            (["lm_head"], "model.layers.0.mlp.down_proj.weight"),
        ):
            listed = self.folder / "-".join(["LISTED", skipped[-1]])
            shutil.copytree(self.folder / "MIXED", listed)
            fields["llm_int8_skip_modules"] = skipped
            (listed / "config.json").write_text(json.dumps(config))
            refused = self.daemon.run("submit", self.file, f"model=./{listed.name}", code=1)
            self.assertIn("  model: ", refused.stderr)
            self.assertIn(key, refused.stderr)
            self.assertIn("llm_int8_skip_modules", refused.stderr)

    def test_what_does_not_go_with_it_is_refused_by_field(self):
        for changes, field in (
            (["quantization=int8"], "quantization"),
            (["merge=true"], "merge"),
        ):
            refused = self.daemon.run("submit", self.file, "model=./NF4", *changes, code=1)
            self.assertIn(f"  {field}: ", refused.stderr)


if __name__ == "__main__":
    unittest.main()
