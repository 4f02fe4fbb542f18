"""Checkpoints whose linear weights are in codes, as bitsandbytes and transformers save them.

By the definitions of bitsandbytes' functional.quantize_4bit and int8_vectorwise_quant, in torch
alone. Which modules are skipped says transformers.
"""

import json
import pathlib
import re
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers.quantizers.quantizers_utils import should_convert_module

BLOCK, GROUP = 64, 256
LAYERS = re.compile(r"model\.layers\.\d+\.(self_attn|mlp)\.\w+\.weight")
HEAD = "lm_head.weight"
# QLoRA, appendix E.
NF4 = torch.tensor(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ]
)
CONFIGS = {
    "NF4": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_compute_dtype": "bfloat16",
    },
    "INT8": {"load_in_8bit": True, "llm_int8_threshold": 6.0},
}


def dynamic_map(signed):
    """The 256 levels, rising, step by step as bitsandbytes makes them."""
    levels = [0.0, 1.0]
    for i in range(7):
        bounds = torch.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1, dtype=torch.float64)
        means = 10.0 ** (i - 6) * (bounds[:-1] + bounds[1:]) / 2
        levels += means.tolist()
        if signed:
            levels += (-means).tolist()
    return torch.tensor(sorted(levels), dtype=torch.float64)


def nearest(x, levels):
    """Indices of the nearest of rising levels."""
    return torch.bucketize(x, (levels[:-1] + levels[1:]) / 2)


def in_groups(x, size):
    """A flat tensor in rows of `size`, filled up with zeros."""
    return torch.nn.functional.pad(x, (0, -len(x) % size)).view(-1, size)


def double_quantised(absmax):
    """Codes of 8 bits of scales' distances from their mean, scales of their groups, the mean."""
    mean = absmax.double().mean().float()
    groups = in_groups(absmax - mean, GROUP)
    scales = groups.abs().amax(1)
    codes = nearest(groups / scales.clamp_min(1e-30)[:, None], dynamic_map(True).float())
    return codes.flatten()[: len(absmax)], scales, mean


def nf4_parts(key, weight, nested=True):
    """The tensors of a matrix in 4 bits; `nested`: its scales are in 8."""
    flat = weight.float().flatten()
    blocks = in_groups(flat, BLOCK)
    absmax = blocks.abs().amax(1)
    codes = nearest(blocks / absmax.clamp_min(1e-30)[:, None], NF4).flatten()[: len(flat)]
    codes = torch.nn.functional.pad(codes, (0, len(codes) % 2), value=7).to(torch.uint8)
    state = {
        "quant_type": "nf4",
        "blocksize": BLOCK,
        "dtype": "float32",
        "shape": list(weight.shape),
    }
    parts = {key: ((codes[::2] << 4) | codes[1::2])[:, None], f"{key}.quant_map": NF4.clone()}
    if nested:
        of_scales, scales, mean = double_quantised(absmax)
        parts[f"{key}.absmax"] = of_scales.to(torch.uint8)
        parts[f"{key}.nested_absmax"] = scales
        parts[f"{key}.nested_quant_map"] = dynamic_map(True).float()
        state |= {
            "nested_blocksize": GROUP,
            "nested_dtype": "float32",
            "nested_offset": mean.item(),
        }
    else:
        parts[f"{key}.absmax"] = absmax
    text = json.dumps(state).encode()
    parts[f"{key}.quant_state.bitsandbytes__nf4"] = torch.tensor(list(text), dtype=torch.uint8)
    return parts


def int8_parts(key, weight):
    """The tensors of a matrix in 8 bits, a scale a row."""
    scale = weight.float().abs().amax(1)
    codes = (weight.float() * (torch.full_like(scale, 127.0) / scale)[:, None]).round()
    module = key.removesuffix(".weight")
    return {
        key: codes.to(torch.int8),
        f"{module}.SCB": scale,
        f"{module}.weight_format": torch.tensor(0, dtype=torch.uint8),
    }


def quantises(key, skipped):
    """Whether transformers would quantise that matrix of a model with an untied head, which it
    leaves out by default, where nothing is said to be skipped."""
    if not LAYERS.fullmatch(key) and (key != HEAD or skipped is None):
        return False
    return should_convert_module(key.removesuffix(".weight"), skipped)


def write(model, folder, kind, nested=True, skipped=None):
    """A folder with the model of another one, its linear weights in codes: NF4 or INT8.
    `skipped`: modules that stay in floats, as transformers reads such names; None: the head."""
    model, folder = pathlib.Path(model), pathlib.Path(folder)
    shutil.copytree(model, folder)
    tensors = {}
    for key, weight in load_file(folder / "model.safetensors").items():
        if not quantises(key, skipped):
            tensors[key] = weight
        else:
            parts = nf4_parts(key, weight, nested) if kind == "NF4" else int8_parts(key, weight)
            tensors.update(parts)
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "bitsandbytes",
        **CONFIGS[kind],
        "llm_int8_skip_modules": skipped,
    }
    (folder / "config.json").write_text(json.dumps(config))
