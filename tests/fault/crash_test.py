"""A short run of tests/fault/crash.py: kills at failpoints and random moments, and
nothing lost, nothing doubled. Release builds have no failpoints.
"""

import os
import pathlib
import time
import unittest

from tests.fault import crash, crash_points
from tests.harness.binaries import binary

CYCLES = int(os.environ.get("SNUG_CRASH_CYCLES", 500))


class CrashTest(unittest.TestCase):
    def test_nothing_is_lost_or_doubled_whenever_something_is_killed(self):
        seed = int(os.environ.get("SNUG_FAULT_SEED", time.time_ns() % 2**32))
        summary = crash.run(CYCLES, 6, seed)
        print(summary)
        self.assertEqual(summary["violations"], [])
        self.assertEqual(summary["counts"]["cycles"], CYCLES)
        self.assertGreater(sum(summary["hits"].values()), CYCLES // 4)
        self.assertGreater(summary["counts"]["SUCCEEDED"], 0)
        self.assertGreater(summary["counts"]["running"], CYCLES // 4)
        self.assertGreater(summary["counts"]["unanswered"], CYCLES // 4)

    # Neither the points nor their names are in what is installed.
    def test_release_builds_have_no_failpoints(self):
        failing = pathlib.Path(os.environ["SNUG_FAILING_DAEMON"]).read_bytes()
        failing += pathlib.Path(os.environ["SNUG_FAILING_SHIM"]).read_bytes()
        released = binary("snugd").read_bytes() + binary("snug-shim").read_bytes()
        self.assertNotIn(b"SNUG_FAILPOINT", released)
        names = {name: where for name, (where, _) in crash_points.POINTS.items()}
        for name, where in {**names, **dict.fromkeys(crash_points.UNREACHED, "daemon")}.items():
            self.assertNotIn(name.encode() + b"\0", released, name)
            if where != "worker":
                self.assertIn(name.encode() + b"\0", failing, name)


if __name__ == "__main__":
    unittest.main()
