"""The readers of config.json and safetensors, against the libraries that write these files.

transformers, peft and safetensors write; show_model says what the readers of worker/program found,
which must be what the libraries themselves find. Files that are damaged at random are accepted only
where safetensors accepts them too.
"""

import json
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

import torch
import transformers
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers import models as tokenizer_models

from tests.harness import binaries, models

TOOL = binaries.binary("show_model").parents[1] / "tests" / "bin" / "show_model"
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

SHAPES = {
    "plain": models.Shape(),
    "one_kv_head": models.Shape(kv_heads=1, rope="linear"),
    "narrow_heads": models.Shape(head_width=6, vocabulary=97, rope="llama3"),
    "wide_heads": models.Shape(heads=2, head_width=48, tied=True, rope="llama3"),
    "mistral": models.Shape(family="mistral", window=7),
    "mistral_without_window": models.Shape(family="mistral"),
    "qwen2": models.Shape(family="qwen2", window=9, rope="yarn", layers=3),
    "qwen2_without_window": models.Shape(family="qwen2", tied=True),
    "qwen3": models.Shape(family="qwen3", head_width=24, rope="llama3"),
    "gemma2": models.Shape(family="gemma2", window=5, layers=3),
    "gemma3": models.Shape(family="gemma3", window=5, layers=3, rope="linear"),
    "phi3": models.Shape(family="phi3", window=6, rotary_share=0.5),
    "biased": models.Shape(biases=True),
    "all_kv_heads": models.Shape(layers=3, width=24, kv_heads=4, head_width=6, tied=True),
}


def show(*lines):
    """What show_model answers to each line."""
    done = subprocess.run(
        [TOOL], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stdout
    return answers


def traits_of(config):
    """What transformers makes of the fields that set a family apart."""
    window = getattr(config, "sliding_window", None) or 0
    kinds = getattr(config, "layer_types", None)
    rope = config.rope_parameters
    model = transformers.AutoModelForCausalLM.from_config(config)
    rotary = model.model.rotary_emb
    return {
        "window": window,
        "slides": [kind == "sliding_attention" for kind in kinds]
        if kinds
        else [window > 0] * config.num_hidden_layers,
        "attention_softcap": getattr(config, "attn_logit_softcapping", None) or 0.0,
        "logit_softcap": getattr(config, "final_logit_softcapping", None) or 0.0,
        "query_scalar": getattr(config, "query_pre_attn_scalar", 0.0),
        "local_rope_theta": rope.get("sliding_attention", {}).get("rope_theta", 0.0),
        "rotary_share": rope.get("partial_rotary_factor", 1.0),
        "attention_factor": getattr(rotary, "attention_scaling", 1.0),
    }


class AddedTokensTest(unittest.TestCase):
    """The id that the next token gets, and the rows for it, against the tokenizers library."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        models.write_model(models.random_model(models.Shape(), 1), self.folder)

    def check(self, tokenizer):
        tokenizer.save(str(self.folder / "tokenizer.json"))
        (answer,) = show(f"add {self.folder} <new>")
        tokenizer.add_tokens(["<new>"])
        first = tokenizer.token_to_id("<new>")
        vocabulary = max(models.Shape().vocabulary, first + 1)
        self.assertEqual(answer, {"first_added": first, "vocabulary": vocabulary})

    def test_every_kind_of_model_with_and_without_tokens_beside_it(self):
        words = {f"w{i}": i for i in range(150)}
        kinds = [
            tokenizer_models.BPE(vocab=words, merges=[]),
            tokenizer_models.WordLevel(vocab=words, unk_token="w0"),
            tokenizer_models.WordPiece(vocab=words, unk_token="w0"),
            tokenizer_models.Unigram([(word, -1.0) for word in words], unk_id=0),
            tokenizer_models.WordLevel(vocab={"a": 0, "b": 1}, unk_token="a"),
        ]
        for kind in kinds:
            for beside in ([], ["w3"], ["<a>", "<b>"], ["w3", "<a>"]):
                with self.subTest(type(kind).__name__, beside=beside):
                    tokenizer = Tokenizer(kind)
                    tokenizer.add_special_tokens(beside)
                    self.check(tokenizer)


class ReadersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_same_model(self, shown, folder):
        """Configuration, names, shapes, dtypes, and the bytes at the places that were found."""
        self.assertNotIn("error", shown)
        config = transformers.AutoConfig.from_pretrained(folder)
        for field, value in shown["config"].items():
            expected = getattr(config, field, None)
            if field == "rope_parameters":
                expected = expected.get("full_attention", expected)
                left_out = ("type", "partial_rotary_factor")
                expected = {k: v for k, v in expected.items() if k not in left_out}
            self.assertEqual(value, expected, field)
        self.assertEqual(shown["traits"], traits_of(config))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
        truth = model.state_dict()
        if config.tie_word_embeddings:
            truth.pop("lm_head.weight")
        self.assert_same_tensors(shown["tensors"], truth)

    def assert_same_tensors(self, tensors, truth):
        self.assertEqual(set(tensors), set(truth))
        for name, entry in tensors.items():
            expected = truth[name]
            self.assertEqual(entry["shape"], list(expected.shape), name)
            self.assertEqual(DTYPES[entry["dtype"]], expected.dtype, name)
            with open(entry["file"], "rb") as file:
                file.seek(entry["begin"])
                content = file.read(entry["bytes"])
            raw = expected.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            self.assertEqual(content, raw, name)

    def test_models_as_transformers_writes_them(self):
        lines, folders = [], []
        for number, (name, shape) in enumerate(SHAPES.items()):
            model = models.random_model(shape, seed=number)
            for dtype in DTYPES.values():
                for spelling in (4, 5):
                    folder = self.folder / f"{name}-{dtype}-{spelling}"
                    models.write_model(model, folder, dtype, spelling)
                    folders.append(folder)
                    lines.append(f"model {folder}")
        for folder, shown in zip(folders, show(*lines), strict=True):
            with self.subTest(folder.name):
                self.assert_same_model(shown, folder)

    def test_shards(self):
        model = models.random_model(SHAPES["plain"], seed=1)
        model.save_pretrained(self.folder, max_shard_size="60KB")
        self.assertGreater(len(list(self.folder.glob("model-*.safetensors"))), 3)
        self.assertFalse((self.folder / "model.safetensors").exists())
        self.assert_same_model(show(f"model {self.folder}")[0], self.folder)
        index = json.loads((self.folder / "model.safetensors.index.json").read_text())
        moved = sorted(set(index["weight_map"].values()))
        index["weight_map"]["model.norm.weight"] = next(
            shard for shard in moved if shard != index["weight_map"]["model.norm.weight"]
        )
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        self.assertIn("model.norm.weight", show(f"model {self.folder}")[0]["error"])

    def test_adapters_as_peft_writes_them(self):
        for number, shape in enumerate(SHAPES.values()):
            base, adapter = self.folder / f"base{number}", self.folder / f"adapter{number}"
            model = models.random_model(shape, seed=number)
            models.write_model(model, base)
            settings = {"r": 3, "lora_alpha": 6, "target_modules": "all-linear"}
            models.write_adapter(model, adapter, settings, seed=number)
            right, wrong = show(f"adapter {adapter} {base} 3", f"adapter {adapter} {base} 4")
            with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
                self.assert_same_tensors(
                    right.get("tensors", right), {k: file.get_tensor(k) for k in file.keys()}
                )
            self.assertIn("wrong shape (", wrong["error"])

    def test_models_of_other_families_are_refused_by_name(self):
        others = {
            "gemma": transformers.GemmaConfig(),
            "olmo2": transformers.Olmo2Config(),
            "gpt2": transformers.GPT2Config(),
        }
        for name, config in others.items():
            config.save_pretrained(self.folder / name)
        lines = [f"model {self.folder / name}" for name in others]
        for name, shown in zip(others, show(*lines), strict=True):
            self.assertIn(f'model_type is "{name}"; accepted: "llama", "mi', shown["error"])

    def test_llamas_that_compute_something_else_are_refused_by_field(self):
        rope = {"rope_theta": 1e4, "factor": 2.0}
        cases = {
            'hidden_act is "gelu"': {"hidden_act": "gelu"},
            "pretraining_tp is 2": {"pretraining_tp": 2},
            'rope_type is "dynamic"': {"rope_parameters": {"rope_type": "dynamic", **rope}},
            'rope_type is "proportional"': {
                "rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4}
            },
            "partial_rotary_factor is 0.5": {
                "rope_parameters": {"rope_type": "linear", "partial_rotary_factor": 0.5, **rope}
            },
        }
        lines = []
        for number, settings in enumerate(cases.values()):
            transformers.LlamaConfig(**settings).save_pretrained(self.folder / str(number))
            lines.append(f"model {self.folder / str(number)}")
        for said, shown in zip(cases, show(*lines), strict=True):
            self.assertIn(said, shown["error"])

    def test_damaged_files_are_accepted_only_where_safetensors_accepts_them(self):
        good = self.folder / "good"
        tensors = {"a": torch.ones(3, 2), "b": torch.ones(5, dtype=torch.bfloat16)}
        save_file(tensors, good, {"format": "pt"})
        content = good.read_bytes()
        header = 8 + struct.unpack("<Q", content[:8])[0]
        draw = random.Random(5)
        paths = []
        for number in range(1500):
            damaged = bytearray(content)
            for _ in range(draw.randint(1, 2)):
                damaged[draw.randrange(header)] = draw.choice(b'0123456789{}[]",:-.e \\xab\x00\xff')
            paths.append(self.folder / str(number))
            paths[-1].write_bytes(damaged)
        accepted = refused_by_both = 0
        for path, shown in zip(paths, show(*(f"header {p}" for p in paths)), strict=True):
            try:
                with safe_open(path, "pt") as file:
                    theirs = {k: list(file.get_slice(k).get_shape()) for k in file.keys()}
            except (SafetensorError, OverflowError) as error:
                self.assertIn("error", shown, f"{path.read_bytes()[:header]}: {error}")
                refused_by_both += 1
                continue
            if "error" not in shown:
                self.assertEqual({k: v["shape"] for k, v in shown["tensors"].items()}, theirs)
                accepted += 1
        self.assertGreater(accepted, 20)
        self.assertGreater(refused_by_both, 500)
        print(f"{accepted} accepted, {refused_by_both} refused by both, of {len(paths)}")


if __name__ == "__main__":
    unittest.main()
