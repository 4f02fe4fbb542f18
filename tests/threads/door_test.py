"""Calls of every shape, given up at every moment, by many callers at once, and a daemon that ends
in their midst: what ThreadSanitizer says of gRPC's door (server/grpc/) and of what is behind it.
"""

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
GIVEN_UP = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
)


class DoorTest(unittest.TestCase):
    def setUp(self):
        self.wrong, self.answers = [], 0
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)
        self.ended = self.daemon.submit_script("steps=20")
        self.daemon.wait_state(self.ended, "SUCCEEDED")
        self.running = self.daemon.submit_script(ENDLESS)
        self.daemon.wait_state(self.running, "RUNNING")

    def crowd(self, act):
        """Each of the callers has a connection, and chance, of its own."""

        def call(number):
            with api.dial(self.daemon.socket) as channel:
                try:
                    act(channel, random.Random(number))
                except Exception as error:  # pylint: disable=broad-exception-caught
                    self.note(error)

        callers = [threading.Thread(target=call, args=(i,)) for i in range(CALLERS)]
        for caller in callers:
            caller.start()
        return callers

    def end(self, callers):
        for caller in callers:
            caller.join()
        self.assertEqual(self.wrong, [])
        self.assertGreater(self.answers, 0)

    def note(self, error):
        """Of a call that was given up, or whose daemon has ended, nothing."""
        if not isinstance(error, grpc.RpcError) or error.code() not in GIVEN_UP:
            self.wrong.append(repr(error))

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

    def read(self, stream, messages):
        """So many of a stream's messages, or all that come."""
        try:
            for _ in range(messages):
                next(stream)
                self.answers += 1
        except StopIteration:
            pass
        except grpc.RpcError as error:
            self.note(error)

    def test_streams_that_are_given_up(self):
        def act(channel, chance):
            for _ in range(ROUNDS):
                for stream in self.streams(channel, lambda: 0.2 * chance.random()):
                    self.read(stream, chance.randrange(3))
                    stream.cancel()

        self.end(self.crowd(act))

    def test_answers_that_nobody_waits_for(self):
        def act(channel, chance):
            methods = ("GetJob", "ListCheckpoints", "ListArtifacts", "GetMetricHistory", "RerunJob")
            for _ in range(ROUNDS * 10):
                try:
                    seconds = chance.random() * 0.1
                    api.call(channel, chance.choice(methods), seconds, id=self.ended)
                    self.answers += 1
                except grpc.RpcError as error:
                    self.note(error)

        self.end(self.crowd(act))

    def test_a_daemon_that_ends_meanwhile(self):
        def act(channel, chance):
            for stream in self.streams(channel, lambda: 60):
                threading.Thread(target=self.read, args=(stream, 1_000_000)).start()
            while True:  # Until nobody answers.
                api.call(channel, "GetJob", id=self.running)
                time.sleep(chance.random() * 0.01)

        callers = self.crowd(act)
        time.sleep(2)
        self.assertEqual(self.daemon.kill(signal.SIGTERM), 0)
        self.end(callers)


if __name__ == "__main__":
    unittest.main()
