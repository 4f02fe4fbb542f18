"""The kit for a GPU's hour: what it would run, what it packs, what it reports. Without a GPU."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.gpu import day, models, pack, parts, rehearse, report
from tests.harness.binaries import ROOT, binary

TESTS = binary("..") / "tests" / "bin"


class PartsTest(unittest.TestCase):
    def programs(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in pack.kernel_tests():
                (pathlib.Path(folder) / name).touch()
            return {part: make(folder) for part, make in parts.PARTS.items()}

    def test_names_are_unique_and_times_fit(self):
        for part, programs in self.programs().items():
            names = [program.name for program in programs]
            self.assertEqual(len(names), len(set(names)), part)
            for program in programs:
                self.assertLess(program.timeout_s, parts.PART_S)
        self.assertLess(parts.PART_S, 9 * 60)

    # What a part runs is packed, or is of the image.
    def test_programs_are_packed(self):
        packed = {f"{{test}}/{name}" for name in (*pack.TESTS, *pack.kernel_tests())}
        packed |= {f"{{bin}}/{name}" for name in pack.PROGRAMS}
        for part, programs in self.programs().items():
            for program in programs:
                for word in program.command:
                    if word.startswith(("{test}/", "{bin}/")):
                        self.assertIn(word, packed, part)
                    if word.startswith("{root}/"):
                        self.assertTrue((ROOT / word.removeprefix("{root}/")).is_file(), word)
                if program.command[:2] == ["{python}", "-m"]:
                    module = program.command[2].replace(".", "/") + ".py"
                    self.assertTrue((ROOT / module).is_file(), module)

    # No test of memory that is mostly never touched: a GPU would be asked for all of it.
    def test_no_test_of_far_rows(self):
        names = [program.name for program in self.programs()["A"]]
        self.assertIn("kernels_rms_norm_test_cuda".replace("rms", "fused_rms"), names)
        self.assertFalse([name for name in names if "far_rows" in name])

    def test_packed_tests_are_those_of_the_build(self):
        self.assertGreater(len(pack.kernel_tests()), 30)
        self.assertIn("kernels_glu_test_cuda", pack.kernel_tests())

    def test_models_are_llama(self):
        self.assertEqual(32, models.config("8b")["num_attention_heads"])
        self.assertEqual(8, models.config("8b")["num_key_value_heads"])
        self.assertEqual(14336, models.config("8b")["intermediate_size"])
        self.assertEqual(16, models.config("8b", 256)["num_attention_heads"])


class PackTest(unittest.TestCase):
    LDD = """\
\tlinux-vdso.so.1 (0x00007ffc)
\tlibtorch_cuda.so => not found
\tlibre2.so.9 => /lib/x86_64-linux-gnu/libre2.so.9 (0x00007f)
\tlibc10.so => /home/u/.venv/lib/python3.11/site-packages/torch/lib/libc10.so (0x00007f)
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
\tlibsqlite3.so.0 => /usr/lib/x86_64-linux-gnu/libsqlite3.so.0 (0x00007f)
"""

    def test_libraries_that_an_image_lacks(self):
        self.assertEqual(
            {
                "libre2.so.9": "/lib/x86_64-linux-gnu/libre2.so.9",
                "libsqlite3.so.0": "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
            },
            pack.libraries(self.LDD),
        )

    def test_missing_libraries_are_named(self):
        self.assertEqual(["libtorch_cuda.so"], day.missing_libraries(self.LDD))

    def test_a_program_that_lacks_a_library_does_not_start(self):
        self.assertEqual("", day.starts(pathlib.Path("/bin/ls")))
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "broken"
            script.write_text("#!/no/such/interpreter\n")
            script.chmod(0o755)
            self.assertRaises(OSError, day.starts, script)

    def test_dependencies_are_followed(self):
        found = rehearse.dependencies(["python3"])
        self.assertIn("libc6", found)
        self.assertIn("libpython3-stdlib", found)
        self.assertNotIn("libre2-9", found)


class RunTest(unittest.TestCase):
    """A program of the kit's under its own timeout."""

    def run_program(self, code, seconds=20):
        program = parts.Program("p", [sys.executable, "-c", code])
        return day.run(program, {}, seconds)

    def test_figures_are_lines_of_json(self):
        line = self.run_program("print('noise'); print('[1]'); print('{\"a\": 1.5}')")
        self.assertEqual([{"a": 1.5}], line["figures"])
        self.assertEqual((0, False), (line["code"], line["timed_out"]))

    def test_what_hangs_is_ended_with_its_children(self):
        code = "import subprocess, time; print('x', flush=True); subprocess.run(['sleep', '100'])"
        line = self.run_program(code, 2)
        self.assertTrue(line["timed_out"])
        self.assertEqual(-9, line["code"])
        self.assertEqual("x\n", line["tail"])
        self.assertLess(line["seconds"], 20)

    def test_a_program_that_is_not_there_is_a_line(self):
        line = day.run(parts.Program("p", ["/no/such"]), {}, 5)
        self.assertEqual(127, line["code"])

    def test_part_e_writes_its_results_without_a_gpu(self):
        if not (TESTS / "snug-gpu-probes").exists():
            self.skipTest("built without CUDA")
        with tempfile.TemporaryDirectory() as out:
            day.TEST = TESTS
            day.run_part("E", out, ["map_times"])
            results = report.read_results(out)
        line = results["E"]["map_times"]
        self.assertTrue("error" in line["figures"][0] or line["code"] == 0)


class ReportTest(unittest.TestCase):
    EXPECTED = """\
| figure | expected | unit | why |
|---|---:|---|---|
| `A/loss_gpu/relative_difference` | 0.001 | | rounding |
| `B/keep/step_seconds` | 0.7 | s | estimate |
| `C/memory/8b_128_keep/seen_over_predicted` | 1 | | |
| `C/kernels/CastRows bf16` | 0.9 | | |
| `E/map_times/map_times/mib` | 2 | | |
"""
    RESULTS = {
        "A": [
            {"name": "loss_gpu", "code": 0, "figures": [{"loss": 10.01}]},
            {"name": "loss_cpu", "code": 0, "figures": [{"loss": 10.0}]},
        ],
        "C": [
            {
                "name": "memory",
                "code": 1,
                "figures": [{"row": "8b_128_keep", "seen_mib": 101.0, "predicted_mib": 100.0}],
                "tail": "oh\nout of memory",
                "failed_tests": [],
            },
            {
                "name": "kernels",
                "code": 0,
                "figures": [],
                "tail": "| CastRows | bf16 | 1024.0 | 0.3 | 3000.0 | 0.81 | - | - |",
            },
        ],
    }

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        for part, lines in self.RESULTS.items():
            path = pathlib.Path(self.folder.name) / f"{part}.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def tearDown(self):
        self.folder.cleanup()

    def test_expected_stands_beside_measured(self):
        expected = pathlib.Path(self.folder.name) / "expected.md"
        expected.write_text(self.EXPECTED)
        done = subprocess.run(
            [sys.executable, ROOT / "tests/gpu/report.py", self.folder.name]
            + ["--expected", expected],
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertIn("| A/loss_gpu/relative_difference | 0.001 | 0.001 | 1.00 |", done.stdout)
        self.assertIn("| B/keep/step_seconds | 0.7 | not measured | | s |", done.stdout)
        self.assertIn("/seen_over_predicted | 1 | 1.01 | 1.01 |", done.stdout)
        self.assertIn("| C/kernels/CastRows bf16 | 0.9 | 0.81 | 0.90 |", done.stdout)
        self.assertIn("- C/memory: code 1  `out of memory`", done.stdout)
        self.assertIn("4 programs ran, 1 of them failed.", done.stdout)

    # Each figure that is expected belongs to a program of its part.
    def test_expected_figures_have_programs(self):
        rows = report.expected_rows(report.EXPECTED.read_text(encoding="utf-8"))
        self.assertGreater(len(rows), 60)
        names = {part: {p.name for p in make(TESTS)} for part, make in parts.PARTS.items()}
        for figure, expected, _, why in rows:
            part, program, _ = figure.split("/", 2)
            self.assertIn(program, names[part])
            self.assertGreater(expected, 0)
            self.assertTrue(why, figure)


if __name__ == "__main__":
    unittest.main()
