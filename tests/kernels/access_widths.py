"""Reads from the machine code of CUDA objects how wide their accesses to global memory are.

python tests/kernels/access_widths.py [--cuobjdump PATH] object.o ...

Prints each access of 16 neighbouring bytes that the compiler has split: where one thread, in one
stretch of code without a branch, moves bytes o, o + 4, o + 8 and o + 12 (or o and o + 8) from one
address by instructions of their own. A warp then needs four times the transactions. Stores and
loads that stand under different predicates are elements by themselves, as at the end of a row.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass

WIDE_BYTES = 16

# One instruction: "/*0cd0*/  @P0 STG.E.64 desc[UR12][R20.64+0x4], R29 ;"
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\d+\s+)?([A-Z0-9_.]+)\s*(.*?);")
_ADDRESS = re.compile(r"\[(U?R\d+(?:\.[U0-9X]+)*)?(?:\+?(U?R\d+))?([+-]?-?0x[0-9a-f]+)?\]")
_BRANCHES = ("BRA", "BRX", "EXIT", "RET", "CALL", "BSYNC", "WARPSYNC", "BAR")
_BYTES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}


@dataclass(frozen=True)
class Access:
    kind: str  # STG or LDG
    bytes: int
    address: str  # Registers and how often they had been written, without the offset
    offset: int
    predicate: str


class Function:
    def __init__(self, arch, name):
        self.arch, self.name = arch, name
        self.stretches = [[]]  # Of accesses, between branches and labels.
        self._writes = {}  # Of each register, so far.

    def add(self, predicate, opcode, operands):
        """Takes the next instruction."""
        name, *modifiers = opcode.split(".")
        if name in _BRANCHES:
            self.stretches.append([])
        if name in ("STG", "LDG"):
            self._add_access(name, modifiers, operands, predicate)
        if written := re.match(r"R(\d+)\b", operands):
            wide = 4 if "128" in modifiers else 2 if {"64", "WIDE"} & set(modifiers) else 1
            for register in range(int(written[1]), int(written[1]) + wide):
                self._writes[register] = self._writes.get(register, 0) + 1

    def _add_access(self, name, modifiers, operands, predicate):
        places = [place for place in _ADDRESS.findall(operands) if place[0].startswith("R")]
        if not places:
            return
        base, index, offset = places[0]
        low = int(re.match(r"R(\d+)", base)[1])
        version = self._writes.get(low, 0) + self._writes.get(low + 1, 0)
        size = next((_BYTES[m] for m in modifiers if m in _BYTES), 4)
        access = Access(
            name, size, f"{base}+{index}#{version}", int(offset.lstrip("+") or "0", 16), predicate
        )
        self.stretches[-1].append(access)

    def split(self, kind="STG"):
        """How many accesses of 16 bytes are split, and the widths that they were split into."""
        found = []
        for stretch in self.stretches:
            found += list(_split_in(stretch, kind))
        return found


def _split_in(stretch, kind):
    by_address = {}
    for access in stretch:
        if access.kind == kind and access.bytes < WIDE_BYTES:
            key = (access.address, access.predicate, access.bytes)
            by_address.setdefault(key, set()).add(access.offset)
    for (_, _, width), offsets in by_address.items():
        if width < 4:
            continue
        left = set(offsets)
        for offset in sorted(offsets):
            run = {offset + i for i in range(0, WIDE_BYTES, width)}
            if run <= left:
                left -= run
                yield width


def parse(listing):
    """The functions of a listing by `cuobjdump -sass`."""
    functions, arch = [], ""
    for line in listing.splitlines():
        if match := re.match(r"\s*arch = (sm_\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function : (\S+)", line):
            functions.append(Function(arch, match[1]))
        elif functions and (match := _INSTRUCTION.search(line)):
            functions[-1].add((match[1] or "").strip(), match[2], match[3])
        elif functions and re.match(r"\s*\.L", line):
            functions[-1].stretches.append([])
    return functions


def functions_of(cuobjdump, path):
    """The functions of an object file; what cuobjdump calls beside itself is found beside it."""
    environment = dict(os.environ)
    environment["PATH"] = os.path.dirname(cuobjdump) + os.pathsep + environment.get("PATH", "")
    run = subprocess.run(
        [cuobjdump, "-sass", path], capture_output=True, text=True, env=environment, check=False
    )
    if run.returncode != 0:
        raise RuntimeError(f"{cuobjdump} {path}: {run.stderr.strip()}")
    return parse(run.stdout)


def find_cuobjdump():
    """The toolkit's, else the one that torch's wheel brings with Triton; None: there is none."""
    toolkit = os.environ.get("SNUG_CUDA_DIR", "/usr/local/cuda")
    site = os.path.join(
        os.path.dirname(sys.executable),
        f"../lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages",
    )
    for folder in (f"{toolkit}/bin", f"{site}/triton/backends/nvidia/bin"):
        if os.access(os.path.join(folder, "cuobjdump"), os.X_OK):
            return os.path.join(folder, "cuobjdump")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cuobjdump", default=find_cuobjdump())
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()
    for path in options.objects:
        for function in functions_of(options.cuobjdump, path):
            for kind in ("STG", "LDG"):
                if found := function.split(kind):
                    name = os.path.basename(path)
                    print(f"{name} {function.arch} {function.name}: {kind} {found}")


if __name__ == "__main__":
    main()
