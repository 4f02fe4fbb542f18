"""What is wrong is refused with a typed error that names it, and the daemon takes no harm.

What is wrong with the job file, config.json, the weights or the size is refused by `snug submit`
itself; what only reading the dataset shows fails the job before any attempt. A script finds a
reason in capitals and a message that names the field, file, line or bytes.
"""

import json
import math
import os
import re
import shutil
import unittest

from safetensors.numpy import load_file, save_file

from tests.harness import jobs
from tests.harness.binaries import DEVICE
from tests.harness.daemon import ENDED, Daemon, wait_for


class RefusalsTest(unittest.TestCase):
    """One daemon survives all of it."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(device=f"{DEVICE}=1GiB")
        cls.addClassCleanup(cls.daemon.close)
        cls.good = jobs.full_folder(cls.daemon.folder / "good")

    def setUp(self):
        self.folder = self.daemon.folder / self.id().rsplit(".", maxsplit=1)[-1]
        shutil.copytree(self.good.parent, self.folder)
        self.file = self.folder / "full.yaml"

    def tearDown(self):
        self.assertIsNone(self.daemon.process.poll(), "the daemon has gone")
        self.assertEqual(self.daemon.run("list").returncode, 0)

    def edit(self, name, change):
        """Rewrites a JSON file of the folder."""
        path = self.folder / name
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    def change_weights(self, change):
        """Rewrites model.safetensors."""
        path = self.folder / "model" / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    def write_row(self, ids, labels):
        """A dataset of one row."""
        row = {"input_ids": ids, "labels": labels}
        (self.folder / "train.jsonl").write_text(json.dumps(row) + "\n")

    def refusal(self, *changes):
        """What submit itself says; no job is made of what was wrong from the start."""
        before = self.jobs()
        done = self.daemon.run("submit", self.file, *changes, "--output", "json", code=None)
        text = done.stdout + done.stderr
        self.assertNotEqual(done.returncode, 0, text)
        self.assertEqual(self.jobs(), before)
        return text

    def jobs(self):
        """Ids of all jobs there are."""
        return {job["id"] for job in self.daemon.json("list", "--all")["jobs"]}

    def failure(self):
        """The error of the job that submit made: what only reading the data can tell."""
        name = self.daemon.submit(self.file)

        def ended():
            job = self.daemon.job(name)
            return job if job["state"] in ENDED else None

        job = wait_for(ended, "the job to be refused")
        self.assertEqual((job["state"], job["epoch"]), ("FAILED", 0))
        return json.dumps(job["error"])

    def assert_names(self, text, *words):
        """A reason in capitals and every word."""
        self.assertRegex(text, r"\b[A-Z]+(_[A-Z]+)+\b")
        for word in words:
            self.assertIn(str(word), text)

    def test_unknown_key_names_the_nearest_known_one(self):
        content = self.file.read_text().replace("learning_rate:", "lerning_rate:")
        self.file.write_text(content)
        text = self.refusal()
        self.assertIn("lerning_rate", text)
        self.assertIn("learning_rate", text.replace("lerning_rate", ""))

    def test_yaml_that_does_not_parse_names_its_file(self):
        self.file.write_text("model: ./model\ndataset: [\n")
        self.assertIn("full.yaml", self.refusal())

    def test_value_out_of_range_names_its_field(self):
        self.assert_names(self.refusal("training.learning_rate=-1"), "training.learning_rate")

    def test_missing_model_folder_is_named(self):
        shutil.rmtree(self.folder / "model")
        self.assert_names(self.refusal(), self.folder / "model")

    def test_other_model_family_lists_what_is_accepted(self):
        self.edit("model/config.json", lambda c: c.update(model_type="mamba"))
        self.assert_names(self.refusal(), "mamba", "llama", "config.json")

    def test_config_that_is_no_json_is_named(self):
        (self.folder / "model" / "config.json").write_text('{"model_type": "llama",')
        self.assert_names(self.refusal(), "config.json")

    def test_config_out_of_range_names_its_field(self):
        self.edit("model/config.json", lambda c: c.update(num_hidden_layers=10**9))
        self.assert_names(self.refusal(), "num_hidden_layers", "config.json")

    def test_missing_weight_is_named(self):
        key = "model.layers.1.mlp.up_proj.weight"
        self.change_weights(lambda tensors: tensors.pop(key))
        self.assert_names(self.refusal(), key)

    def test_extra_weight_is_named(self):
        key = "model.layers.0.self_attn.q_proj.bias"
        norm = "model.norm.weight"
        self.change_weights(lambda tensors: tensors.update({key: tensors[norm].copy()}))
        self.assert_names(self.refusal(), key)

    def test_weight_of_wrong_shape_is_named(self):
        key = "model.layers.0.self_attn.k_proj.weight"
        self.change_weights(lambda tensors: tensors.update({key: tensors[key][:, :-1].copy()}))
        self.assert_names(self.refusal(), key)

    def test_torn_weights_are_refused_from_the_header(self):
        path = self.folder / "model" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-10])
        self.assert_names(self.refusal(), "model.safetensors")

    def test_broken_jsonl_names_file_and_line(self):
        path = self.folder / "train.jsonl"
        lines = path.read_text().splitlines()
        lines[6] = lines[6][:-3]
        path.write_text("\n".join(lines))
        text = self.failure()
        self.assert_names(text, "train.jsonl")
        self.assertRegex(text, r"(line |:)7\b")

    def test_token_outside_the_vocabulary_names_its_line(self):
        self.write_row([5, 10**6], [5, 10**6])
        text = self.refusal()
        self.assert_names(text, "train.jsonl")
        self.assertRegex(text, r"(line |:)1\b")

    def test_dataset_without_a_trained_token_is_refused(self):
        self.write_row([5, 6, 7], [-100, -100, -100])
        self.assert_names(self.failure(), "train.jsonl")

    def test_job_larger_than_the_device_names_the_bytes(self):
        width = 1_000_000
        self.edit("model/config.json", lambda c: c.update(intermediate_size=width))
        mlp = 3 * width * jobs.SHAPE.width * jobs.SHAPE.layers
        self.widen_weights(str(width))
        text = self.refusal()
        self.assert_names(text, "PLAN_INFEASIBLE", DEVICE, 1 << 30)
        # Weights, their gradients and two moments, in fp32: more than sixteen bytes an element.
        numbers = [int(number) for number in re.findall(r"\d{10,}", text)]
        self.assertGreater(max(numbers), 16 * mlp, text)

    def widen_weights(self, width):
        """Gives the model file's header an MLP of this width, over a hole instead of data."""
        path = self.folder / "model" / "model.safetensors"
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        text = content[8 : 8 + length].decode()
        tensors = json.loads(text.replace(str(jobs.SHAPE.mlp_width), width))
        tensors.pop("__metadata__", None)
        end = 0
        for tensor in tensors.values():
            begin, end = end, end + 4 * math.prod(tensor["shape"])
            tensor["data_offsets"] = [begin, end]
        header = json.dumps(tensors).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(path, 8 + len(header) + end)

    def test_good_job_runs_after_all_of_it(self):
        name = self.daemon.submit(self.file, "training.max_steps=2")
        self.daemon.wait_state(name, "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
