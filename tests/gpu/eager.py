"""The same step by transformers and PEFT: Llama-3-8B of random weights, LoRA on all linear modules,
bf16, 4 x 2048, eager; attention by flash or by cuDNN, with Liger's kernels where they are there.
Prints one line of JSON: seconds of a step, and the peak of torch's allocator."""

import argparse
import json

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM

from tests.gpu import models

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
ROWS, TOKENS, STEPS = 4, 2048, 5


def make_model(size, liger, checkpointing):
    fields = models.config(size)
    del fields["architectures"], fields["model_type"]
    if liger:
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        apply_liger_kernel_to_llama()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):  # Weights are drawn where they stay.
        model = LlamaForCausalLM(LlamaConfig(**fields, attn_implementation="sdpa"))
    torch.set_default_dtype(torch.float32)
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    return get_peft_model(
        model, LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    )


def run_steps(model):
    """The median of the steps after the first, in seconds, and the last loss."""
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    ids = torch.randint(0, 128256, (ROWS, TOKENS), device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(STEPS + 1):
        begin.record()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) * 1e-3)
    return sorted(taken[1:])[STEPS // 2], loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--attention", choices=BACKENDS, default="flash")
    parser.add_argument("--model", choices=models.SIZES, default="8b")
    parser.add_argument("--liger", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    options = parser.parse_args()
    model = make_model(options.model, options.liger, options.checkpointing)
    with sdpa_kernel(BACKENDS[options.attention]):
        taken, loss = run_steps(model)
    figures = {
        "step_seconds": taken,
        "tokens_per_second": ROWS * TOKENS / taken,
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "loss": loss,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
