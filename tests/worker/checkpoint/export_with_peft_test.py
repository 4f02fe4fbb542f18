"""What Snug exports is what peft and transformers load: same keys, same bytes, same logits."""

import copy
import json
import math
import pathlib
import subprocess
import tempfile
import unittest

import torch
from peft import PeftConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, LlamaForCausalLM

from tests.harness import binaries, models

PREFIX = "base_model.model."
TEXTS = ["a sentence to learn from", "and another one", "numbers 1 2 3"]
METRICS = '{"loss":1.0,"global_step":1}\n'


def run_tool(settings, folder):
    """Runs the export on these settings; gives its exit code and what it says."""
    path = folder / "settings.json"
    path.write_text(json.dumps(settings))
    tool = binaries.binary("").parent / "tests" / "bin" / "export_tool"
    done = subprocess.run([tool, path], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def logits(model, ids):
    model.eval()
    with torch.no_grad():
        return model(input_ids=ids).logits


def random_ids(shape):
    torch.manual_seed(5)
    return torch.randint(0, shape.vocabulary, (2, 24))


class ExportTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)
        self.output = self.folder / "output"

    def export(self, kind, tensors, **settings):
        save_file(tensors, self.folder / "tensors.safetensors")
        (self.folder / "metrics.jsonl").write_text(METRICS)
        return run_tool(
            {
                "kind": kind,
                "output": str(self.output),
                "model_dir": str(self.folder / "base"),
                "tensors": str(self.folder / "tensors.safetensors"),
                "metrics": str(self.folder / "metrics.jsonl"),
                "base_model_name": str(self.folder / "base"),
                "display_name": "a job",
                **settings,
            },
            self.folder,
        )

    def write_base(self, shape, dtype=torch.float32, spelling=5):
        base = models.random_model(shape, seed=3)
        models.write_model(base, self.folder / "base", dtype=dtype, spelling=spelling)
        models.write_tokenizer(self.folder / "base", TEXTS, 300)
        return base

    def assert_same_logits(self, got, wanted):
        error = (got - wanted).abs().max() / wanted.abs().max()
        self.assertLess(error.item(), 1e-5)

    def assert_tokenizer_carried(self):
        text = TEXTS[0]
        carried = AutoTokenizer.from_pretrained(self.output)
        own = AutoTokenizer.from_pretrained(self.folder / "base")
        self.assertEqual(carried(text).input_ids, own(text).input_ids)
        self.assertEqual((self.output / "metrics.jsonl").read_text(), METRICS)
        self.assertFalse(self.output.with_name("output.tmp").exists())


class AdapterExportTest(ExportTest):
    def own_adapter(self, base, settings):
        """What peft writes for these settings, with random weights: its folder."""
        return models.write_adapter(base, self.folder / "by_peft", settings, seed=11)

    def merged_by_hand(self, base, tensors, scale):
        """The base with W + scale * B A, computed here without peft."""
        merged = copy.deepcopy(base)
        weights = dict(merged.named_parameters())
        with torch.no_grad():
            for key, down in tensors.items():
                if key.endswith(".lora_A.weight"):
                    module = key[len(PREFIX) : -len(".lora_A.weight")]
                    up = tensors[f"{PREFIX}{module}.lora_B.weight"]
                    weights[module + ".weight"] += scale * up @ down
        return merged

    def check(self, targets, layers=2, **changed):
        """Exports what peft made for the settings; gives peft's folder."""
        lora = {"r": 4, "alpha": 16, "dropout": 0.1, "rslora": False, **changed}
        shape = models.Shape(layers=layers)
        base = self.write_base(shape)
        peft_settings = {
            "r": lora["r"],
            "lora_alpha": lora["alpha"],
            "lora_dropout": lora["dropout"],
            "use_rslora": lora["rslora"],
            "target_modules": targets,
        }
        by_peft = self.own_adapter(base, peft_settings)
        tensors = load_file(by_peft / "adapter_model.safetensors")
        code, says = self.export(
            "adapter",
            tensors,
            **lora,
            target_modules=[targets] if isinstance(targets, str) else targets,
        )
        self.assertEqual((code, says), (0, ""))
        scale = lora["alpha"] / (math.sqrt(lora["r"]) if lora["rslora"] else lora["r"])
        ids = random_ids(shape)
        wanted = logits(self.merged_by_hand(base, tensors, scale), ids)
        # An adapter that is not applied would show.
        self.assertGreater((wanted - logits(base, ids)).abs().max().item(), 1e-2)
        loaded = PeftModel.from_pretrained(copy.deepcopy(base), self.output)
        self.assert_same_logits(logits(loaded, ids), wanted)
        self.assert_same_file(tensors)
        self.assert_tokenizer_carried()
        return by_peft

    def assert_same_file(self, tensors):
        exported = load_file(self.output / "adapter_model.safetensors")
        self.assertEqual(exported.keys(), tensors.keys())
        for key, tensor in exported.items():
            self.assertEqual(tensor.dtype, torch.float32)
            self.assertTrue(torch.equal(tensor, tensors[key]), key)

    def read_configs(self, by_peft):
        ours = json.loads((self.output / "adapter_config.json").read_text())
        theirs = json.loads((by_peft / "adapter_config.json").read_text())
        return ours, theirs

    def test_named_modules(self):
        by_peft = self.check(["v_proj", "q_proj"])
        ours, theirs = self.read_configs(by_peft)
        self.assertEqual(list(ours), list(theirs))  # the same fields in the same order
        self.assertEqual(ours["target_modules"], ["q_proj", "v_proj"])
        for config in (ours, theirs):
            config["target_modules"] = sorted(config["target_modules"])
            config.pop("base_model_name_or_path")
        self.assertEqual(ours, theirs)
        for field in ("lora_alpha", "r", "lora_dropout"):
            self.assertIs(type(ours[field]), type(theirs[field]), field)

    # From 20 modules on peft saves their last parts for all-linear; three layers have 21.
    def test_all_linear_is_saved_as_peft_saves_it(self):
        by_peft = self.check("all-linear", layers=3)
        ours, theirs = self.read_configs(by_peft)
        self.assertEqual(ours["target_modules"], sorted(theirs["target_modules"]))

    def test_all_linear_of_few_layers(self):
        self.check("all-linear")

    def test_rslora_with_a_fraction_as_alpha(self):
        by_peft = self.check(["o_proj", "down_proj"], r=9, alpha=4.5, dropout=0.0, rslora=True)
        ours, theirs = self.read_configs(by_peft)
        self.assertEqual((ours["lora_alpha"], ours["use_rslora"]), (4.5, True))
        self.assertEqual(ours["lora_dropout"], theirs["lora_dropout"])

    def test_some_layers_only(self):
        self.check(["layers.1.mlp.up_proj", "model.layers.0.self_attn.k_proj"])

    def check_options(self, targets, tied=False, **options):
        """Exports what peft made with more of its options: the same file, config and logits."""
        shape = models.Shape(tied=tied)
        base = self.write_base(shape)
        settings = {"r": 4, "lora_alpha": 16, "target_modules": targets, **options}
        by_peft = self.own_adapter(base, settings)
        tensors = load_file(by_peft / "adapter_model.safetensors")
        given = {key: tensor for key, tensor in tensors.items() if not tied or "lm_head" not in key}
        code, says = self.export(
            "adapter",
            given,
            r=4,
            alpha=16,
            dropout=0.0,
            rslora=False,
            target_modules=[targets] if isinstance(targets, str) else targets,
            options=options,
        )
        self.assertEqual((code, says), (0, ""))
        self.assert_same_file(tensors)
        ids = random_ids(shape)
        wanted = logits(PeftModel.from_pretrained(copy.deepcopy(base), by_peft), ids)
        self.assertGreater((wanted - logits(base, ids)).abs().max().item(), 1e-2)
        loaded = PeftModel.from_pretrained(copy.deepcopy(base), self.output)
        self.assert_same_logits(logits(loaded, ids), wanted)
        ours, theirs = self.read_configs(by_peft)
        for config in (ours, theirs):
            config.pop("base_model_name_or_path")
            for field in ("target_modules", "exclude_modules", "modules_to_save"):
                if isinstance(config[field], list):
                    config[field] = sorted(config[field])
        return ours, theirs, base, tensors

    def reports(self):
        content = json.loads((self.output / "compatibility.json").read_text())
        return {report["reader"]: report for report in content["readers"]}

    def test_patterns_and_a_regular_expression(self):
        ours, theirs, base, _ = self.check_options(
            r".*\.(q|v|up)_proj",
            rank_pattern={r"layers\.1\.self_attn\.q_proj": 9},
            alpha_pattern={"v_proj": 3.5},
            exclude_modules=["layers.0.mlp.up_proj"],
        )
        self.assertEqual(ours, theirs)
        # Without its patterns the same file means something else, or nothing.
        path = self.output / "adapter_config.json"
        path.write_text(json.dumps({**ours, "alpha_pattern": {}}))
        ids = random_ids(models.Shape())
        other = PeftModel.from_pretrained(copy.deepcopy(base), self.output)
        right = PeftModel.from_pretrained(copy.deepcopy(base), self.folder / "by_peft")
        self.assertGreater((logits(other, ids) - logits(right, ids)).abs().max().item(), 1e-3)
        self.assertTrue(self.reports()["PEFT"]["loads"])
        self.assertFalse(self.reports()["vLLM"]["loads"])
        self.assertIn("alpha_pattern", self.reports()["vLLM"]["notes"])

    def test_some_layers_with_norms_trained_whole(self):
        ours, theirs, _, _ = self.check_options(
            ["q_proj"], layers_to_transform=[1], modules_to_save=["norm"]
        )
        self.assertEqual(ours, theirs)
        self.assertEqual(self.reports()["PEFT"]["of_modules"], 6)
        self.assertIn("modules_to_save", self.reports()["vLLM"]["notes"])
        self.assertIn("model.norm", (self.output / "README.md").read_text())

    def test_head_and_embedding_trained_whole(self):
        ours, theirs, _, _ = self.check_options(
            ["q_proj"], modules_to_save=["embed_tokens", "lm_head"]
        )
        self.assertEqual(ours, theirs)

    def test_tied_embedding_trained_whole(self):
        ours, _, _, tensors = self.check_options(
            ["q_proj"], tied=True, modules_to_save=["embed_tokens"], ensure_weight_tying=True
        )
        self.assertTrue(ours["ensure_weight_tying"])
        self.assertIn(f"{PREFIX}lm_head.weight", tensors)

    # PEFT saves the base's matrices beside such adapters; they are the base's, and left out here.
    def check_head_and_embedding(self, shape):
        base = self.write_base(shape)
        targets = ["lm_head", "embed_tokens", "q_proj"]
        by_peft = self.own_adapter(base, {"r": 4, "lora_alpha": 16, "target_modules": targets})
        tensors = load_file(by_peft / "adapter_model.safetensors")
        tensors = {key: value for key, value in tensors.items() if "base_layer" not in key}
        lora = {"r": 4, "alpha": 16, "dropout": 0.0, "rslora": False}
        self.assertEqual(self.export("adapter", tensors, **lora, target_modules=targets), (0, ""))
        self.assert_same_file(tensors)
        ids = random_ids(shape)
        wanted = logits(PeftModel.from_pretrained(copy.deepcopy(base), by_peft), ids)
        loaded = PeftModel.from_pretrained(copy.deepcopy(base), self.output)
        self.assertGreater((wanted - logits(base, ids)).abs().max().item(), 1e-2)
        self.assert_same_logits(logits(loaded, ids), wanted)
        self.assertIn("embed_tokens has an adapter", self.reports()["LoRAX"]["notes"])
        self.assertEqual(self.reports()["PEFT"]["modules"], 4)

    def test_adapters_of_head_and_embedding(self):
        self.check_head_and_embedding(models.Shape())
        self.assertTrue(self.reports()["vLLM"]["loads"])

    def test_adapters_of_head_and_embedding_of_another_family(self):
        self.check_head_and_embedding(models.Shape(family="qwen3"))
        self.assertFalse(self.reports()["vLLM"]["loads"])
        self.assertIn("no adapter of lm_head in qwen3", self.reports()["vLLM"]["notes"])

    def test_a_rank_above_the_default_of_vllm_is_said(self):
        self.check(["q_proj"], r=24)
        report = self.reports()["vLLM"]
        self.assertEqual((report["loads"], report["modules"]), (True, 2))
        self.assertIn("--max-lora-rank 32", report["notes"])

    # Training goes on from what was exported.
    def test_loads_to_be_trained(self):
        self.check(["q_proj"])
        config = PeftConfig.from_pretrained(self.output)
        self.assertEqual(config.base_model_name_or_path, str(self.folder / "base"))
        model = LlamaForCausalLM.from_pretrained(config.base_model_name_or_path)
        trainable = PeftModel.from_pretrained(model, self.output, is_trainable=True)
        names = [name for name, weight in trainable.named_parameters() if weight.requires_grad]
        self.assertEqual(len(names), 4)

    def test_readme_has_peft_front_matter(self):
        by_peft = self.check(["q_proj"])
        front = (self.output / "README.md").read_text().split("---\n")[1]
        fields = [line.split(":")[0] for line in front.splitlines()]
        theirs = (by_peft / "README.md").read_text().split("---\n")[1].replace("'", "")
        self.assertEqual(fields, [line.split(":")[0] for line in theirs.splitlines()])
        self.assertIn(f"\nbase_model: {self.folder}/base\n", "\n" + front)
        self.assertIn(f"\n- base_model:adapter:{self.folder}/base\n", front)

    # More than the program's adapter, or less of it: refused before anyone sees the folder.
    def test_wrong_tensors_are_never_published(self):
        base = self.write_base(models.Shape())
        by_peft = self.own_adapter(base, {"r": 4, "target_modules": ["q_proj"]})
        whole = load_file(by_peft / "adapter_model.safetensors")
        key = f"{PREFIX}model.layers.1.self_attn.q_proj.lora_B.weight"
        missing = {name: value for name, value in whole.items() if "layers.1" not in name}
        infinite = {**whole, key: whole[key].clone().index_fill_(0, torch.tensor([3]), math.inf)}
        half = {name: value for name, value in whole.items() if name != key}
        for tensors, error in (
            (missing, "layers.1.self_attn.q_proj.lora_A.weight"),
            (infinite, f"{key}: element 12 is NaN or infinite"),
            (half, f"{key} is missing"),
        ):
            code, says = self.export(
                "adapter",
                tensors,
                r=4,
                alpha=8,
                dropout=0.0,
                rslora=False,
                target_modules=["q_proj"],
            )
            self.assertEqual(code, 1)
            self.assertIn(error, says)
            self.assertFalse(self.output.exists())


class ModelExportTest(ExportTest):
    def check(self, shape, spelling, dtype, trained_in=torch.float32):
        self.write_base(shape, dtype=dtype, spelling=spelling)
        trained = models.random_model(shape, seed=77)
        for weight in trained.parameters():  # Not .to(), which rounds the rotary tables too.
            weight.data = weight.data.to(trained_in)
        tensors = {
            name: weight.detach().clone()
            for name, weight in trained.named_parameters(remove_duplicate=True)
        }
        code, says = self.export("model", tensors, bf16=trained_in == torch.bfloat16)
        self.assertEqual((code, says), (0, ""))
        written = load_file(self.output / "model.safetensors")
        self.assertEqual("lm_head.weight" in written, not shape.tied)
        loaded, report = LlamaForCausalLM.from_pretrained(self.output, output_loading_info=True)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(report[kind], kind)
        self.assertEqual(loaded.dtype, trained_in)
        ids = random_ids(shape)
        self.assertTrue(torch.equal(logits(loaded, ids), logits(trained, ids)))
        self.assert_tokenizer_carried()

    def configs(self):
        for folder in (self.folder / "base", self.output):
            yield json.loads((folder / "config.json").read_text())

    # The base was bf16, the training is fp32: the config must not send its reader back to bf16.
    def test_untied_from_bf16(self):
        self.check(models.Shape(rope="llama3"), 5, torch.bfloat16)
        before, after = self.configs()
        self.assertEqual((before.pop("dtype"), after.pop("dtype")), ("bfloat16", "float32"))
        self.assertEqual(list(before.items()), list(after.items()))
        self.assertTrue((self.output / "generation_config.json").exists())

    def test_trained_in_bf16(self):
        self.check(models.Shape(), 5, torch.float32, trained_in=torch.bfloat16)
        before, after = self.configs()
        self.assertEqual((before.pop("dtype"), after.pop("dtype")), ("float32", "bfloat16"))
        self.assertEqual(before, after)

    def test_tied_in_the_older_spelling(self):
        self.check(models.Shape(tied=True), 4, torch.float16)
        before, after = self.configs()
        self.assertEqual([c.pop("torch_dtype") for c in (before, after)], ["float16", "float32"])
        self.assertNotIn("dtype", after)
        self.assertEqual(before, after)

    # A worker that holds the tied head as a tensor of its own still gives it once to the reader.
    def test_tied_head_is_not_written_twice(self):
        shape = models.Shape(tied=True)
        self.write_base(shape)
        trained = models.random_model(shape, seed=77)
        tensors = {name: weight.detach().clone() for name, weight in trained.named_parameters()}
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        self.assertEqual(self.export("model", tensors), (0, ""))
        self.assertNotIn("lm_head.weight", load_file(self.output / "model.safetensors"))

    def test_generates_as_the_trained_model(self):
        shape = models.Shape(vocabulary=300)
        self.check(shape, 5, torch.float32)
        loaded = LlamaForCausalLM.from_pretrained(self.output)
        trained = models.random_model(shape, seed=77)
        ids = random_ids(shape)[:1]
        settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
        self.assertTrue(
            torch.equal(loaded.generate(ids, **settings), trained.generate(ids, **settings))
        )

    def test_missing_weight_is_never_published(self):
        self.write_base(models.Shape())
        tensors = dict(models.random_model(models.Shape(), seed=1).named_parameters())
        tensors = {name: weight.detach().clone() for name, weight in tensors.items()}
        del tensors["model.layers.1.mlp.up_proj.weight"]
        code, says = self.export("model", tensors)
        self.assertEqual(code, 1)
        self.assertIn("model.layers.1.mlp.up_proj.weight", says)
        self.assertFalse(self.output.exists())


if __name__ == "__main__":
    unittest.main()
