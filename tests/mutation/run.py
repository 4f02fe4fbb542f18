"""Plants the mutants of mutants.py one at a time, and tells which the tests notice.

python tests/mutation/run.py [--build build] [--out build-mutants] [--only WORDS] [--list]

The build folder has to be configured; the tests that are asked are built there first, as they are.
A mutant is planted in a copy of the sources below --out and taken out again; the checkout is never
touched. What it changes is compiled anew with the build's own commands and linked into the test in
the place of what the build has. A test kills a mutant by failing, or by running on for too long.
Ends with 1 where a gap is open again, or fewer than 95 % of the loops' mutants are killed.
"""

import argparse
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

import mutants

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = ("kernels", "tests/kernels", "tests/cuda_on_cpu")
TIMEOUT_S = 300  # The slowest of these tests takes 20 s.
LEAST_KILLED = {"gaps": 1.0, "loops": 0.95}

KERNELS = "kernels/CMakeFiles/snug_kernels"
TESTS = "tests/kernels/CMakeFiles/"


def object_path(name):
    """Where the build has the object, below its folder."""
    kind, source = name.split(":")
    if kind == "cpu":
        return f"{KERNELS}.dir/cpu/{source}.cc.o"
    if kind == "cuda":
        return f"{TESTS}snug_kernels_cuda_on_cpu.dir/__/__/kernels/cuda/{source}.cu.o"
    if kind == "test":
        return f"{TESTS}kernels_{source}.dir/{source}.cc.o"
    return f"{KERNELS}_{kind}.dir/cpu/loops/{source}.cc.o"


def planted(text, mutant):
    """The file's text with the mistake in it."""
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has it {text.count(mutant.old)} times")
    return text.replace(mutant.old, mutant.new)


class Laboratory:
    def __init__(self, build, out):
        self.build, self.out = build, out
        self.tree = out / "tree"
        shutil.rmtree(self.tree, ignore_errors=True)
        for folder in COPIED:
            shutil.copytree(ROOT / folder, self.tree / folder)
        self.commands = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])
            self.commands[words[words.index("-o") + 1]] = words
        self.passing = set()

    def prepare(self, tests):
        targets = sorted({f"kernels_{test}" for test in tests})
        subprocess.run(["cmake", "--build", self.build, "--target", *targets], check=True)

    def survives(self, mutant):
        """The test that does not notice the mutant, or None."""
        for test in mutant.tests:
            if test not in self.passing:
                if not self.passes(self.build / "tests" / "bin" / f"kernels_{test}"):
                    raise RuntimeError(f"{test} fails as it is")
                self.passing.add(test)
        path = self.tree / mutant.file
        before = path.read_text(encoding="utf-8")
        path.write_text(planted(before, mutant), encoding="utf-8")
        try:
            targets = [object_path(name) for name in mutant.objects]
            objects = {target: self.compile(target) for target in targets}
        finally:
            path.write_text(before, encoding="utf-8")
        for test in mutant.tests:
            if self.passes(self.link(test, objects)):
                return test
        return None

    def compile(self, target):
        """From the copy's sources instead of the checkout's, without a word on what looks odd."""
        to = self.out / "objects" / target
        to.parent.mkdir(parents=True, exist_ok=True)
        words = [self.moved(word) for word in self.commands[target]]
        words[words.index("-o") + 1] = str(to)
        subprocess.run([*words, "-w"], cwd=self.build, check=True)
        return str(to)

    def moved(self, word):
        for folder in COPIED:
            for prefix in ("", "-I"):
                if word.startswith(f"{prefix}{ROOT / folder}"):
                    return word.replace(str(ROOT), str(self.tree), 1)
        return f"-I{self.tree}" if word == f"-I{ROOT}" else word

    def link(self, test, objects):
        """Objects of the archive of kernels come before it: of what they define it is not asked any
        more. What a test does not link, as emulated kernels on the CPU, is left out."""
        lines = subprocess.run(
            ["ninja", "-C", self.build, "-t", "commands", f"kernels_{test}"],
            check=True, capture_output=True, text=True,
        ).stdout.splitlines()
        words = shlex.split(lines[-1].split("&&")[1])
        program = self.out / "bin" / test
        program.parent.mkdir(parents=True, exist_ok=True)
        words[words.index("-o") + 1] = str(program)
        others = [path for target, path in objects.items() if target.startswith(KERNELS)]
        words = [objects.get(word, word) for word in words]
        subprocess.run(words[:1] + others + words[1:], cwd=self.build, check=True)
        return program

    @staticmethod
    def passes(program):
        try:
            done = subprocess.run(
                [program, "--gtest_brief=1", "--gtest_fail_fast"],
                timeout=TIMEOUT_S, capture_output=True,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def report(results):
    """0 where enough are killed in each group."""
    enough = True
    for group, least in LEAST_KILLED.items():
        killed = [test is None for mutant, test in results if mutant.group == group]
        if not killed:
            continue
        share = sum(killed) / len(killed)
        print(f"{group}: {sum(killed)} of {len(killed)} killed ({share:.0%})")
        enough = enough and share >= least
    return 0 if enough else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-mutants")
    parser.add_argument("--only", default="", help="mutants whose names have these words")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    chosen = [m for m in mutants.ALL if arguments.only in m.name or arguments.only == m.group]
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.group}: {mutant.name} ({mutant.file})")
        return 0
    laboratory = Laboratory(arguments.build.resolve(), arguments.out.resolve())
    laboratory.prepare(test for mutant in chosen for test in mutant.tests)
    results = []
    for mutant in chosen:
        test = laboratory.survives(mutant)
        results.append((mutant, test))
        print("killed  " if test is None else f"SURVIVED {test}:", mutant.name, flush=True)
    return report(results)


if __name__ == "__main__":
    sys.exit(main())
