"""The report of kernels' resources: what it reads out of ptxas' output, occupancy, and that the
report which is kept has a row for every kernel and op."""

import re
import unittest

from tests.bench import kernel_resources as resources
from tests.harness.binaries import ROOT

BOUNDS = r"(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\))?"
KERNEL = re.compile(rf"__global__ (?:static )?void {BOUNDS}\s*(\w+)\(")
KEPT = ROOT / "tests/bench/results/2026-11-27-cuda-resources.md"

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN4snug3oneEv' for 'sm_80'
ptxas info    : Function properties for _ZN4snug3oneEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 4096 bytes smem, 440 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN4snug3twoEv' for 'sm_90'
ptxas info    : Function properties for _ZN4snug3twoEv
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, 440 bytes cmem[0]
"""


class KernelResourcesTest(unittest.TestCase):
    def test_reads_the_report(self):
        one, two = resources.parse("x.cu", REPORT)
        self.assertEqual(("_ZN4snug3oneEv", "sm_80"), (one.name, one.arch))
        self.assertEqual((32, 4096, 0, 0), (one.registers, one.shared, one.spills, one.stack))
        self.assertEqual((255, 0, 20, 16), (two.registers, two.shared, two.spills, two.stack))

    def test_a_row_has_both_architectures(self):
        one, two = resources.parse("x.cu", REPORT)
        two.name = one.name
        self.assertEqual(
            ["| x.cu | snug::one | 32 / 255 | 4096 / 0 | 0 / 16 | 0 / 20 | 1.00 / 0.12 |"],
            list(resources.rows([two, one])),
        )

    def occupancy(self, registers, shared, threads=256):
        kernel = resources.Kernel("x.cu", "k", "sm_80", registers, shared)
        return resources.occupancy(resources.MACHINES["sm_80"], kernel, threads)

    # 65,536 registers: 32 of them for 2,048 threads, 40 for 1,638 of them, that is six blocks.
    def test_registers_limit_blocks(self):
        self.assertEqual(1.0, self.occupancy(32, 0))
        self.assertEqual(0.75, self.occupancy(33, 0))
        self.assertEqual(0.25, self.occupancy(128, 0))
        self.assertEqual(0.125, self.occupancy(255, 0))

    def test_shared_memory_and_block_slots_limit_blocks(self):
        self.assertEqual(3 / 8, self.occupancy(32, 48 << 10))
        self.assertEqual(0.5, self.occupancy(32, 0, threads=32))

    def test_names_are_short(self):
        self.assertEqual(
            "AddKernel<4>",
            resources.short(
                "void snug::kernels::cuda::(anonymous namespace)::AddKernel<(int)4>(int, float*)"
            ),
        )


class KeptReportTest(unittest.TestCase):
    """Figures are the compiler's of its day; what has a row is the tree's."""

    def setUp(self):
        text = KEPT.read_text(encoding="utf-8")
        self.resources, self.bytes = (self.cells(part) for part in text.split("## Bytes moved"))
        self.assertRegex(text, r"\n\d{4}-\d\d-\d\d, nvcc V[\d.]+, without a GPU:\n")
        self.assertIn("python tests/bench/kernel_resources.py --build", text)

    def cells(self, text):
        rows = re.findall(r"^\| .*", text, re.M)
        return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1:]]

    def test_every_kernel_has_a_row(self):
        declared = set()
        for file in (ROOT / "kernels/cuda").glob("*.cu*"):
            text = file.read_text(encoding="utf-8")
            declared.update(KERNEL.findall(text))
        self.assertGreater(len(declared), 60)
        self.assertEqual(declared, {re.split(r"[<(]", row[1])[0] for row in self.resources})

    def test_figures_are_a_machines(self):
        for source, name, registers, shared, stack, spills, share in self.resources:
            self.assertTrue((ROOT / "kernels/cuda" / source).exists(), source)
            for figure in registers.split(" / "):
                self.assertTrue(1 <= int(figure) <= 255, name)
            for figure in shared.split(" / "):
                self.assertLessEqual(int(figure), 48 << 10, name)
            self.assertEqual(("0", "0"), (stack, spills), name)
            for figure in share.split(" / "):
                self.assertTrue(0 < float(figure) <= 1, name)

    def test_every_op_has_its_bytes(self):
        ops = set()
        for header in (ROOT / "kernels").glob("*.h"):
            text = header.read_text(encoding="utf-8")
            ops.update(re.findall(r"^Error (\w+)\(const \w+& p, Stream", text, re.M))
        self.assertEqual(ops, {row[0].split(",")[0] for row in self.bytes})
        for op, fp32, bf16, *_ in self.bytes:
            self.assertTrue(float(fp32) > 0 and float(bf16) > 0, op)
        self.assertEqual(set(), set(resources.BEYOND) - ops)


if __name__ == "__main__":
    unittest.main()
