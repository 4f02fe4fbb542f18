"""What the GPU can do at best, by torch: a copy, products of the step's shapes, the adapter's
products in bf16 and in fp32, chunks of the head, attention by each library. Lines of JSON."""

import json

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

TOKENS, WIDTH, MLP, VOCABULARY, RANK = 8192, 4096, 14336, 128256, 16
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def seconds(work, times=10):
    """Of one call, by events around several."""
    for _ in range(3):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3 / times


def say(name, **figures):
    print(json.dumps({"ceiling": name, **figures}), flush=True)


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, dtype=dtype, device="cuda")


def copy():
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    say("copy", bytes_per_second=2 * x.numel() / seconds(lambda: y.copy_(x)))


def product(name, rows, inner, columns, dtype=torch.bfloat16):
    a, b = random(rows, inner, dtype=dtype), random(columns, inner, dtype=dtype)
    c = random(rows, columns, dtype=dtype)
    taken = seconds(lambda: torch.mm(a, b.t(), out=c))
    say(name, seconds=taken, flops_per_second=2.0 * rows * inner * columns / taken)


def products():
    product("gemm_square", 8192, 8192, 8192)
    product("gemm_qo", TOKENS, WIDTH, WIDTH)
    product("gemm_up", TOKENS, WIDTH, MLP)
    product("gemm_down", TOKENS, MLP, WIDTH)
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "fp32")):
        product(f"lora_a_{name}", TOKENS, WIDTH, RANK, dtype)
        product(f"lora_b_{name}", TOKENS, RANK, MLP, dtype)
        product(f"lora_da_{name}", RANK, TOKENS, WIDTH, dtype)
    for rows in (256, 512, 1024, 2048):
        product(f"head_{rows}", rows, WIDTH, VOCABULARY)


def attention(library, head_width):
    heads = WIDTH // head_width
    q, k, v = (random(4, heads, 2048, head_width).requires_grad_() for _ in range(3))
    try:
        with sdpa_kernel(BACKENDS[library]):
            forward = seconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=True))

            def both():
                scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

            say(
                f"attention_{library}_{head_width}",
                forward_seconds=forward,
                both_seconds=seconds(both),
            )
    except RuntimeError as error:
        say(f"attention_{library}_{head_width}", error=str(error)[:200])


def main():
    copy()
    products()
    for head_width in (64, 128, 256):
        for library in ("flash", "cudnn"):
            attention(library, head_width)


if __name__ == "__main__":
    main()
