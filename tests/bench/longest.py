"""The longest sequence that a step of Llama-3's shapes takes under a cap of a GPU's bytes, by how
values are kept; LoRA of rank 16 on all linear modules, bf16, one row. By replay: no GPU is needed.

    python -m tests.bench.longest [--model llama-3-8b] [--quantization nf4] [GIB ...]
"""

import argparse
import json
import subprocess

from tests.harness.binaries import ROOT, binary

STEP = binary("..") / "tests" / "bin" / "snug-step"
MODELS = ROOT / "tests" / "bench" / "step"
INPUTS = "*=recompute,layers.*.input="
LOOPS = "*=chunk,*.attention.*=recompute,*.residual=recompute,layers.*.input="
STASHES = (
    "keep",
    "*=recompute",
    f"{INPUTS}int8",
    f"{INPUTS}offload",
    f"{LOOPS}keep",
    f"{LOOPS}int8",
    f"{LOOPS}offload",
)
CONTEXT = 704 << 20  # Of the process, as the daemon assumes of a GPU that it has not seen.
GRAIN, MOST = 64, 3_900_000  # Tokens.


def predicted(base, tokens, stash):
    """Bytes of the step, of the GPU's memory and of the host's. `base`: options for the model."""
    command = [STEP, *base, "--stash", stash, "--predict", "--bf16", "--rows", "1"]
    run = subprocess.run(
        [*command, "--tokens", str(tokens)], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def longest(base, cap, stash):
    """Tokens; 0: not even a short one fits."""
    low, high = 0, MOST
    while high - low > GRAIN:
        middle = (low + high) // 2
        fits = predicted(base, middle, stash)["predicted_bytes"] + CONTEXT <= cap
        low, high = (middle, high) if fits else (low, middle)
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("caps", metavar="GIB", type=int, nargs="*", default=(80, 141))
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--quantization", choices=("nf4", "int8"))
    options = parser.parse_args()
    base = ["--model", MODELS / options.model]
    if options.quantization:
        base += ["--quantization", options.quantization]
    print("| cap | stash | tokens | of the GPU | of the host |\n|---|---|---|---|---|")
    for gib in options.caps:
        for stash in STASHES:
            tokens = longest(base, gib << 30, stash)
            bytes_by = predicted(base, max(tokens, GRAIN), stash)
            sizes = (bytes_by["predicted_bytes"] + CONTEXT, bytes_by["host_bytes"])
            cells = " | ".join(f"{size / 2**30:.1f} GiB" for size in sizes)
            print(f"| {gib} GiB | `{stash}` | {tokens:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
