"""The longer set of daemon_kill_test: 50 kills. Labelled slow, so ./check leaves it out."""

import os
import unittest

from tests.fault.daemon_kill_test import DaemonKillTest

os.environ.setdefault("SNUG_FAULT_KILLS", "50")
__all__ = ["DaemonKillTest"]

if __name__ == "__main__":
    unittest.main()
