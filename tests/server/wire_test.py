"""Clients that speak badly, hang up, or never listen, by the numbers of the faults: none of them
costs another one its answer, nor the daemon its memory. The worker trains nothing.
"""

import contextlib
import pathlib
import socket
import struct
import threading
import unittest

import grpc
from tests.harness.fake_daemon import FakeDaemon

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_HEADERS = 4
GROWTH_BYTES = 192 << 20  # Less than one message of test_f54 unpacked.
LOUD = "steps=400 step_ms=5"


def frame(kind, payload=b"", stream=0, flags=0):
    """A frame of HTTP/2."""
    head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
    return head + struct.pack(">I", stream) + payload


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


REQUEST = (
    b"\x83\x86"
    + literal(b":path", b"/snug.v1.FineTuning/ListJobs")
    + literal(b":authority", b"x")
)
# Of a value of 64 MiB.
ENDLESS_HEADER = frame(HEADERS, REQUEST + b"\x00\x01x\x7f\x80\x80\x80\x20", 1)
MORE_OF_IT = frame(CONTINUATION, b"v" * 16_384, 1)


class WireTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.run("list")
        cls.begin = cls.bytes()

    @classmethod
    def bytes(cls):
        """What the daemon holds of memory."""
        status = pathlib.Path(f"/proc/{cls.daemon.process.pid}/statm").read_text()
        return int(status.split()[1]) * 4096

    def tearDown(self):
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())
        self.daemon.run("list")
        self.assertLess(self.bytes() - self.begin, GROWTH_BYTES)

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

    def test_f53_floods_of_frames(self):
        settings = PREFACE + frame(SETTINGS)
        resets = b"".join(
            frame(HEADERS, REQUEST, 2 * i + 1, END_HEADERS)
            + frame(RST_STREAM, struct.pack(">I", 8), 2 * i + 1)
            for i in range(1000)
        )
        self.say(settings, *[resets] * 20)
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
