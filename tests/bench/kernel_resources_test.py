"""The report of kernels' resources: what it reads out of ptxas' output, and occupancy."""

import unittest

from tests.bench import kernel_resources as resources

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


if __name__ == "__main__":
    unittest.main()
