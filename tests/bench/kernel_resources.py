"""Prints, in Markdown, what ptxas gives each kernel: registers, shared memory, spills, and the
occupancy that follows from them on a multiprocessor of each architecture; and the bytes that each
op moves.

python tests/bench/kernel_resources.py [--build build] [--nvcc nvcc]
                                       [--benchmark kernels_benchmark] [name.cu ...]

Each source is compiled once more, with the flags of compile_commands.json and -Xptxas=-v. Occupancy
is the share of a multiprocessor's warps that its registers, shared memory and block slots allow; it
says nothing of what a kernel makes of it. Static shared memory alone: kernels here use no other.
"""

import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
DEFAULT_THREADS = 256  # kMaxBlock of kernels/cuda/launch.cuh


@dataclass
class Machine:
    """A multiprocessor (CUDA C++ Programming Guide, technical specifications per capability)."""

    warps: int
    blocks: int
    shared_bytes: int
    registers: int = 65536
    warp_registers: int = 256  # Registers come in units of so many per warp.
    shared_unit: int = 128
    shared_reserved: int = 1024  # Per block.


MACHINES = {"sm_80": Machine(64, 32, 164 << 10), "sm_90": Machine(64, 32, 228 << 10)}


_PARTS = "sums of parts of the rows: at most 0.125 B an element and sum"
_LONG = (
    "rows of more than 8,192 bf16 or 4,096 fp32 elements, which a block's registers do not hold:"
    " what is beyond again, from the cache"
)
# What CUDA kernels move beyond each operand once, by their sources.
BEYOND = {
    "AddColumns": "elements a row apart: sectors of 32 B each; ids once per token, from the cache",
    "AffineBackward": _PARTS,
    "AttentionBackward": "q, k, v and dO once per tile of 64 x 64 scores, mostly from the cache",
    "AttentionForward": "k and v once per 64 queries, mostly from the cache",
    "BiasBackward": _PARTS,
    "CrossEntropy": "with the gradient, what a block does not hold of a row (32,768 bf16, 16,384"
    " fp32 elements) once more, from the cache",
    "EmbeddingBackward": "ids of a chunk of 4,096 for each of its tokens, from the cache",
    "FoldNorm": _PARTS,
    "FrozenLinearBackward": "W once per 64 rows of dy, dy once per 64 columns of dx",
    "FrozenLinearForward": "W once per 64 rows of x, x once per 64 columns of y",
    "GatherColumns": "elements a row apart: sectors of 32 B each",
    "NormalizeBackward": _LONG + "; a layer norm from its input: that twice more, from the cache",
    "NormalizeForward": _LONG,
    "QuantizeInt8Weight": "w twice, the second time from the cache",
    "QuantizeNf4": "double quantisation: absmax in fp32, written once, read three times: 0.25 B",
    "QuantizedNormBackward": _LONG.replace("8,192 bf16 or 4,096 fp32", "4,096"),
    "QuantizedNormForward": _LONG.replace("8,192 bf16 or 4,096 fp32", "8,192"),
    "QuantizedNormSums": _PARTS,
    "RmsNormBackward": "few or long rows take two kernels: 5 operands instead of 3; " + _PARTS,
    "RmsNormForward": _LONG,
    "SampleRows": "scores some times, and once per step of the search, from the cache",
    "SoftmaxBackward": _LONG,
    "SoftmaxForward": _LONG,
}


@dataclass
class Kernel:
    source: str
    name: str
    arch: str
    registers: int = 0
    shared: int = 0
    spills: int = 0
    stack: int = 0


def occupancy(machine, kernel, threads):
    """Share of the multiprocessor's warps that blocks of so many threads can fill."""
    warps = -(-threads // 32)
    unit = machine.warp_registers
    per_warp = max(1, -(-kernel.registers * 32 // unit)) * unit
    by_registers = machine.registers // per_warp // warps
    shared = -(-kernel.shared // machine.shared_unit) * machine.shared_unit
    by_shared = machine.shared_bytes // (shared + machine.shared_reserved)
    blocks = min(machine.blocks, machine.warps // warps, by_registers, by_shared)
    return blocks * warps / machine.warps


def demangle(names):
    text = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout
    return text.splitlines()


def short(name):
    """AddKernel<4> out of a demangled signature."""
    name = name.replace("(anonymous namespace)::", "").replace("snug::kernels::cuda::", "")
    name = name.replace("snug::kernels::", "").removeprefix("void ")
    name = re.sub(r"\((?:int|bool|long)\)", "", name)
    depth = 0
    for i, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            return name[:i]
    return name


def parse(source, report):
    """The kernels of one source's `ptxas -v` report."""
    kernels, kernel = [], None
    for line in report.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for '(sm_\d+)'", line):
            kernel = Kernel(source, match[1], match[2])
            kernels.append(kernel)
        elif kernel and (
            match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", line)
        ):
            kernel.stack, kernel.spills = int(match[1]), int(match[2]) + int(match[3])
        elif kernel and (match := re.search(r"Used (\d+) registers", line)):
            kernel.registers = int(match[1])
            shared = re.search(r"(\d+) bytes smem", line)
            kernel.shared = int(shared[1]) if shared else 0
    return kernels


def compile_commands(build, wanted):
    """(source, command) of the .cu files that nvcc compiles; all of them if none is named."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        name = os.path.basename(entry["file"])
        is_cuda = entry["file"].endswith(".cu") and "-x cu" in entry["command"]
        if is_cuda and (not wanted or name in wanted):
            yield name, entry["command"], entry["directory"]


def report_of(command, directory, nvcc):
    words = shlex.split(command)
    words[0] = nvcc or words[0]
    words[words.index("-o") + 1] = os.devnull
    run = subprocess.run(
        words + ["-Xptxas=-v"], cwd=directory, capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        sys.exit(run.stdout + run.stderr)
    return run.stdout + run.stderr


def either(values):
    """One figure where both architectures have it, else both."""
    return " / ".join(dict.fromkeys(values))


def rows(kernels):
    """A line a kernel, of all architectures that it was compiled for."""
    by_name = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, []).append(kernel)
    for versions, name in zip(by_name.values(), demangle(by_name)):
        versions.sort(key=lambda kernel: kernel.arch)
        shares = [occupancy(MACHINES[k.arch], k, DEFAULT_THREADS) for k in versions]
        cells = [
            versions[0].source,
            short(name).replace("|", "\\|"),
            either(str(k.registers) for k in versions),
            either(str(k.shared) for k in versions),
            either(str(k.stack) for k in versions),
            either(str(k.spills) for k in versions),
            either(f"{share:.2f}" for share in shares),
        ]
        yield f"| {' | '.join(cells)} |"


def print_bytes(benchmark):
    """What the benchmark's rows say of each op, and what its CUDA kernels move beyond that."""
    listed = subprocess.run([benchmark, "--bytes"], capture_output=True, text=True, check=True)
    print("\n## Bytes moved\n")
    print("An element of the (N, C) operand, rows of 4,096 elements: each operand once, as the")
    print("op's header has it. That is the minimum, but for what the last column names.\n")
    print("| op | fp32 | bf16 | beyond the minimum |")
    print("|---|---:|---:|---|")
    for line in listed.stdout.splitlines():
        op, *figures = line.rsplit("|", 2)
        beyond = BEYOND.get(op.split(",")[0], "")
        print(f"| {op} | {figures[0]} | {figures[1]} | {beyond} |")


def print_heading(options, command):
    nvcc = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"release [\d.]+, (V[\d.]+)", nvcc.stdout)[1]
    print("# CUDA kernels: resources and bytes moved\n")
    print(f"{datetime.date.today()}, nvcc {version}, without a GPU:\n")
    print(f"    python tests/bench/kernel_resources.py --build {os.path.relpath(options.build)} \\")
    print(f"        --benchmark {os.path.relpath(options.benchmark or '(none)')}\n")
    print("## Resources\n")
    print("ptxas' figures for sm_80 / sm_90 (one where they are equal). Occupancy at")
    print(f"{DEFAULT_THREADS} threads a block.\n")
    print("| source | kernel | registers | shared B | stack B | spilled B | occupancy |")
    print("|---|---|---:|---:|---:|---:|---:|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--nvcc", help="instead of the one of the build")
    parser.add_argument("--benchmark", help="kernels_benchmark, for the bytes that ops move")
    parser.add_argument("sources", nargs="*", help="e.g. rows.cu; default: all")
    options = parser.parse_args()
    commands = sorted(compile_commands(options.build, options.sources))
    nvcc = options.nvcc or shlex.split(commands[0][1])[0]
    print_heading(options, nvcc)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = pool.map(lambda c: report_of(c[1], c[2], nvcc), commands)
        for (name, _, _), report in zip(commands, reports):
            for row in rows(parse(name, report)):
                print(row, flush=True)
    if options.benchmark:
        print_bytes(options.benchmark)


if __name__ == "__main__":
    main()
