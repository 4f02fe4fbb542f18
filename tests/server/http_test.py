"""What the daemon serves over HTTP: metrics for everybody on loopback, the page and what it reads
for who has a session or a token, as that caller, and nothing for a foreign page."""

import contextlib
import http.client
import json
import re
import signal
import socket
import time
import unittest
import urllib.parse

from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon
from tests.server.tls_site import Site

LONG = "steps=100000 step_ms=50"
CLOSED_S = 20  # The daemon waits 10 s for a client; a busy machine takes longer.


class HttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.job = cls.daemon.submit_script(LONG)
        cls.daemon.wait_step(cls.job, 3)
        cls.url = urllib.parse.urlsplit(cls.daemon.json("open")["url"])
        cls.secret = urllib.parse.parse_qs(cls.url.query)["session"][0]

    def get(self, path, secret=None, **headers):
        """(status, headers, body) of a GET; headers by their names with _ for -."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=20)
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()

    def read(self, path):
        status, _, body = self.get(path, self.secret)
        self.assertEqual(status, 200, body)
        return body

    def test_metrics_need_nothing(self):
        status, headers, body = self.get("/metrics")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertIn("snug_build_info{", body)

    def test_nothing_else_is_answered_without_a_session(self):
        paths = ["/", "/page.js", "/page.css", "/charts.js", "/api/server", "/api/jobs"]
        paths += [f"/api/jobs/{self.job}{part}" for part in ("", "/plans", "/metrics")]
        for path in (*paths, "/api/events", "/?session=snugs_0"):
            for secret in (None, "", "snugs_0", self.secret[:-1], "a b", "x" * 5000):
                status, _, body = self.get(path, secret)
                self.assertIn(status, (400, 401), (path, secret))
                self.assertNotIn(self.job, body)

    def test_the_link_becomes_a_cookie_and_leaves_the_address(self):
        status, headers, _ = self.get(f"{self.url.path}?{self.url.query}")
        address = headers["Location"]
        self.assertEqual(status, 303)
        self.assertRegex(address, "^/s/[0-9a-f]{16}/$")
        cookie, *rules = headers["Set-Cookie"].split("; ")
        # Cookies know no ports: whoever serves on another one is not told this path.
        self.assertEqual({"HttpOnly", "SameSite=Strict", f"Path={address}"}, set(rules))
        status, headers, page = self.get(address, Cookie=cookie)
        self.assertEqual(status, 200)
        self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
        for file in re.findall(r'(?:href|src)="([^":]+)"', page):
            status, _, _ = self.get(address + file, Cookie=cookie)
            self.assertEqual(status, 200, file)

    def test_what_the_page_reads(self):
        server = json.loads(self.read("/api/server"))
        (device,) = server["devices"]
        self.assertEqual([each["job"] for each in device["reservations"]], [self.job])
        jobs = json.loads(self.read("/api/jobs"))["jobs"]
        self.assertEqual([job["id"] for job in jobs], [self.job])
        job = json.loads(self.read(f"/api/jobs/{self.job}"))
        self.assertEqual(job["plan"]["name"], job["memory"]["plan"])
        plans = json.loads(self.read(f"/api/jobs/{self.job}/plans"))
        self.assertIn(job["memory"]["plan"], [plan["name"] for plan in plans["plans"]])
        history = json.loads(self.read(f"/api/jobs/{self.job}/metrics"))
        series = {each["name"]: each for each in history["series"]}
        self.assertEqual(series["loss"]["steps"][:3], ["1", "2", "3"])
        self.assertEqual(len(series["loss"]["values"]), len(series["loss"]["steps"]))
        status, _, body = self.get("/api/jobs/no-such-job", self.secret)
        self.assertEqual(status, 404)
        self.assertIn("no-such-job", json.loads(body)["error"]["message"])

    def test_events_say_all_first_and_then_what_changes(self):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=20)
        self.addCleanup(connection.close)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {self.secret}"})
        response = connection.getresponse()
        self.assertEqual(response.headers["Content-Type"], "text/event-stream")

        def events():
            name = None
            for line in response:
                word, _, rest = line.decode().rstrip("\n").partition(": ")
                if word == "event":
                    name = rest
                elif word == "data":
                    yield name, json.loads(rest)

        stream, steps = events(), []
        self.assertEqual(next(stream)[0], "server")
        while len(set(steps)) < 3:
            name, jobs = next(stream)
            if name == "jobs":
                steps += [int(job["progress"]["global_step"]) for job in jobs if "progress" in job]
        self.assertEqual(steps, sorted(steps))

    # By a foreign name that leads to this machine, a foreign page could read what is served.
    def test_only_loopback_is_its_name(self):
        port = self.url.port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1:1", "127.0.0.1.example"):
            self.assertEqual(self.get("/api/jobs", self.secret, Host=host)[0], 421, host)
        for host in ("localhost", f"localhost:{port}", f"[::1]:{port}"):
            self.assertEqual(self.get("/api/jobs", self.secret, Host=host)[0], 200, host)

    def test_too_many_open_pages_are_told_so(self):
        held, answers = [], []
        for _ in range(12):
            connection = socket.create_connection((self.url.hostname, self.url.port), timeout=20)
            self.addCleanup(connection.close)
            connection.sendall(
                f"GET /api/events HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {self.secret}\r\n\r\n".encode()
            )
            held.append(connection)
            answers.append(connection.recv(64).split(b" ")[1])
        self.assertIn(b"429", answers)
        self.assertEqual(self.get("/metrics")[0], 200)
        for connection in held:
            connection.close()
        wait_for(lambda: self.events_status() == 200, "room for another page")

    def events_status(self):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=20)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {self.secret}"})
        status = connection.getresponse().status
        connection.close()
        return status

    def test_it_listens_on_loopback_alone(self):
        addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
        for address in addresses - {"127.0.0.1", "::1"}:
            if not address.startswith("127."):
                with self.assertRaises(OSError, msg=address):
                    socket.create_connection((address, self.url.port), timeout=2).close()


def drips(connection, byte=b"x"):
    """Sends a byte; whether the other side has left the connection open."""
    try:
        connection.setblocking(False)
        connection.sendall(byte)
        return connection.recv(4096) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


class SlowTest(unittest.TestCase):
    """Clients that take their time."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon()
        cls.addClassCleanup(cls.daemon.close)
        url = urllib.parse.urlsplit(cls.daemon.json("open")["url"])
        cls.place = (url.hostname, url.port)
        cls.secret = urllib.parse.parse_qs(url.query)["session"][0]

    def connection(self, head):
        connection = socket.create_connection(self.place, timeout=20)
        self.addCleanup(connection.close)
        connection.sendall(head.encode())
        return connection

    def post(self, size):
        """A request whose body is still to come."""
        return self.connection(
            f"POST /v1/fine_tuning/jobs HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {self.secret}\r\nContent-Length: {size}\r\n\r\n"
        )

    # F-78: more than there are threads, from the one address that all of this machine have.
    def test_f78_a_hundred_connections_that_drip(self):
        slow = [self.connection("GET /metrics HTTP/1.1\r\nX-Slow: ") for _ in range(100)]
        began = time.monotonic()
        while slow:
            self.assertLess(time.monotonic() - began, CLOSED_S, len(slow))
            asked = time.monotonic()
            self.assertIn("snug_jobs", self.daemon.metrics())
            self.assertLess(time.monotonic() - asked, 5)
            time.sleep(0.5)
            slow = [one for one in slow if drips(one)]

    # F-78: the one that is slow takes longer than the other is waited for.
    def test_f78_a_body_that_drips_and_one_that_is_slow(self):
        piece, pieces = b"x" * 8192, 26
        slow, drip = self.post(len(piece) * pieces), self.post(1000)
        for _ in range(pieces):
            time.sleep(0.5)
            slow.sendall(piece)
            drips(drip)
        response = http.client.HTTPResponse(slow)
        response.begin()
        self.assertEqual(response.status, 400)  # It is no JSON.
        self.assertNotIn("broke off", response.read().decode())
        wait_for(lambda: not drips(drip), "the other to be closed", CLOSED_S - 13)

    def test_a_head_that_never_ends_is_not_kept(self):
        flood = self.connection("GET /metrics HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            flood.sendall(b"A: b\r\n" * 20000)
        wait_for(lambda: not drips(flood), "it to be closed", 5)

    # They would be taken into memory whole.
    def test_a_body_that_is_packed_is_not_read(self):
        for request in ("DELETE /v1/files/a", "POST /v1/files", "GET /metrics"):
            for packed in ("gzip", "br"):
                head = f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                head += f"Content-Encoding: {packed}\r\nTransfer-Encoding: chunked\r\n\r\n"
                self.assertIn(b" 415 ", self.connection(head).recv(100), request)

    def test_a_body_that_no_route_reads_is_not_read(self):
        head = "DELETE /v1/files/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
        head += "Transfer-Encoding: chunked\r\n\r\n"
        self.assertIn(b" 405 ", self.connection(head).recv(100))
        for request in ("PUT /v1/files", "PATCH /", "DELETE /v1/files/a", "POST /%0a"):
            head = f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000000\r\n\r\n"
            self.assertIn(b" 405 ", self.connection(head).recv(100), request)

    # Of a request that is refused: its body would be the next request, through a proxy another's.
    def test_a_body_is_never_the_next_request(self):
        inner = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        peer = self.connection(
            f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(inner)}\r\n\r\n"
            + inner
        )
        said = b""
        while more := peer.recv(4096):
            said += more
        self.assertEqual(said.count(b"HTTP/1.1 "), 1, said)
        self.assertIn(b"Connection: close", said)

    # httplib's parser keeps what lies between two parts of a form.
    def test_a_form_without_end_is_not_kept(self):
        head = self.connection(
            f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000000\r\n"
            f"Authorization: Bearer {self.secret}\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
            'Content-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n--x'
        )
        sent = 0
        with self.assertRaises(OSError):
            while sent < 1 << 28:
                head.sendall(b"y" * 65536)
                sent += 65536
        self.assertLess(sent, 64 << 20)

    # F-78: over TLS, where they never come to shake hands. One address leaves threads to others.
    def test_f78_an_address_that_drips_over_tls(self):
        site = Site()
        self.addCleanup(site.close)
        place, source = ("127.0.0.1", site.page_port()), ("127.0.0.2", 0)
        slow = [socket.create_connection(place, 20, source) for _ in range(60)]
        for one in slow:
            self.addCleanup(one.close)
        hello = iter(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
        time.sleep(0.5)  # Those beyond the cap are closed.
        byte = bytes([next(hello)])
        slow = [one for one in slow if drips(one, byte)]
        self.assertLessEqual(len(slow), 48)
        self.assertGreater(len(slow), 0)
        began = time.monotonic()
        while slow:
            self.assertLess(time.monotonic() - began, CLOSED_S, len(slow))
            asked = time.monotonic()
            self.assertEqual(site.page("/metrics")[0], 401)
            self.assertLess(time.monotonic() - asked, 5)
            byte = bytes([next(hello)])
            slow = [one for one in slow if drips(one, byte)]
            time.sleep(0.5)


class EndsTest(unittest.TestCase):
    def test_a_session_ends_with_the_daemon(self):
        daemon = FakeDaemon()
        self.addCleanup(daemon.close)
        url = urllib.parse.urlsplit(daemon.json("open")["url"])
        daemon.restart()
        port = urllib.parse.urlsplit(daemon.json("open")["url"]).port
        connection = http.client.HTTPConnection(url.hostname, port, timeout=20)
        self.addCleanup(connection.close)
        connection.request("GET", f"/?{url.query}")
        self.assertEqual(connection.getresponse().status, 401)

    def test_a_page_that_is_open_does_not_hold_the_daemon_up(self):
        daemon = FakeDaemon()
        self.addCleanup(daemon.close)
        url = urllib.parse.urlsplit(daemon.json("open")["url"])
        secret = urllib.parse.parse_qs(url.query)["session"][0]
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
        self.addCleanup(connection.close)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {secret}"})
        self.assertEqual(connection.getresponse().status, 200)
        begin = time.monotonic()
        self.assertEqual(daemon.kill(signal.SIGTERM), 0)
        self.assertLess(time.monotonic() - begin, 15)  # Then its watchdog would have ended it.


if __name__ == "__main__":
    unittest.main()
