"""10,000 cycles of tests/fault/crash.py, in each of which somebody is killed."""

import os
import time
import unittest

from tests.fault import crash, crash_points

CYCLES = int(os.environ.get("SNUG_CRASH_CYCLES", 10_000))


class CrashLongTest(unittest.TestCase):
    def test_nothing_is_lost_or_doubled_in_ten_thousand_cycles(self):
        seed = int(os.environ.get("SNUG_FAULT_SEED", time.time_ns() % 2**32))
        summary = crash.run(CYCLES, 6, seed)
        print(summary)
        self.assertEqual(summary["violations"], [])
        for name in crash_points.POINTS:
            self.assertGreaterEqual(summary["hits"][name], 10, name)


if __name__ == "__main__":
    unittest.main()
