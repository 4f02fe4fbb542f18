"""Certificates, tokens and connections that go wrong over TLS, by the numbers of the faults; and
secrets, which are nowhere. The worker trains nothing.
"""

import contextlib
import os
import select
import shutil
import socket
import ssl
import struct
import threading
import time
import unittest

import grpc
from tests.harness import api
from tests.harness.daemon import wait_for
from tests.server.tls_test import ENDLESS, Site
from tests.server.wire_test import (
    DATA,
    END_HEADERS,
    ENDLESS_HEADER,
    GOAWAY,
    HEADERS,
    MORE_OF_IT,
    PING,
    PREFACE,
    SETTINGS,
    frame,
    kinds_of,
    literal,
)

LONG = "SNUG_FAULT_LONG" in os.environ
HANDSHAKES = 500
SLACK_S = 0.15  # For whatever else this machine does.
STREAM_ENDS_S = 60
CREATE = (
    b"\x83\x87"
    + literal(b":path", b"/snug.v1.FineTuning/CreateJob")
    + literal(b":authority", b"x")
    + literal(b"content-type", b"application/grpc")
    + literal(b"te", b"trailers")
)


class SiteTest(unittest.TestCase):
    """What the tests of this file share."""

    settings = ""  # More of the daemon's configuration.

    def setUp(self):
        self.site = Site(settings=self.settings)
        self.addCleanup(self.site.close)
        self.user = self.site.token("red", "user")

    def place(self, number=0):
        host, port = self.site.address(number).removeprefix("https://").split(":")
        return host, int(port)

    def channel(self, token, number=0):
        """gRPC's own, with that token, over a connection of its own."""
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(self.site.authority.certificate.read_bytes()),
            grpc.access_token_call_credentials(token),
        )
        to = self.site.address(number).removeprefix("https://")
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.secure_channel(to, credentials, options=options)
        self.addCleanup(channel.close)
        return channel

    def peer(self, address="127.0.0.1"):
        """A connection over TLS, from that address, on which HTTP/2 is spoken by hand."""
        trust = ssl.create_default_context(cafile=self.site.authority.certificate)
        trust.set_alpn_protocols(["h2"])
        plain = socket.create_connection(self.place(), 30, (address, 0))
        self.addCleanup(plain.close)
        peer = trust.wrap_socket(plain, server_hostname="127.0.0.1")
        self.addCleanup(peer.close)
        return peer

    def submitted(self, script):
        """A job of as many steps as the script has; its id."""
        steps = int(script.split()[0].removeprefix("steps="))
        file = self.site.job("red", script, training={"max_steps": steps})
        return self.site.ok("submit", file, token=self.user)["id"]

    def ends_with(self, stream):
        """The code that a stream ends with, and after how many seconds."""
        begin = time.monotonic()
        try:
            for _ in stream:
                pass
            return grpc.StatusCode.OK, time.monotonic() - begin
        except grpc.RpcError as error:
            return error.code(), time.monotonic() - begin


class TokensTest(SiteTest):
    # F-65: what a token has opened ends with it, and what another has goes on.
    def test_f65_streams_end_with_their_token(self):
        name = self.submitted(ENDLESS)
        self.site.ended(name, "RUNNING", self.user)
        revoked = self.site.token("red", "viewer")
        brief = self.site.token("red", "viewer", "--expires", "3s")
        stays = api.follow(self.channel(self.user), "WatchJob", id=name)
        next(stays)
        streams = {}
        for token in (revoked, brief):
            to = self.channel(token)
            watch = api.follow(to, "WatchJob", timeout=STREAM_ENDS_S + 30, id=name)
            next(watch)
            log = api.follow(to, "GetJobLogs", timeout=STREAM_ENDS_S + 30, id=name, follow=True)
            next(log)
            streams[token] = (watch, log)
        self.site.daemon.run("token", "revoke", revoked.split("_")[1])
        for token, both in streams.items():
            for stream in both:
                code, took = self.ends_with(stream)
                self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED, token == brief)
                self.assertLess(took, STREAM_ENDS_S)
        next(stays)
        self.site.ok("cancel", name, token=self.user)

    def test_f65_tokens_of_another_daemon_or_in_an_address(self):
        other = Site()
        self.addCleanup(other.close)
        foreign = other.token("red", "user")
        self.assertEqual(self.site.reason("list", token=foreign), "BAD_TOKEN")
        for path in ("/", "/api/jobs", "/v1/fine_tuning/jobs", "/metrics"):
            for key in ("session", "token", "access_token", "api_key", "authorization"):
                status, headers, _ = self.site.page(f"{path}?{key}={self.user}")
                self.assertEqual(status, 401, (path, key))
                self.assertNotIn("Set-Cookie", headers)
        self.assertEqual(self.site.page("/api/jobs", self.user)[0], 200)

    # F-62: of another tenant's job there is nothing to watch, before a restart and after.
    def test_f62_a_watch_of_another_tenants_job(self):
        name = self.submitted("steps=1")
        blue = self.site.token("blue", "user")
        for _ in range(2):
            for method in ("WatchJob", "GetJobLogs", "DownloadJob"):
                content = api.request(method, id=name)
                code, _ = api.refusal(self.channel(blue), method, content)
                self.assertEqual(code, grpc.StatusCode.NOT_FOUND, method)
            self.site.daemon.restart()


class CertificatesTest(SiteTest):
    # F-64: expired, of another authority, for another name, of two names.
    def test_f64_certificates_that_let_nobody_in(self):
        name, authority = "URI:spiffe://test/ann", self.site.authority
        good = authority.issue("ann", "/CN=ann", name)
        expired = authority.issue("old", "/CN=ann", name, ends=time.time() - 60)
        two = authority.issue("two", "/CN=ann", f"{name},URI:spiffe://test/eve")
        words = {
            (cert, key): ["--tls-cert", cert, "--tls-key", key]
            for cert, key in (good, expired, two)
        }
        self.site.ok(*words[good], "list", number=1)
        refused = self.site.run(*words[expired], "list", number=1)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertEqual(self.site.reason(*words[two], "list", number=1), "UNKNOWN_CERTIFICATE")
        self.site.ok(*words[good], "list", number=1)
        # Of the server: for another name than it is called by.
        cert, key = authority.issue("elsewhere", "/CN=server", "IP:127.0.0.2")
        with self.serving(cert, key) as port:
            trust = ssl.create_default_context(cafile=authority.certificate)
            with self.assertRaises(ssl.SSLCertVerificationError):
                self.shake(port, trust)

    @contextlib.contextmanager
    def serving(self, cert, key):
        """The page's port, while these are in the place of its certificate."""
        for file, other in (("server.crt", cert), ("server.key", key)):
            shutil.copy(other, self.site.folder / file)
        yield self.site.page_port()

    @staticmethod
    def shake(port, trust):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            with trust.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                return secure.getpeercert()

    # F-64: of the page over TLS. What is open stays, who comes is refused until there is another.
    def test_f64_the_pages_certificate_expires_and_is_renewed(self):
        trust = ssl.create_default_context(cafile=self.site.authority.certificate)
        self.site.authority.issue("server", "/CN=server", "IP:127.0.0.1", ends=time.time() - 60)
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.shake(self.site.page_port(), trust)
        self.site.authority.issue("server", "/CN=server", "IP:127.0.0.1")
        self.assertTrue(self.shake(self.site.page_port(), trust))


class RenewalTest(SiteTest):
    """F-64: of gRPC's addresses, whose files are looked at once a minute."""

    def test_f64_a_certificate_expires_under_a_stream_and_is_renewed(self):
        if LONG:
            self.renew(time.time() + 10, 130)
        else:  # Before it is looked at again: who comes is refused, who is there stays.
            self.renew(time.time() + 10, 0)

    def renew(self, ends, patience):
        self.site.authority.issue("server", "/CN=server", "IP:127.0.0.1", ends=ends)
        self.site.daemon.restart()
        name = self.submitted(ENDLESS)
        watch = api.follow(self.channel(self.user), "WatchJob", id=name)
        next(watch)
        time.sleep(max(0.0, ends + 1 - time.time()))
        self.assertEqual(self.site.run("list", token=self.user).returncode, 1)
        step = int(next(watch).get("progress", {}).get("global_step", 0))
        self.site.daemon.wait_step(name, step + 2)
        next(watch)
        pid = self.site.daemon.process.pid
        self.site.authority.issue("server", "/CN=server", "IP:127.0.0.1")
        if patience:
            listed = lambda: self.site.run("list", token=self.user).returncode == 0
            wait_for(listed, "the new certificate to be found", patience)
            next(watch)
        self.assertEqual(self.site.daemon.process.pid, pid)
        self.assertIsNone(self.site.daemon.process.poll())
        self.site.daemon.run("cancel", name)


class AgeTest(SiteTest):
    settings = "max_connection_age: 2s\n"

    # The daemon's word for it is GOAWAY: no more calls here. Clients that know it lose nothing.
    def test_a_connection_ends_with_its_age_and_clients_dial_again(self):
        name = self.submitted(ENDLESS)
        channel = self.channel(self.user)
        watch = api.follow(channel, "WatchJob", id=name)
        call = api.raw(channel, "ListJobs")
        peer = self.peer()
        peer.sendall(PREFACE + frame(SETTINGS))
        begin = time.monotonic()
        peer.settimeout(30)
        heard = b""
        while GOAWAY not in kinds_of(heard):
            heard += peer.recv(4096) or self.fail(f"it was closed after {kinds_of(heard)}")
            call(b"", timeout=60)
        self.assertGreater(time.monotonic() - begin, 1)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            call(b"", timeout=60)
            time.sleep(0.1)
        next(watch)
        self.site.daemon.run("cancel", name)


class SlowTest(SiteTest):
    """F-51: connections that never get to a call."""

    def latency(self, count=60):
        """The slowest but one of so many calls of another client."""
        call = api.raw(self.channel(self.user), "GetServerInfo")
        call(b"", timeout=60)
        took = []
        for _ in range(count):
            begin = time.monotonic()
            call(b"", timeout=60)
            took.append(time.monotonic() - begin)
            time.sleep(0.02)  # He may make 50 calls a second.
        return sorted(took)[-2]

    # From three addresses, since one has no more than 200 connections.
    def test_f51_handshakes_that_are_never_finished(self):
        idle = self.latency()
        crowd = []
        self.addCleanup(lambda: [one.close() for one in crowd])
        for i in range(HANDSHAKES):
            source = (f"127.0.0.{2 + i % 3}", 0)
            one = socket.create_connection(self.place(), 30, source_address=source)
            one.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[: 1 + i % 7])  # Of a ClientHello.
            crowd.append(one)
        began = time.monotonic()
        self.assertLess(self.latency(), 2 * idle + SLACK_S)
        wait_for(lambda: all(map(self.is_closed, crowd)), "them to be closed", 30)
        self.assertLess(time.monotonic() - began, 30)
        self.site.ok("list", token=self.user)

    @staticmethod
    def is_closed(one):
        one.setblocking(False)
        try:
            return one.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    # Five connections of a hundred streams each, whose requests come a byte at a time. They take
    # nothing from others; gRPC of this version has no limit on how long a request may take.
    def test_f51_requests_that_never_end(self):
        idle = self.latency()
        slow = []
        for _ in range(5):
            peer = self.peer()
            peer.sendall(PREFACE + frame(SETTINGS))
            for stream in range(1, 200, 2):
                peer.sendall(frame(HEADERS, CREATE, stream, END_HEADERS))
                peer.sendall(frame(DATA, b"\0" + struct.pack(">I", 1000), stream))
            slow.append(peer)
        stop = threading.Event()

        def trickle():
            while not stop.wait(0.5):
                for peer in slow:
                    with contextlib.suppress(OSError):
                        for stream in range(1, 200, 2):
                            peer.sendall(frame(DATA, b"x", stream))

        drip = threading.Thread(target=trickle)
        drip.start()
        try:
            self.assertLess(self.latency(), 2 * idle + SLACK_S)
        finally:
            stop.set()
            drip.join()
        self.site.ok("list", token=self.user)

    # A stranger's header is read for a moment, and his address has to wait; others have not.
    def test_f53_a_header_that_never_ends(self):
        flood = self.peer("127.0.0.2")
        quiet = self.peer("127.0.0.3")
        quiet.sendall(PREFACE + frame(SETTINGS))
        flood.sendall(PREFACE + frame(SETTINGS) + ENDLESS_HEADER)
        # Whoever sends into a connection that is closed may wait for its kernel to notice.
        flood.settimeout(1)
        closed = select.poll()
        closed.register(flood, select.POLLRDHUP)
        begin = time.monotonic()
        while not closed.poll(0):
            self.assertLess(time.monotonic() - begin, 5)
            with contextlib.suppress(OSError):
                flood.sendall(MORE_OF_IT * 4)
        self.assertIn("and nobody who was let in", self.site.daemon.log.read_text())
        with self.assertRaises(OSError):
            self.peer("127.0.0.2")
        quiet.settimeout(10)
        quiet.sendall(frame(PING, b"stranger"))
        heard = b""
        while b"stranger" not in heard:  # Comes back with the answer.
            heard += quiet.recv(4096) or self.fail("it was closed")
        # One who was let in sends as much as he likes.
        call = api.raw(self.channel(self.user), "ListJobs")
        request = api.request("ListJobs", display_name="x" * (200 << 10))
        until = time.monotonic() + 3
        while time.monotonic() < until:
            call(request, timeout=60)
            time.sleep(0.05)  # He may make 50 calls a second.


class CanariesTest(SiteTest):
    """F-79: what nobody may see is in no log, error, row or metric."""

    def setUp(self):
        self.canary = "canary" + os.urandom(12).hex()
        os.environ["SNUG_TEST_SECRET"] = self.canary
        self.addCleanup(os.environ.pop, "SNUG_TEST_SECRET")
        super().setUp()
        self.blue = self.site.token("blue", "user")
        self.operator = self.site.token("red", "operator")
        self.errors = []

    def ask(self, *words, **options):
        """What a command says, for good or bad."""
        done = self.site.run(*words, **options)
        self.errors.append(done.stdout + done.stderr)

    def test_f79_secrets_are_nowhere(self):
        daemon = self.site.daemon
        name = self.submitted("steps=3")
        self.site.ended(name, "SUCCEEDED", self.user)
        session = daemon.json("open")["url"].split("session=")[1]
        self.go_wrong(name)
        key = (self.site.folder / "server.key").read_text().splitlines()[2]
        secrets = {token.split("_")[2] for token in (self.user, self.blue, self.operator)}
        secrets |= {self.canary, session, session.split("_")[1], key}
        files = [file for file in daemon.state.rglob("*") if file.is_file()]
        self.assertGreater(len(files), 8)
        texts = {file: file.read_bytes() for file in files if file.suffix != ".tmp"}
        texts |= {log: log.read_bytes() for log in daemon.folder.glob("snugd.*.log")}
        texts["/metrics"] = daemon.metrics().encode()
        texts["errors"] = "\n".join(self.errors).encode()
        for secret in secrets:
            self.assertGreater(len(secret), 16)
            for place, text in texts.items():
                self.assertNotIn(secret.encode(), text, place)
        # Where the daemon keeps what it has is nobody's business who comes over TLS.
        self.assertNotIn(str(daemon.state).encode(), texts["errors"])
        self.assertNotIn(str(daemon.state).encode(), texts["/metrics"])

    def go_wrong(self, name):
        """Calls that are refused, with tokens and files that are of no use."""
        broken = self.user[:-4] + "0000"
        for token in (broken, self.user + "0", self.user.replace("snug_", "snug-"), self.blue):
            for command in ("get", "watch", "logs", "cancel", "delete"):
                self.ask(command, name, token=token)
            self.ask("download", name, self.site.folder / "out", token=token)
        for keys in (
            {"model": "/nowhere"},
            {"dataset": "./nothing.jsonl"},
            {"dataset": "../../etc/shadow"},
            {"dataset": "file-000000000000000000000000"},
            {"webhook": f"https://user:{self.user}@example.org/"},
        ):
            self.ask("submit", self.site.job("red", "steps=1", **keys), token=self.user)
        for path in (f"/?session={self.user}", "/api/jobs/nothing", "/v1/files"):
            self.errors.append(self.site.page(path, self.user)[2])


if __name__ == "__main__":
    unittest.main()
