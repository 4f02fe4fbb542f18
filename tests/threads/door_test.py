"""Calls of every shape, given up at every moment, by many callers at once, and a daemon that ends
in their midst: what ThreadSanitizer says of gRPC's door (server/grpc/) and of what is behind it.
"""

import contextlib
import random
import signal
import threading
import time
import unittest

import grpc
from tests.harness import api
from tests.harness.fake_daemon import FakeDaemon

CALLERS = 8
ROUNDS = 12
ENDLESS = "steps=1000000 step_ms=20"


class DoorTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)
        self.ended = self.daemon.submit_script("steps=20")
        self.daemon.wait_state(self.ended, "SUCCEEDED")
        self.running = self.daemon.submit_script(ENDLESS)
        self.daemon.wait_state(self.running, "RUNNING")

    def crowd(self, act):
        """Each of the callers has a connection, and chance, of its own."""

        def call(number):
            chance = random.Random(number)
            with api.dial(self.daemon.socket) as channel, contextlib.suppress(grpc.RpcError):
                act(channel, chance)

        callers = [threading.Thread(target=call, args=(i,)) for i in range(CALLERS)]
        for caller in callers:
            caller.start()
        return callers

    def streams(self, channel, patience):
        """One of each kind. `patience`: gives the seconds after which it is given up."""
        for method, fields in (
            ("WatchJob", {"id": self.running}),
            ("WatchJob", {"id": self.ended}),
            ("GetJobLogs", {"id": self.running, "follow": True}),
            ("GetJobLogs", {"id": self.running, "follow": True, "metrics": True}),
            ("GetJobLogs", {"id": self.ended}),
            ("DownloadJob", {"id": self.ended}),
            ("BackupStore", {}),
        ):
            yield api.raw(channel, method)(api.request(method, **fields), timeout=patience())

    def test_streams_that_are_given_up(self):
        def act(channel, chance):
            for _ in range(ROUNDS):
                for stream in self.streams(channel, lambda: 0.2 * chance.random()):
                    with contextlib.suppress(grpc.RpcError, StopIteration):
                        for _ in range(chance.randrange(3)):
                            next(stream)
                    stream.cancel()

        for caller in self.crowd(act):
            caller.join()

    def test_answers_that_nobody_waits_for(self):
        def act(channel, chance):
            methods = ("GetJob", "ListCheckpoints", "ListArtifacts", "GetMetricHistory", "RerunJob")
            for _ in range(ROUNDS * 10):
                with contextlib.suppress(grpc.RpcError):
                    api.call(
                        channel, chance.choice(methods), chance.random() * 0.02, id=self.ended
                    )

        for caller in self.crowd(act):
            caller.join()

    def test_a_daemon_that_ends_meanwhile(self):
        def act(channel, chance):
            for stream in self.streams(channel, lambda: 60):
                threading.Thread(target=drain, args=(stream,)).start()
            while True:  # Until nobody answers.
                api.call(channel, "GetJob", id=self.running)
                time.sleep(chance.random() * 0.01)

        def drain(stream):
            with contextlib.suppress(grpc.RpcError):
                for _ in stream:
                    pass

        callers = self.crowd(act)
        time.sleep(2)
        self.daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.daemon.process.wait(60), 0)
        for caller in callers:
            caller.join()


if __name__ == "__main__":
    unittest.main()
