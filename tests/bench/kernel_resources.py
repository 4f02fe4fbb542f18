"""Prints, in Markdown, what ptxas gives each kernel: registers, shared memory, spills, and the
occupancy that follows from them on a multiprocessor of each architecture.

python tests/bench/kernel_resources.py [--build build] [--nvcc nvcc] [name.cu ...]

Each source is compiled once more, with the flags of compile_commands.json and -Xptxas=-v. Occupancy
is the share of a multiprocessor's warps that its registers, shared memory and block slots allow; it
says nothing of what a kernel makes of it. Static shared memory alone: kernels here use no other.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
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


def rows(kernels):
    for kernel, name in zip(kernels, demangle([k.name for k in kernels])):
        share = occupancy(MACHINES[kernel.arch], kernel, DEFAULT_THREADS)
        yield (
            f"| {kernel.source} | {short(name)} | {kernel.arch} | {kernel.registers} |"
            f" {kernel.shared} | {kernel.stack} | {kernel.spills} | {share:.2f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--nvcc", help="instead of the one of the build")
    parser.add_argument("sources", nargs="*", help="e.g. rows.cu; default: all")
    options = parser.parse_args()
    print(f"Occupancy at {DEFAULT_THREADS} threads a block.\n")
    print("| source | kernel | arch | registers | shared B | stack B | spilled B | occupancy |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for name, command, directory in compile_commands(options.build, options.sources):
        for row in rows(parse(name, report_of(command, directory, options.nvcc))):
            print(row, flush=True)


if __name__ == "__main__":
    main()
