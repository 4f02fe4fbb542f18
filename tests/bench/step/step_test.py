"""snug-step: what it prints of a step's parts, and that its weights are the same in each run."""

import json
import subprocess
import unittest

from tests.harness.binaries import ROOT, binary

STEP = binary("..") / "tests" / "bin" / "snug-step"
MODEL = ROOT / "tests" / "bench" / "step" / "llama-100m"


def step(*options):
    command = [STEP, "--model", MODEL, "--rows", "1", "--tokens", "16", "--steps", "1", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


class StepTest(unittest.TestCase):
    def test_profile_has_each_kind_of_op(self):
        report = step("--profile")
        parts = report["parts"]
        # A linear of q, k, v, o, gate, up, down a layer, each with its adapter.
        self.assertEqual(7 * 12, parts["lora_linear forward"]["calls"])
        self.assertEqual(12, parts["attention backward"]["calls"])
        self.assertEqual(1, parts["head_loss backward"]["calls"])  # It gives the loss as well.
        seconds = sum(part["seconds"] for part in parts.values())
        self.assertGreater(seconds, 0.5 * report["step_seconds"])
        self.assertLess(seconds, 1.2 * report["step_seconds"])

    def test_without_it_nothing_is_timed(self):
        self.assertEqual({}, step()["parts"])

    def test_weights_are_a_function_of_the_model(self):
        report = step("--bf16")
        self.assertEqual(report["loss"], step("--bf16")["loss"])
        # Random weights know nothing (ln 32,000 is 10.4, of 15 tokens' sum over 16), but for what
        # the steps before the one that is told have taught them.
        self.assertLess(report["loss"], 10.9 * 15 / 16)
        self.assertGreater(report["loss"], 0.7 * 10.4 * 15 / 16)

    def test_prediction_is_of_a_gpu(self):
        batch = ("--predict", "--bf16", "--rows", "4", "--tokens", "2048")
        report = step(*batch)
        parts = ("weights", "adapter", "gradients", "optimizer", "inputs", "arena")
        self.assertEqual(
            report["predicted_bytes"], sum(report[f"{part}_bytes"] for part in parts)
        )
        recompute = step(*batch, "--recompute", "12")
        self.assertLess(recompute["predicted_bytes"], 0.7 * report["predicted_bytes"])
        self.assertGreater(recompute["flops"], 1.2 * report["flops"])

    def test_a_base_in_4_bits_is_predicted_by_its_size(self):
        batch = ("--predict", "--bf16")
        config = json.loads((MODEL / "config.json").read_text())
        width, layers = config["hidden_size"], config["num_hidden_layers"]
        shared = config["num_key_value_heads"] / config["num_attention_heads"]
        attention = width * width * (2 + 2 * shared)
        linear = layers * (attention + 3 * width * config["intermediate_size"])
        saved = step(*batch)["weights_bytes"] - step(*batch, "--quantization", "nf4")[
            "weights_bytes"
        ]
        # Two bytes an element become half of one, a byte a block, four a group of 256 blocks.
        expected = linear * (2 - 0.5 - 1 / 64 - 4 / (64 * 256))
        self.assertAlmostEqual(saved / expected, 1.0, delta=0.001)
        with self.assertRaises(subprocess.CalledProcessError):  # Random weights are in no 4 bits.
            step("--bf16", "--quantization", "nf4")

    def test_stashes_are_of_the_model_before_them(self):
        command = [STEP, "--rows", "1", "--tokens", "64", "--steps", "1"]
        for stash in ("keep", "offload", "*=recompute,layers.*.input=int8"):
            command += ["--model", MODEL, "--stash", stash]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        keep, offload, coded = (json.loads(line) for line in run.stdout.splitlines())
        self.assertEqual(keep["loss"], offload["loss"])
        self.assertGreater(offload["host_bytes"], 0)
        self.assertEqual(coded["host_bytes"], 0)
        for other in (offload, coded):
            self.assertLess(other["arena_bytes"], keep["arena_bytes"])

    def test_version(self):
        run = subprocess.run([STEP, "--version"], capture_output=True, text=True, check=True)
        self.assertEqual("snug-step\n", run.stdout)


if __name__ == "__main__":
    unittest.main()
