"""Clients that speak badly, hang up, or never listen, by the numbers of the faults: none of them
costs another one its answer, nor the daemon its memory. The worker trains nothing.
"""

import concurrent.futures
import contextlib
import functools
import pathlib
import select
import socket
import ssl
import struct
import threading
import time
import unittest

import grpc
from tests.harness import api
from tests.harness.fake_daemon import FakeDaemon
from tests.server.tls_site import Site

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
WINDOW_UPDATE, CONTINUATION = 8, 9
END_HEADERS, ACK = 4, 1
GROWTH_BYTES = 192 << 20  # Less than one message of test_f54 unpacked.
LOUD = "steps=400 step_ms=5"
RESETS, RESETS_AT_ONCE = 100_000, 500
FLOOD_S = 300  # That it may take; some 10 s of two cores.
ANSWER_S = 10  # Meanwhile, of anybody else's call; behind all of them it is 20 s and more.
STRANGERS_BYTES = 240_000  # Less than the 256 KiB that a stranger may send at once:
STRANGERS_GROWTH_BYTES = 320 << 20  # 8,900 calls, some 25 KB each.
HEALTH = "/grpc.health.v1.Health/"
# Methods that are none of Snug's own API, and one that there is not.
OTHER_METHODS = (
    f"{HEALTH}Watch",
    f"{HEALTH}Check",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/snug.v1.FineTuning/Nothing",
)


def frame(kind, payload=b"", stream=0, flags=0):
    """A frame of HTTP/2."""
    head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
    return head + struct.pack(">I", stream) + payload


def take_frames(heard):
    """Kind and flags of each whole frame of what a peer has sent, in their order, and the rest."""
    frames, at = [], 0
    while at + 9 <= len(heard):
        end = at + 9 + int.from_bytes(heard[at : at + 3], "big")
        if end > len(heard):
            break
        frames.append((heard[at + 3], heard[at + 4]))
        at = end
    return frames, heard[at:]


def kinds_of(heard):
    """The frames' kinds of what a peer has sent from the beginning on, in their order."""
    return [kind for kind, _ in take_frames(heard)[0]]


def text(number, value):
    """A field of bytes."""
    size, encoded = len(value), bytearray()
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    key = number << 3 | 2
    head = bytes([key]) if key < 0x80 else bytes([key & 0x7F | 0x80, key >> 7])
    return head + bytes([*encoded, size]) + value


def literal(name, value):
    """A header that is not put into HPACK's table."""
    return bytes([0x00, len(name)]) + name + bytes([len(value)]) + value


def indexed(name, value):
    """A header that is put into HPACK's table."""
    return bytes([0x40, len(name)]) + name + bytes([len(value)]) + value


def call_to(method, spell=literal, scheme=b"\x86"):
    """The headers of a call."""
    names = (b":path", b":authority", b"content-type", b"te")
    values = (method.encode(), b"x", b"application/grpc", b"trailers")
    return b"\x83" + scheme + b"".join(map(spell, names, values))


REQUEST = (
    b"\x83\x86"
    + literal(b":path", b"/snug.v1.FineTuning/ListJobs")
    + literal(b":authority", b"x")
)
CALL = call_to("/snug.v1.FineTuning/ListJobs")
# The same headers once more, over TLS, where call_to() has put them into the table.
CALL_AGAIN = b"\x83\x87\xc1\xc0\xbf\xbe"
# Of a value of 64 MiB.
ENDLESS_HEADER = frame(HEADERS, REQUEST + b"\x00\x01x\x7f\x80\x80\x80\x20", 1)
MORE_OF_IT = frame(CONTINUATION, b"v" * 16_384, 1)


def call_and_reset(call, stream):
    reset = frame(RST_STREAM, struct.pack(">I", 8), stream)
    return frame(HEADERS, call, stream, END_HEADERS) + reset


def resident_bytes(daemon):
    """What the daemon holds of memory."""
    status = pathlib.Path(f"/proc/{daemon.process.pid}/statm").read_text()
    return int(status.split()[1]) * 4096


def answers_during(daemon, send, answer_s):
    """How often another client is answered while this is sent, each time within so long; and what
    sending gave."""
    with api.dial(daemon.socket) as other, concurrent.futures.ThreadPoolExecutor() as pool:
        api.call(other, "ListJobs", timeout=ANSWER_S)
        sent, answers = pool.submit(send), 0
        while not sent.done():
            api.call(other, "ListJobs", timeout=answer_s)
            answers += 1
        return answers, sent.result()


class Resets:
    """So many calls, each taken back as soon as it is made. On a connection the streams' ids grow,
    as they must: others are not heeded. Where the daemon ends a connection the next one goes on."""

    def __init__(self, path, call):
        self.path, self.call, self.sent = str(path), call, 0
        self.rest, self.frames = b"", []

    def send_all(self):
        """Returns when the daemon has read the last of them."""
        ends = time.monotonic() + FLOOD_S
        while self.sent < RESETS and time.monotonic() < ends:
            with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(ConnectionError):
                peer.connect(self.path)
                self.send_on(peer)
            time.sleep(0.01)

    def send_on(self, peer):
        peer.setblocking(False)
        stream, self.rest, self.frames = 1, b"", []
        self.push(peer, PREFACE + frame(SETTINGS))
        while self.sent < RESETS and (GOAWAY, 0) not in self.frames:
            self.frames = []
            ids = range(stream, stream + 2 * RESETS_AT_ONCE, 2)
            self.push(peer, b"".join(map(self.call_and_reset, ids)))
            self.sent += len(ids)
            stream = ids.stop
        self.push(peer, frame(PING, b"all read"))
        while (PING, ACK) not in self.frames:
            self.hear(peer)

    def call_and_reset(self, stream):
        return call_and_reset(self.call, stream)

    def push(self, peer, content):
        """Sends it, and hears what comes meanwhile: where nobody reads its answers, gRPC reads no
        more."""
        while content:
            readable, writable, _ = select.select([peer], [peer], [], FLOOD_S)
            if readable:
                self.hear(peer)
            if writable:
                with contextlib.suppress(BlockingIOError):
                    content = content[peer.send(content) :]
            if not readable and not writable:
                raise TimeoutError("the daemon neither reads nor answers")

    def hear(self, peer):
        """Notes the frames that have come, or are the next to come."""
        select.select([peer], [], [], FLOOD_S)
        heard = peer.recv(1 << 20)
        if not heard:
            raise ConnectionResetError("closed")
        frames, self.rest = take_frames(self.rest + heard)
        self.frames += frames


class OneDaemonTest(unittest.TestCase):
    """One daemon for all tests of a class: after each it lives, answers, and is no larger."""

    growth = GROWTH_BYTES

    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.run("list")
        cls.begin = cls.bytes()

    @classmethod
    def bytes(cls):
        return resident_bytes(cls.daemon)

    def tearDown(self):
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())
        self.daemon.run("list")
        self.assertLess(self.bytes() - self.begin, self.growth)

    def flood(self, call, answer_s):
        """Resets of this call. Another client is answered within so long throughout."""
        flood = Resets(self.daemon.socket, call)
        answers, _ = answers_during(self.daemon, flood.send_all, answer_s)
        self.assertEqual(flood.sent, RESETS)
        self.assertGreater(answers, 0)

    def closed(self):
        """How often connections were closed for their resets."""
        return self.daemon.log.read_text().count("taken back as they are made")


class ResetsTest(OneDaemonTest):
    def test_f53_floods_of_resets(self):
        self.flood(CALL, ANSWER_S)
        self.assertGreater(self.closed(), 0)


class OtherResetsTest(OneDaemonTest):
    """Of gRPC's own services, and of what there is not. They take 1.2 GB where nobody counts,
    and some 300 MB where somebody does: as many calls as gRPC reads before it begins any."""

    growth = 3 * GROWTH_BYTES

    def test_f53_floods_of_resets_of_what_is_no_call(self):
        for method in OTHER_METHODS:
            with self.subTest(method):
                before = self.closed()
                self.flood(call_to(method), ANSWER_S)
                self.assertGreater(self.closed(), before)
                self.assertLess(self.bytes() - self.begin, self.growth)


class StrangersResetsTest(unittest.TestCase):
    """Over TLS, without a token: headers of a byte each, so that there are tens of thousands of
    calls in fewer bytes than a stranger may send."""

    def setUp(self):
        self.site = Site()
        self.addCleanup(self.site.close)

    def test_f53_floods_of_resets_of_a_stranger(self):
        begin = resident_bytes(self.site.daemon)
        methods = (*OTHER_METHODS, "/snug.v1.FineTuning/ListJobs")
        for i, method in enumerate(methods):
            with self.subTest(method):
                # From an address of its own: each is refused for a while.
                send = functools.partial(self.is_closed_by, self.flood(method), f"127.0.0.{2 + i}")
                answers, is_closed = answers_during(self.site.daemon, send, ANSWER_S)
                self.assertGreater(answers, 0)
                self.assertTrue(is_closed)
                grown = resident_bytes(self.site.daemon) - begin
                self.assertLess(grown, STRANGERS_GROWTH_BYTES)
        self.assertIsNone(self.site.daemon.process.poll())

    @staticmethod
    def flood(method):
        again = len(call_and_reset(CALL_AGAIN, 1))
        streams = range(3, 2 * STRANGERS_BYTES // again, 2)
        first = call_and_reset(call_to(method, indexed, b"\x87"), 1)
        return first + b"".join(call_and_reset(CALL_AGAIN, stream) for stream in streams)

    def is_closed_by(self, content, address):
        """Whether the daemon ends the connection from there over which this comes."""
        host, port = self.site.address().removeprefix("https://").split(":")
        trust = ssl.create_default_context(cafile=self.site.authority.certificate)
        trust.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, int(port)), 60, (address, 0)) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as peer,
        ):
            heard = b""
            try:
                peer.sendall(PREFACE + frame(SETTINGS) + content + frame(PING, b"all read"))
                while (PING, ACK) not in take_frames(heard)[0]:
                    came = peer.recv(1 << 16)
                    if not came:
                        return True
                    heard += came
                return False
            except TimeoutError:
                raise
            except OSError:
                return True


class HealthTest(unittest.TestCase):
    """What gRPC's standard service says, field 1 of an answer: 1 SERVING, 2 NOT_SERVING, 3
    SERVICE_UNKNOWN."""

    def setUp(self):
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)
        self.channel = api.dial(self.daemon.socket)
        self.addCleanup(self.channel.close)

    def watch(self, service):
        stream = self.channel.unary_stream(f"{HEALTH}Watch")(text(1, service), timeout=60)
        self.addCleanup(stream.cancel)
        return stream

    def test_a_service_that_there_is_not(self):
        with self.assertRaises(grpc.RpcError) as refused:
            self.channel.unary_unary(f"{HEALTH}Check")(text(1, b"x"), timeout=60)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.NOT_FOUND)
        stream = self.watch(b"x")
        self.assertEqual(next(stream), b"\x08\x03")
        self.assertTrue(stream.is_active())

    def test_who_watches_is_told_when_the_daemon_stops(self):
        streams = [self.watch(service) for service in (b"", b"snug.v1.FineTuning")]
        for stream in streams:
            self.assertEqual(next(stream), b"\x08\x01")
        self.daemon.process.terminate()
        for stream in streams:
            self.assertEqual(next(stream), b"\x08\x02")


class WireTest(OneDaemonTest):
    def say(self, *parts):
        """Sends as much as the daemon takes, and drops the connection."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(10)
            peer.connect(str(self.daemon.socket))
            with contextlib.suppress(ConnectionError, TimeoutError):
                for part in parts:
                    peer.sendall(part)
                    peer.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        peer.recv(1 << 16)
                    peer.settimeout(10)

    def test_f53_what_is_no_http2(self):
        self.say(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.say(bytes(range(256)) * 4096)
        self.say(PREFACE[:10], b"\0" * 1000)
        self.say(PREFACE, b"\xff" * 100_000)

    # They never get as far as a method.
    def test_f53_floods_of_resets_without_a_content_type(self):
        self.flood(REQUEST, FLOOD_S)

    def test_f53_floods_of_frames(self):
        settings = PREFACE + frame(SETTINGS)
        self.say(settings, *[frame(PING, b"\0" * 8) * 1000] * 20)
        self.say(settings, *[frame(SETTINGS, struct.pack(">HI", 4, 1 << 16)) * 1000] * 20)
        self.say(settings, frame(WINDOW_UPDATE, struct.pack(">I", 0x7FFFFFFF)) * 4)
        self.say(settings, frame(HEADERS, REQUEST, 1) + b"\0" * 9 * 1000)

    # A table entry of some kilobytes that a byte of every later header stands for.
    def test_f53_headers_that_unpack_to_much(self):
        value = b"v" * 4000
        more = len(value) - 127
        entry = b"\x40\x01x" + b"\x7f" + bytes([more & 0x7F | 0x80, more >> 7])
        bomb = REQUEST + entry + value + b"\xbe" * 10_000
        calls = [frame(HEADERS, bomb, 2 * i + 1, END_HEADERS) for i in range(100)]
        self.say(PREFACE + frame(SETTINGS), *calls)

    # gRPC puts the string together anew with each frame. Others are answered meanwhile.
    def test_f53_a_header_that_never_ends(self):
        parts = [ENDLESS_HEADER, *[MORE_OF_IT * 16] * 16]
        flood = threading.Thread(target=self.say, args=(PREFACE + frame(SETTINGS), *parts))
        flood.start()
        for _ in range(3):
            self.daemon.run("list")
        flood.join()

    def channel(self):
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"unix:{self.daemon.socket}", options=options)
        self.addCleanup(channel.close)
        return channel

    def code(self, method, request, **options):
        """What a call with these bytes ends with."""
        call = self.channel().unary_unary(f"/snug.v1.FineTuning/{method}")
        try:
            call(request, timeout=30, **options)
            return grpc.StatusCode.OK
        except grpc.RpcError as error:
            return error.code()

    def test_f54_messages_that_are_too_much(self):
        code = grpc.StatusCode
        self.assertEqual(self.code("CreateJob", b"\0" * (5 << 20)), code.RESOURCE_EXHAUSTED)
        packed = self.code("CreateJob", b"\0" * (200 << 20), compression=grpc.Compression.Gzip)
        self.assertEqual(packed, code.UNIMPLEMENTED)
        unknown = b"\xf8\x3f\x01" * 80_000  # A field that no message has, again and again.
        self.assertEqual(self.code("CreateJob", unknown), code.INVALID_ARGUMENT)
        nested = b""
        for _ in range(1000):
            nested = text(2000, nested)
        self.assertEqual(self.code("GetJob", nested), code.INVALID_ARGUMENT)
        headers = [(f"x-{i}", "v" * 1000) for i in range(1000)]
        refused = (code.RESOURCE_EXHAUSTED, code.UNAVAILABLE)  # The connection may go with it.
        self.assertIn(self.code("ListJobs", b"", metadata=headers), refused)

    def test_f56_calls_that_are_given_up_at_every_moment(self):
        name = self.daemon.submit_script("steps=1")
        self.daemon.wait_state(name, "SUCCEEDED")
        channel = self.channel()
        get = channel.unary_unary("/snug.v1.FineTuning/GetJob")
        submit = channel.unary_unary("/snug.v1.FineTuning/RerunJob")
        for i in range(300):
            for call, limit in ((get, i * 2e-6), (submit, i * 1e-5)):
                with contextlib.suppress(grpc.RpcError):
                    call(text(1, name.encode()), timeout=limit)
            future = submit.future(text(1, name.encode()), timeout=30)
            future.cancel()
        # What was acknowledged, or asked and not waited for, is a job like others.
        for job in self.daemon.json("list", "--all", "--limit", 1000)["jobs"]:
            self.daemon.wait_state(job["id"], "SUCCEEDED")

    def test_f61_watchers_that_never_listen(self):
        name = self.daemon.submit_script(LOUD)
        for _ in range(4):
            watch = self.channel().unary_stream("/snug.v1.FineTuning/WatchJob")
            for _ in range(75):
                self.addCleanup(watch(text(1, name.encode())).cancel)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertEqual(job["progress"]["global_step"], "400")
        self.assertLess(self.bytes() - self.begin, GROWTH_BYTES)


if __name__ == "__main__":
    unittest.main()
