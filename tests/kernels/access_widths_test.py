"""The compiled CUDA kernels move 16 bytes as 16 bytes, and the reader of machine code that says so
finds what the compiler has split."""

import unittest
from concurrent.futures import ThreadPoolExecutor

from tests.harness.binaries import binary
from tests.kernels import access_widths

OBJECTS = binary("..") / "kernels" / "CMakeFiles" / "snug_kernels_cuda.dir" / "cuda"

# Loops over neighbouring numbers that a thread takes one by one: they are a few per row or block.
# The gradient of a quantised norm takes the ranges of small groups so, each where its group begins.
READ_ONE_BY_ONE = (
    "QuantizeGroupsKernel",
    "OffsetKernel",
    "SumGroupsKernel",
    "SampleRowsKernel",
    "QuantizedNormBackwardParams",
)

# The rotation of RoPE as nvcc 13.0 gave it for sm_90 where packs were assigned to memory.
SPLIT = """
arch = sm_90
                Function : _RopeKernel
        /*08e0*/                   STG.E.128 desc[UR12][R8.64], R4 ;
        /*0cc0*/                   STG.E desc[UR12][R20.64], R7 ;
        /*0cd0*/                   STG.E desc[UR12][R20.64+0x4], R29 ;
        /*0ce0*/                   STG.E desc[UR12][R20.64+0x8], R9 ;
        /*0cf0*/                   STG.E desc[UR12][R20.64+0xc], R11 ;
"""


def splits(listing, kind="STG"):
    return [width for function in access_widths.parse(listing) for width in function.split(kind)]


class ReaderTest(unittest.TestCase):
    def test_finds_a_split_store(self):
        self.assertEqual([4], splits(SPLIT))

    def test_finds_halves(self):
        lines = SPLIT.replace("STG.E desc", "STG.E.64 desc").splitlines()
        halves = [line for line in lines if "+0x4]" not in line and "+0xc]" not in line]
        self.assertEqual([8], splits("\n".join(halves)))

    def test_elements_behind_a_branch_or_a_predicate_are_apart(self):
        branch = SPLIT.replace("/*0ce0*/", "/*0cd8*/  @P1 BRA 0x100 ;\n        /*0ce0*/")
        self.assertEqual([], splits(branch))
        self.assertEqual([], splits(SPLIT.replace("/*0ce0*/  ", "/*0ce0*/ @!P0 ")))

    def test_an_address_that_changes_between_is_another(self):
        moved = SPLIT.replace("/*0ce0*/", "/*0cd8*/  IADD3 R20, R20, 0x10, RZ ;\n        /*0ce0*/")
        self.assertEqual([], splits(moved))


class KernelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cuobjdump = access_widths.find_cuobjdump()
        if cuobjdump is None:
            raise AssertionError("no cuobjdump: deploy/setup.sh installs one")
        with ThreadPoolExecutor(2) as pool:
            paths = sorted(OBJECTS.glob("*.cu.o"))
            read = pool.map(lambda path: access_widths.functions_of(cuobjdump, str(path)), paths)
            cls.functions = [(path.name, f) for path, found in zip(paths, read) for f in found]

    def all_split(self, kind):
        return [
            f"{source} {function.arch} {function.name}: {kind} of {function.split(kind)} bytes"
            for source, function in self.functions
            if function.split(kind)
            and not (kind == "LDG" and any(name in function.name for name in READ_ONE_BY_ONE))
        ]

    def test_every_source_was_read(self):
        self.assertGreater(len({source for source, _ in self.functions}), 25)
        self.assertEqual({"sm_80", "sm_90"}, {function.arch for _, function in self.functions})
        wide = [f for _, f in self.functions if any(a.bytes == 16 for s in f.stretches for a in s)]
        self.assertGreater(len(wide), 200)

    def test_no_store_of_16_bytes_is_split(self):
        self.assertEqual([], self.all_split("STG"))

    def test_no_load_of_16_bytes_is_split(self):
        self.assertEqual([], self.all_split("LDG"))


if __name__ == "__main__":
    unittest.main()
