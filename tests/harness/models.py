"""Random tiny models of the decoder families, made and written by transformers itself, and LoRA
adapters made by peft.

A model is a function of its shape and a seed. Norm weights are not all one and projections are
large enough that attention is far from uniform, so that a wrong mask, rotation or norm shows in
the loss. Nothing here knows how Snug reads what is written.
"""

import copy
import dataclasses
import json
import pathlib

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from tests.harness.families import FAMILIES, fields_of

logging.disable_progress_bar()
# These models are too small to share out; on a busy machine a second thread only waits.
torch.set_num_threads(1)

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 8.0,
    "beta_slow": 0.5,
}
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a config.json says. The defaults are a plain model with grouped queries."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 16
    mlp_width: int = 112
    vocabulary: int = 131
    tied: bool = False
    rope: str = "default"
    max_positions: int = 256
    family: str = "llama"
    window: int | None = None  # Tokens, on the layers that slide in the family.
    rotary_share: float = 1.0
    biases: bool = False  # Of attention; Qwen 2 has those of q, k and v without it.


ROPES = {"default": DEFAULT_ROPE, "llama3": LLAMA3_ROPE, "linear": LINEAR_ROPE, "yarn": YARN_ROPE}


def config_of(shape):
    """The transformers configuration of a shape."""
    fields = fields_of(shape, copy.deepcopy(ROPES[shape.rope]))
    if shape.biases:
        fields["attention_bias"] = True
    return FAMILIES[shape.family].config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.mlp_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_width,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=shape.tied,
        initializer_range=0.12,
        use_cache=False,
        pad_token_id=None,
        **fields,
    )


def with_random_vectors(model, family):
    """The model with norms and biases drawn, which transformers begins at one and zero."""
    center = FAMILIES[family].norm_center
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(center + 0.2 * torch.randn_like(weight))
            elif name.endswith(".bias"):
                weight.copy_(0.5 * torch.randn_like(weight))
    return model


def random_model(shape, seed):
    """A causal language model in fp32 with random weights."""
    torch.manual_seed(seed)
    return with_random_vectors(AutoModelForCausalLM.from_config(config_of(shape)), shape.family)


def write_model(model, folder, dtype=torch.float32, spelling=5):
    """Saves a model directory at a dtype, config.json in the spelling of transformers 4 or 5."""
    folder = pathlib.Path(folder)
    copy.deepcopy(model).to(dtype).save_pretrained(folder)
    if spelling == 4:
        respell_config(folder / "config.json")
    return folder


def respell_config(path):
    """Rewrites a config.json of transformers 5 as version 4 wrote it."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:  # Gemma 3.
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"
    path.write_text(json.dumps(config, indent=2))


def write_adapter(model, folder, settings, seed):
    """Saves a PEFT adapter with a random, non-zero B. `settings`: arguments of LoraConfig."""
    torch.manual_seed(seed)
    base = copy.deepcopy(model)
    config = LoraConfig(task_type="CAUSAL_LM", bias="none", **settings)
    wrapped = get_peft_model(base, config)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.1 * torch.randn_like(weight))
            elif "lora_embedding_A" in name:
                weight.copy_(0.1 * torch.randn_like(weight))
            elif "modules_to_save" in name:
                weight.add_(0.05 * torch.randn_like(weight))
    wrapped.save_pretrained(str(folder))
    return pathlib.Path(folder)


def load_model(folder, dtype, adapter=None):
    """Loads what a user would load: the model, and around it the adapter, trainable, in fp32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if adapter:
        model = PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    model.train()
    return model


def write_wordpiece(folder, texts, vocabulary):
    """The same of WordPiece, in lower case, with BERT's special tokens around each text."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ("pad", "unk", "cls", "sep", "mask")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name}_token": token for name, token in zip(names, special)},
    )
    fast.save_pretrained(str(folder))
    return fast


def write_tokenizer(folder, texts, vocabulary):
    """Trains a byte-level BPE tokenizer on texts and writes its Hugging Face files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    fast.save_pretrained(str(folder))
    return fast
