"""The decoder families: transformers' configuration of each, at the size and with the traits of a
Shape. Windows are shorter than the rows of tests, softcaps low enough to bend every score."""

import dataclasses

import transformers

ATTENTION_SOFTCAP = 2.0
LOGIT_SOFTCAP = 3.0
LOCAL_THETA = 100.0


@dataclasses.dataclass(frozen=True)
class Family:
    """`fields`: what the configuration says beyond that of a Llama, given a Shape."""

    config: type
    fields: callable
    norm_center: float = 1.0  # Of stored norm weights.


def _alternating(shape, first):
    kinds = ("sliding_attention", "full_attention")
    return [kinds[(layer + first) % 2] for layer in range(shape.layers)]


def _mistral(shape):
    return {"sliding_window": shape.window}


def _qwen(shape):
    # The upper layers slide.
    return {
        "use_sliding_window": shape.window is not None,
        "sliding_window": shape.window,
        "max_window_layers": 1,
    }


def _gemma2(shape):
    return {
        "sliding_window": shape.window,
        "query_pre_attn_scalar": 3 * shape.head_width,
        "attn_logit_softcapping": ATTENTION_SOFTCAP,
        "final_logit_softcapping": LOGIT_SOFTCAP,
    }


def _gemma3(shape, rope):
    return {
        "sliding_window": shape.window,
        "query_pre_attn_scalar": 3 * shape.head_width,
        "layer_types": _alternating(shape, 0),
        "rope_parameters": {
            "full_attention": rope,
            "sliding_attention": {"rope_type": "default", "rope_theta": LOCAL_THETA},
        },
    }


def _phi3(shape):
    return {"sliding_window": shape.window}


FAMILIES = {
    "llama": Family(transformers.LlamaConfig, lambda shape: {}),
    "mistral": Family(transformers.MistralConfig, _mistral),
    "qwen2": Family(transformers.Qwen2Config, _qwen),
    "qwen3": Family(transformers.Qwen3Config, _qwen),
    "gemma2": Family(transformers.Gemma2Config, _gemma2, norm_center=0.0),
    "gemma3": Family(transformers.Gemma3TextConfig, _gemma3, norm_center=0.0),
    "phi3": Family(transformers.Phi3Config, _phi3),
}


def fields_of(shape, rope):
    """What the configuration of the shape's family says beyond its sizes. `rope`: the parameters
    that Shape names."""
    family = FAMILIES[shape.family]
    if shape.family == "gemma3":
        return family.fields(shape, rope)
    fields = {"rope_parameters": rope, **family.fields(shape)}
    if shape.rotary_share != 1.0:
        rope["partial_rotary_factor"] = shape.rotary_share
    return fields
