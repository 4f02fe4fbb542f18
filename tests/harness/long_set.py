"""The long set (ctest label slow): with SNUG_LONG, as ctest sets it for tests that are declared
once more as _long."""

import os
import unittest

LONG = "SNUG_LONG" in os.environ
in_the_long_set = unittest.skipUnless(LONG, "of the long set")
