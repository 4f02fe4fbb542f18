"""snug-sim as users run it: both outputs, every format of traces, mistakes."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snug-sim"
DATA = pathlib.Path(os.environ["SNUG_SOURCE_DIR"]) / "tests" / "server" / "sim" / "data"
POLICIES = ["snug", "exclusive", "fixed", "carma", "oracle"]


def run(*words):
    """The finished process."""
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


def figures(*words):
    """Of each policy, its object."""
    done = run(*words, "--output", "json")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


class CommandTest(unittest.TestCase):
    def test_every_format_under_every_policy(self):
        for name, jobs in (("philly.json", 2), ("helios.csv", 2), ("pai.csv", 2)):
            runs = figures("--trace", DATA / name, "--policy", "all", "--devices", "2xh100")
            self.assertEqual([each["policy"] for each in runs], POLICIES, name)
            for each in runs:
                self.assertEqual((each["jobs"], each["left_out"]), (jobs, 2), name)
                self.assertEqual(each["ended"] + each["refused"], jobs, name)

    def test_a_seed_replays_bit_for_bit_and_another_does_not(self):
        words = ("--generate", "helios:jobs=300,load=0.9", "--policy", "snug", "--seed")
        first, again, other = (figures(*words, seed) for seed in (7, 7, 8))
        self.assertEqual(first, again)
        self.assertNotEqual(first[0]["digest"], other[0]["digest"])
        self.assertEqual(first[0]["ended"], 300)
        self.assertEqual((first[0]["starved"], first[0]["oom_requeues"]), (0, 0))

    # 12 jobs on one device that each would under-fill.
    def test_sharing_is_faster_than_one_after_another(self):
        words = ("--generate", "small:jobs=12,load=0", "--devices", "1xh100", "--policy")
        shared, alone = (figures(*words, policy)[0] for policy in ("snug", "exclusive"))
        self.assertEqual(alone["jobs_per_device"], 1.0)
        self.assertGreater(shared["jobs_per_device"], 1.0)
        self.assertLess(shared["makespan_s"], alone["makespan_s"])

    def test_tables_for_people(self):
        done = run("--generate", "pai:jobs=20", "--policy", "all")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()[1:]], POLICIES)
        classes = run("--classes")
        self.assertIn("8B nf4 lora", classes.stdout)

    def test_mistakes_are_said(self):
        for words, said in (
            ((), "--trace or --generate"),
            (("--generate", "mars"), "philly"),
            (("--generate", "pai", "--policy", "best"), "no policy"),
            (("--generate", "pai", "--devices", "0xh100"), "COUNTx"),
            (("--generate", "pai", "--devices", "2xtoaster"), "toaster"),
            (("--generate", "pai", "--trace", "x"), "excludes"),
        ):
            done = run(*words)
            self.assertEqual(done.returncode, 64, words)
            self.assertIn(said, done.stderr, words)
        self.assertEqual(run("--trace", DATA / "not-there").returncode, 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
