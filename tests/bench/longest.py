"""The longest sequence that a step of Llama-3-8B's shapes takes under a cap of a GPU's bytes, by
how values are kept; LoRA of rank 16 on all linear modules, bf16, one row. By replay: no GPU is
needed.

    python -m tests.bench.longest [GIB ...]
"""

import json
import subprocess
import sys

from tests.harness.binaries import ROOT, binary

STEP = binary("..") / "tests" / "bin" / "snug-step"
MODEL = ROOT / "tests" / "bench" / "step" / "llama-3-8b"
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


def predicted(tokens, stash):
    """Bytes of the step, of the GPU's memory and of the host's."""
    command = [STEP, "--model", MODEL, "--stash", stash, "--predict", "--bf16", "--rows", "1"]
    run = subprocess.run(
        [*command, "--tokens", str(tokens)], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def longest(cap, stash):
    low, high = GRAIN, MOST
    while high - low > GRAIN:
        middle = (low + high) // 2
        fits = predicted(middle, stash)["predicted_bytes"] + CONTEXT <= cap
        low, high = (middle, high) if fits else (low, middle)
    return low


def main():
    print("| cap | stash | tokens | of the GPU | of the host |\n|---|---|---|---|---|")
    for gib in map(int, sys.argv[1:] or ("80", "141")):
        for stash in STASHES:
            tokens = longest(gib << 30, stash)
            bytes_by = predicted(tokens, stash)
            sizes = (bytes_by["predicted_bytes"] + CONTEXT, bytes_by["host_bytes"])
            cells = " | ".join(f"{size / 2**30:.1f} GiB" for size in sizes)
            print(f"| {gib} GiB | `{stash}` | {tokens:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
