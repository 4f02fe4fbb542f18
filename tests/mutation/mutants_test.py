"""The mutants still fit the sources: each one's text is there, once, and what it names is built.
Whether tests notice them is run.py's, which takes long."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import mutants  # noqa: E402
import run  # noqa: E402

SOURCES = {"cpu": "kernels/cpu/{}.cc", "cuda": "kernels/cuda/{}.cu", "test": "tests/kernels/{}.cc"}


class MutantsTest(unittest.TestCase):
    def test_each_can_be_planted(self):
        for mutant in mutants.ALL:
            with self.subTest(mutant.name):
                text = (run.ROOT / mutant.file).read_text(encoding="utf-8")
                self.assertNotEqual(text, run.planted(text, mutant))

    def test_what_is_not_there_is_refused(self):
        mutant = mutants.ALL[0]
        for text in ("", mutant.old * 2):
            with self.assertRaises(ValueError):
                run.planted(text, mutant)

    def test_objects_and_tests_are_there(self):
        for mutant in mutants.ALL:
            with self.subTest(mutant.name):
                for name in mutant.objects:
                    kind, source = name.split(":")
                    path = SOURCES.get(kind, "kernels/cpu/loops/{}.cc").format(source)
                    self.assertTrue((run.ROOT / path).exists(), path)
                for test in mutant.tests:
                    path = f"tests/kernels/{test.removesuffix('_cuda_on_cpu')}.cc"
                    self.assertTrue((run.ROOT / path).exists(), path)

    def test_there_are_enough(self):
        self.assertEqual(11, len(mutants.GAPS))
        self.assertEqual(34, len(mutants.AVX2_LOOPS + mutants.AVX512_LOOPS))
        names = [mutant.name for mutant in mutants.ALL]
        self.assertEqual(len(names), len(set(names)))

    def test_report_asks_for_the_share_of_each_group(self):
        few = [(mutants.AVX2_LOOPS[0], None)] * 18 + [(mutants.AVX2_LOOPS[0], "a_test")]
        self.assertEqual(1, run.report(few))
        self.assertEqual(0, run.report(few + few[:1]))
        self.assertEqual(1, run.report([(mutants.GAPS[0], None)] * 99 + [(mutants.GAPS[0], "a")]))


if __name__ == "__main__":
    unittest.main()
