"""The parity cases: random tiny models with what trips implementations, and what is asked of
them.

Every optimizer step uses the whole dataset (batch x accumulation = rows), so an order of our
own only permutes rows within a step; the rows of each micro-batch are read from the probe all
the same.
"""

import dataclasses
import functools
import pathlib
import tempfile
import unittest

import torch

from tests.harness import datasets, models
from tests.parity import compare, reference

# Mixed lengths, one token beyond powers of two among them; the longest is three times the length at
# which the scaled rotary frequencies were trained.
LENGTHS = (2, 97, 5, 33, 64, 17, 1, 48, 12, 80, 3, 21)


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration to train. `targets`: None for full fine-tuning."""

    name: str
    shape: models.Shape
    targets: tuple | str | None = None
    bf16: bool = False
    spelling: int = 5
    rslora: bool = False
    batch: int = 4
    scheduler: str = "cosine"
    seed: int = 1
    rank: int = 4  # With alpha: a ratio that is not one.
    alpha: int = 6
    smoothing: float = 0.0  # Of labels.
    # More arguments of LoraConfig; the name tells cases apart.
    options: dict = dataclasses.field(default_factory=dict, compare=False)

    @property
    def dtype(self):
        """Compute dtype of frozen weights and activations."""
        return torch.bfloat16 if self.bf16 else torch.float32


PLAIN = models.Shape(kv_heads=4)
ONE_KV_HEAD = models.Shape(kv_heads=1, head_width=24, vocabulary=257)
LLAMA3 = models.Shape(kv_heads=2, vocabulary=199, tied=True, rope="llama3", layers=3)
LINEAR = models.Shape(
    heads=3,
    kv_heads=1,
    width=72,
    head_width=32,
    vocabulary=163,
    rope="linear",
    max_positions=32,  # Before they are stretched.
)
QV = ("q_proj", "v_proj")

FP32_CASES = (
    Case("full-plain", PLAIN, scheduler="linear", seed=11),
    Case("full-one-kv-head", ONE_KV_HEAD, spelling=4, batch=3, seed=12, smoothing=0.2),
    Case("full-llama3-tied", LLAMA3, batch=12, seed=13),
    Case("full-linear-rope", LINEAR, spelling=4, scheduler="constant_with_warmup", seed=14),
    Case("lora-plain-v4", PLAIN, "all-linear", spelling=4, batch=6, seed=15),
    Case("lora-one-kv-head", ONE_KV_HEAD, QV, rslora=True, seed=16),
    Case("lora-llama3-tied-v4", LLAMA3, "all-linear", spelling=4, scheduler="constant", seed=17),
    Case("lora-linear-rope", LINEAR, ("k_proj", "o_proj", "up_proj", "down_proj"), seed=18),
)
# A regular expression for the modules, another rank, another alpha, one module left out.
PATTERNS = {
    "rank_pattern": {"self_attn.q_proj": 2, r"layers\.1\.mlp\.(up|gate)_proj": 7},
    "alpha_pattern": {"v_proj": 11},
    "exclude_modules": ["layers.0.self_attn.v_proj"],
}
OPTION_CASES = (
    Case("patterns", PLAIN, r".*\.(self_attn|mlp)\.(q|v|up)_proj", seed=31, options=PATTERNS),
    Case(
        "patterns-rslora",
        PLAIN,
        ("q_proj", "v_proj", "up_proj"),
        rslora=True,
        seed=32,
        options=PATTERNS,
    ),
    Case(
        "some-layers-and-norms",
        LLAMA3,
        QV,
        seed=33,
        options={"layers_to_transform": [0, 2], "modules_to_save": ["norm"]},
    ),
    Case(
        "saved-head-and-embedding",
        ONE_KV_HEAD,
        "all-linear",
        seed=34,
        options={"modules_to_save": ["embed_tokens", "lm_head"]},
    ),
    Case(
        "saved-tied",
        LLAMA3,
        QV,
        seed=35,
        options={"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    ),
)
HEADS = ("lm_head", "embed_tokens", "v_proj")
ADAPTED_HEADS = Case("adapted-head-and-embedding", ONE_KV_HEAD, HEADS, batch=3, seed=36)
UNTIED_GEMMA = models.Shape(family="gemma2", window=7)
ADAPTED_GEMMA = Case("adapted-heads-of-gemma", UNTIED_GEMMA, HEADS, rslora=True, seed=37)
OPTION_CASES += (ADAPTED_HEADS, ADAPTED_GEMMA)
BF16_CASES = (
    Case("lora-bf16-one-kv-head", ONE_KV_HEAD, "all-linear", bf16=True, spelling=4, seed=21),
    Case("lora-bf16-llama3-tied", LLAMA3, "all-linear", bf16=True, batch=12, seed=22),
    Case("lora-bf16-linear-rope", LINEAR, QV, bf16=True, rslora=True, seed=23),
    Case(
        "lora-bf16-saved",
        PLAIN,
        QV,
        bf16=True,
        seed=26,
        options={"modules_to_save": ["lm_head", "norm"]},
    ),
    Case("lora-bf16-heads", PLAIN, HEADS, bf16=True, seed=27),
    Case("full-bf16-plain", PLAIN, bf16=True, scheduler="linear", seed=24),
    Case("full-bf16-llama3-tied", LLAMA3, bf16=True, batch=12, seed=25),
)


@dataclasses.dataclass
class Prepared:
    """A case on disk, and its rows in memory."""

    case: Case
    folder: pathlib.Path
    model: pathlib.Path
    adapter: pathlib.Path | None
    data: pathlib.Path
    rows: list
    settings: reference.Settings


def prepare(case, folder, lengths=LENGTHS):
    """Writes model, adapter and prepared dataset of a case."""
    folder = pathlib.Path(folder)
    model = models.random_model(case.shape, case.seed)
    directory = models.write_model(model, folder / "model", case.dtype, case.spelling)
    adapter = None
    if case.targets:
        lora = lora_arguments(case)
        adapter = models.write_adapter(model, folder / "adapter", lora, case.seed + 100)
    rows = datasets.random_rows(case.seed, usable(lengths), case.shape.vocabulary)
    data = datasets.write_prepared(rows, folder / "data")
    settings = reference.Settings(
        lr_scheduler_type=case.scheduler, label_smoothing_factor=case.smoothing
    )
    return Prepared(case, folder, directory, adapter, data, rows, settings)


def usable(lengths):
    """Rows of one token carry no loss and are dropped by snug-prepare."""
    return [length for length in lengths if length > 1]


def lora_arguments(case):
    """LoraConfig arguments."""
    targets = case.targets if isinstance(case.targets, str) else list(case.targets)
    return {
        "r": case.rank,
        "lora_alpha": case.alpha,
        "target_modules": targets,
        "use_rslora": case.rslora,
        **case.options,
    }


def job_spec(prepared, **changes):
    """The JobSpec of a case with nothing left to defaults, as proto JSON. `changes`: fields of
    TrainingSpec to set otherwise."""
    case, settings = prepared.case, prepared.settings
    rows = len(prepared.rows)
    training = {
        "max_steps": settings.max_steps,
        "per_device_train_batch_size": case.batch,
        "gradient_accumulation_steps": max(1, -(-rows // case.batch)),
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": case.scheduler.upper(),
        "warmup_steps": settings.warmup_steps,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "max_seq_length": 256,
        "packing": False,
        "precision": "BF16" if case.bf16 else "FP32",
        "seed": 42,
        "save_total_limit": 2,
        "logging_steps": 1,
        "adam_beta1": settings.adam_beta1,
        "adam_beta2": settings.adam_beta2,
        "adam_epsilon": settings.adam_epsilon,
        "label_smoothing_factor": settings.label_smoothing_factor,
    }
    spec = {
        "display_name": case.name,
        "model": str(prepared.model),
        "dataset": str(prepared.data),
        "method": "LORA" if case.targets else "FULL",
        "training": {**training, **changes},
        "memory": {"budget": "auto", "fidelity": "EXACT"},
    }
    if case.targets:
        lora = lora_arguments(case)
        if isinstance(lora["target_modules"], str):
            lora["target_modules"] = [lora["target_modules"]]
        lora.pop("ensure_weight_tying", None)  # There is no other way here.
        spec["lora"] = {**lora, "lora_dropout": 0.0, "init_adapter": str(prepared.adapter)}
    return spec


def in_order(rows, order):
    """Row numbers, per step and micro-batch, as the rows themselves."""
    return [[[rows[i] for i in batch] for batch in step] for step in order]


def file_order(case, rows, steps):
    """The order in which a user without shuffling sees the rows."""
    numbers = list(range(rows))
    step = [numbers[i : i + case.batch] for i in range(0, rows, case.batch)]
    return [step] * steps


class CasesTest(unittest.TestCase):
    """Tests of cases that are written and trained once each, in a folder of the class: `prepared`
    and `probed` are `_prepare` and `_probe` of the class, which answers for what it was asked."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prepared = staticmethod(functools.cache(cls._prepare))
        cls.probed = staticmethod(functools.cache(cls._probe))

    def expect_gradients_of_keep(self, case):
        """To the bit, where all or some of what backward needs is computed again."""
        kept = self.probed(case, steps=1).gradients
        for plan in ("recompute", "mixed"):
            again = self.probed(case, plan, 1).gradients
            self.assertEqual(compare.keys_differ(again, kept), [])
            changed = [k for k in kept if kept[k].tobytes() != again[k].tobytes()]
            self.assertEqual(changed, [])
