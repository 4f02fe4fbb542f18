"""The models of the hour: configurations alone, since weights are drawn on the device."""

import json
import pathlib

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "vocab_size": 128256,
}
# Width, width of the MLP, layers; heads follow from their own width.
SIZES = {"100m": (768, 2048, 12), "1b": (2048, 8192, 16), "8b": (4096, 14336, 32)}
HEAD_WIDTHS = (64, 128, 256)
QUERIES_PER_KEY = 4


def layers(size):
    return SIZES[size][2]


def config(size, head_width=128):
    """Llama-3 in three sizes; 8b with heads of 128 is Llama-3-8B."""
    width, mlp, count = SIZES[size]
    heads = width // head_width
    return {
        **_LLAMA,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": count,
        "num_attention_heads": heads,
        "num_key_value_heads": max(heads // QUERIES_PER_KEY, 1),
        "head_dim": head_width,
    }


def write(folder, size, head_width=128):
    """The folder of that model below `folder`, made where it is not there."""
    path = pathlib.Path(folder) / f"{size}-{head_width}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config(size, head_width), indent=2))
    return path
