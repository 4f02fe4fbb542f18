"""Many at once, by the numbers of the faults: jobs that wait, users, watchers of whom some never
listen. Nobody else notices, and nothing is lost. SNUG_FAULT_LONG: as many as the plan of faults
has. The worker trains nothing.
"""

import asyncio
import contextlib
import functools
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import struct
import threading
import time
import unittest

import grpc
import grpc.aio
from tests.bench import service
from tests.harness import api
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import ONE_AT_A_TIME, FakeDaemon
from tests.server.tls_test import Site
from tests.server.wire_test import DATA, END_HEADERS, HEADERS, PREFACE, SETTINGS, frame, literal

LONG = "SNUG_FAULT_LONG" in os.environ
ENDLESS = "steps=10000000 step_ms=1000"
QUEUED = 10_000 if LONG else 400
WATCHERS, UNREAD = (900, 100) if LONG else (200, 100)
CONNECTIONS, AT_ONCE = 8, 32
# Beside twice what a call takes on an idle daemon, which is the plan's bound. Here who crowds, the
# daemon, its store and who measures take turns on two cores, and a few turns are more than a call:
# of 60 submits, the slowest but one, it takes 7 to 15 ms idle, 20 to 25 ms beside a crowd, and 9 ms
# when 10,000 wait and nobody submits; there the long set keeps to the bound as it is. What the
# slack leaves to be found are calls that wait for a round, a long queue or others' jobs.
SLACK_S = 0.1
# Of `get` beside 1,000 watchers of one job, as many silent connections and 64 clients that submit.
# It takes some 10 ms. A round in which this machine had other things to do is measured again.
CROWD, SUBMITS, ROUNDS = 1000, 10_000, 3
GET_P99_MS = 100
GROWTH_BYTES = 64 << 20
END_STREAM = 1


def latency(call, count=100, pause=0.0):
    """Seconds that all but one in a hundred of these calls take; half of them, in the short set,
    whose machine has other things to do."""
    took = []
    for _ in range(count):
        begin = time.monotonic()
        call()
        took.append(time.monotonic() - begin)
        time.sleep(pause)
    return sorted(took)[count * 99 // 100 - 1 if LONG else count // 2]


def at_once(socket_path, method, requests):
    """Makes all these calls over some connections, and gives their answers in order. Who has made
    too many in a second makes them again."""
    answers = [None] * len(requests)

    def answered(call, i, future):
        while True:
            try:
                return api.answer(method, future.result())
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            time.sleep(0.1)
            future = call.future(requests[i], timeout=300)

    def part(first):
        with api.dial(socket_path) as channel:
            call, under_way = api.raw(channel, method), []
            for i in range(first, len(requests), CONNECTIONS):
                under_way.append((i, call.future(requests[i], timeout=300)))
                if len(under_way) == AT_ONCE:
                    done, future = under_way.pop(0)
                    answers[done] = answered(call, done, future)
            for i, future in under_way:
                answers[i] = answered(call, i, future)

    threads = [threading.Thread(target=part, args=(i,)) for i in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in answers
    return answers


class QueueTest(unittest.TestCase):
    """F-59: ten thousand jobs wait."""

    def test_f59_a_long_queue_is_listed_cancelled_and_added_to(self):
        daemon = FakeDaemon(settings=ONE_AT_A_TIME)
        self.addCleanup(daemon.close)
        busy = daemon.submit_script(ENDLESS)
        daemon.wait_state(busy, "RUNNING")
        create = api.request("CreateJob", spec=api.spec_of(daemon, "steps=1"))
        ids = [job["id"] for job in at_once(daemon.socket, "CreateJob", [create] * QUEUED)]
        self.assertEqual(len(set(ids)), QUEUED)
        begin = time.monotonic()
        listed = {job["id"] for job in daemon.json("list", "--limit", 2 * QUEUED)["jobs"]}
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(listed, {busy, *ids})
        begin = time.monotonic()
        daemon.run("get", ids[-1])
        self.assertLess(time.monotonic() - begin, 5)
        cancels = [api.request("CancelJob", id=name) for name in ids]
        states = {job["state"] for job in at_once(daemon.socket, "CancelJob", cancels)}
        self.assertEqual(states, {"STATE_CANCELLED"})
        self.assertEqual([job["id"] for job in daemon.json("list")["jobs"]], [busy])
        more = [job["id"] for job in at_once(daemon.socket, "CreateJob", [create] * 20)]
        daemon.run("cancel", busy)
        for name in more:
            daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual(daemon.json("doctor").get("findings", []), [])


class RoundsTest(unittest.TestCase):
    """Who runs next is decided when something has changed, and at most once in 10 ms."""

    def rounds(self, daemon):
        return int(re.search(r"snug_scheduler_round_seconds_count (\d+)", daemon.metrics())[1])

    def test_a_burst_is_a_few_rounds_and_rest_is_none(self):
        daemon = FakeDaemon(settings=ONE_AT_A_TIME)
        self.addCleanup(daemon.close)
        daemon.wait_state(daemon.submit_script(ENDLESS), "RUNNING")
        create = api.request("CreateJob", spec=api.spec_of(daemon, "steps=1"))
        before, begin = self.rounds(daemon), time.monotonic()
        ids = [job["id"] for job in at_once(daemon.socket, "CreateJob", [create] * 400)]
        daemon.wait_state(ids[-1], "QUEUED")
        cancels = [api.request("CancelJob", id=name) for name in ids[200:]]
        at_once(daemon.socket, "CancelJob", cancels)
        took = time.monotonic() - begin
        made = self.rounds(daemon) - before
        self.assertGreater(made, 0)
        self.assertLess(made, 100 * took + 2)
        time.sleep(1)
        resting = self.rounds(daemon)
        time.sleep(3)
        self.assertLessEqual(self.rounds(daemon) - resting, 1)


class CrowdsTest(unittest.TestCase):
    """F-60: one user has ten thousand, another one."""

    def test_f60_one_users_crowd_does_not_slow_another(self):
        site = Site(settings=ONE_AT_A_TIME)  # Of the crowd's jobs none takes a core from anybody.
        self.addCleanup(site.close)
        site.daemon.wait_state(site.daemon.submit_script(ENDLESS), "RUNNING")
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(site.authority.certificate.read_bytes()),
            grpc.access_token_call_credentials(site.token("red", "user")),
        )
        to = grpc.secure_channel(site.address().removeprefix("https://"), credentials)
        self.addCleanup(to.close)
        folder = site.folder / "red"
        paths = {"model": str(folder / "model"), "dataset": str(folder / "train.jsonl")}
        spec = {"display_name": "steps=1", "method": "METHOD_LORA", **paths}
        content = api.request("CreateJob", spec=spec)
        create = api.raw(to, "CreateJob")

        def submits():
            call = functools.partial(create, content, timeout=60)
            return latency(call, 60, 0.02)  # He may make 50 calls a second.

        def best():  # Of a few times: in one of them the machine may have had other things to do.
            return min(submits() for _ in range(3 if LONG else 1))

        idle = best()
        jobs = [api.request("CreateJob", spec=api.spec_of(site.daemon, "crowd steps=1"))] * QUEUED
        context = multiprocessing.get_context("spawn")  # It does not hold up who measures.
        crowd = context.Process(target=at_once, args=(site.daemon.socket, "CreateJob", jobs))
        crowd.start()
        some = ("list", "--name", "crowd steps=1", "--limit", 20)
        wait_for(lambda: len(site.daemon.json(*some)["jobs"]) == 20, "the crowd")
        busy = best()
        self.assertTrue(crowd.is_alive() or not LONG)
        crowd.join()
        self.assertEqual(crowd.exitcode, 0)
        self.assertLess(busy, 2 * idle + SLACK_S)
        self.assertLess(best(), 2 * idle + (0 if LONG else SLACK_S))


class GetTest(unittest.TestCase):
    """Everybody at once."""

    @unittest.skipUnless(LONG, "of the plan's size alone")
    def test_get_beside_watchers_silent_connections_and_submitters(self):
        rounds = []
        for _ in range(ROUNDS):
            took, submits = service.latency_in_a_crowd(CROWD, SUBMITS)
            self.assertEqual(submits["jobs"], SUBMITS)
            self.assertGreaterEqual(len(took), 100)  # Else nothing is one in a hundred.
            rounds.append(service.share(took, 0.99))
            if rounds[-1] <= GET_P99_MS:
                break
        print(f"p99 of get in a crowd: {rounds} ms")
        self.assertLessEqual(min(rounds), GET_P99_MS, rounds)


WATCH = (
    b"\x83\x86"
    + literal(b":path", b"/snug.v1.FineTuning/WatchJob")
    + literal(b":authority", b"x")
    + literal(b"content-type", b"application/grpc")
    + literal(b"te", b"trailers")
)


class Readers(threading.Thread):
    """Watches a job so many times, and keeps what each has heard."""

    def __init__(self, path, name, count):
        super().__init__(daemon=True)
        self.path, self.request = path, api.request("WatchJob", id=name)
        self.heard = [[] for _ in range(count)]
        self.ends = [None] * count

    def run(self):
        asyncio.run(self.watch_all())

    async def watch_all(self):
        options = (("grpc.use_local_subchannel_pool", 1),)
        channels = [
            grpc.aio.insecure_channel(f"unix:{self.path}", options)
            for _ in range(len(self.heard) // 50 + 1)
        ]
        await asyncio.gather(*(self.watch(channels[i // 50], i) for i in range(len(self.heard))))
        for channel in channels:
            await channel.close()

    async def watch(self, channel, number):
        try:
            call = channel.unary_stream(f"/{api.SERVICE}/WatchJob")
            async for content in call(self.request):
                self.heard[number].append(content)
            self.ends[number] = grpc.StatusCode.OK
        except grpc.RpcError as error:
            self.ends[number] = error.code()


class WatchersTest(unittest.TestCase):
    """F-61 and F-68: a thousand watch, and a hundred of them never read what they are told."""

    def setUp(self):
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)

    def bytes(self):
        """What the daemon holds of memory."""
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/statm").read_text()
        return int(status.split()[1]) * 4096

    def never_read(self, name):
        """A connection with UNREAD streams that watch the job, of which nothing is ever read."""
        message = api.request("WatchJob", id=name)
        content = b"\0" + struct.pack(">I", len(message)) + message
        peer = socket.socket(socket.AF_UNIX)
        self.addCleanup(peer.close)
        peer.connect(str(self.daemon.socket))
        peer.sendall(PREFACE + frame(SETTINGS))
        for stream in range(1, 2 * UNREAD, 2):
            peer.sendall(frame(HEADERS, WATCH, stream, END_HEADERS))
            peer.sendall(frame(DATA, content, stream, END_STREAM))

    def watched(self, script):
        """A job that runs, and those who read."""
        name = self.daemon.submit_script(script)
        self.daemon.wait_step(name, 1)
        readers = Readers(self.daemon.socket, name, WATCHERS)
        begin = self.bytes()
        self.never_read(name)
        readers.start()
        wait_for(lambda: all(readers.heard), "all to watch", 60)
        return name, readers, begin

    def test_f61_watchers_of_whom_some_never_read(self):
        with api.dial(self.daemon.socket) as channel:
            first = self.daemon.submit_script("steps=1")
            call, content = api.raw(channel, "GetJob"), api.request("GetJob", id=first)
            idle = latency(lambda: call(content, timeout=60))
            name, readers, begin = self.watched("steps=60 step_ms=100")
            busy = latency(lambda: call(content, timeout=60), 50)
            self.daemon.wait_state(name, "SUCCEEDED")
            grown = self.bytes() - begin
            readers.join(120)
            self.assertFalse(readers.is_alive())
        self.assertLess(grown, GROWTH_BYTES)
        self.assertEqual(set(readers.ends), {grpc.StatusCode.OK})
        for heard in readers.heard:
            jobs = [api.answer("WatchJob", content) for content in (heard[0], *heard[-2:])]
            self.assertEqual(jobs[-1]["state"], "STATE_SUCCEEDED")
            steps = [int(job["progress"]["global_step"]) for job in jobs]
            self.assertEqual(steps, sorted(steps))
            self.assertEqual(steps[-1], 60)
        self.assertLess(busy, 2 * idle + 5 * SLACK_S)  # The readers have this process, too.

    # Told to end, it ends in time, and its worker goes on.
    def test_f68_told_to_end_with_many_watchers(self):
        name, readers, _ = self.watched("steps=200 step_ms=100")
        begin = time.monotonic()
        self.assertEqual(self.daemon.kill(signal.SIGTERM), 0, self.daemon.log.read_text())
        self.assertLess(time.monotonic() - begin, 20)
        readers.join(60)
        self.assertEqual(set(readers.ends), {grpc.StatusCode.UNAVAILABLE})
        self.assertEqual(len(self.daemon.processes("fake-worker")), 1)
        self.daemon.start()
        with contextlib.closing(api.dial(self.daemon.socket)) as channel:
            job = api.call(channel, "CancelJob", id=name)
        self.assertEqual(job["epoch"], 1)


if __name__ == "__main__":
    unittest.main()
