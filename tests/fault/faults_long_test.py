"""The longer set of faults: each of fifty syncs and writes fails, not a few; disks that are full
until the daemon finds out that they are not; crowds of ten thousand. Labelled slow.
"""

import unittest

import grpc
from tests.fault.faulty_os_test import FaultyOsTest
from tests.fault.full_store_test import FullStoreTest
from tests.harness.daemon import wait_for
from tests.server.crowds_test import CrowdsTest, GetTest, QueueTest, WatchersTest
from tests.server.faults_test import AwayTest
from tests.server.tls_faults_test import RenewalTest

MAINTAINED_S = 40  # The store makes its ballast anew every 30 s.
__all__ = [
    "AwayTest",
    "CrowdsTest",
    "FaultyOsTest",
    "GetTest",
    "QueueTest",
    "RenewalTest",
    "WatchersTest",
]


class FullStoreLongTest(FullStoreTest):
    # F-20: refused with a time to try again after, and taken again once there is room, by the same
    # daemon.
    def test_f20_a_full_disk_refuses_submits_until_there_is_room(self):
        self.assertEqual(self.submit()[0], grpc.StatusCode.OK)
        self.daemon.fill()

        def refused():
            self.daemon.fill()  # What the ballast gave back, too.
            code, details = self.submit()
            return details if code == grpc.StatusCode.RESOURCE_EXHAUSTED else None

        details = wait_for(refused, "a submit to be refused", 30)
        self.assertIn(b"google.rpc.RetryInfo", details)
        self.assertIn(b"STORE_FULL", details)
        self.daemon.run("list")  # It goes on reading.
        self.assertIsNone(self.daemon.process.poll())
        self.daemon.make_room()
        wait_for(lambda: self.submit()[0] == grpc.StatusCode.OK, "room to be found", MAINTAINED_S)


if __name__ == "__main__":
    unittest.main()
