"""What a job's webhook hears when the job has ended: signed so that the library of receivers
takes it, until it has heard, and from nobody that the configuration does not name.
"""

import base64
import http.server
import json
import os
import pathlib
import re
import shutil
import ssl
import tempfile
import threading
import unittest

from standardwebhooks import Webhook

from tests.harness.certificates import Authority
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon

SECRET = "whsec_" + base64.b64encode(os.urandom(32)).decode()


class Receiver(http.server.ThreadingHTTPServer):
    """Notes what it is sent; answers with the next of `codes`, and 204 when there is none left."""

    def __init__(self, certificate, key):
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.codes, self.heard = [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that does not trust the certificate is what a test is about."""

    def url(self, path="/hook"):
        return f"https://127.0.0.1:{self.server_port}{path}"

    def of(self, job):
        """The calls about a job, verified: (path, headers, body)."""
        calls = []
        for path, headers, text in self.heard:
            body = Webhook(SECRET).verify(text, headers)
            if body["data"]["id"] == job:
                calls.append((path, headers, body))
        return calls


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.heard.append((self.path, headers, text))
        self.send_response(self.server.codes.pop(0) if self.server.codes else 204)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class WebhookTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-webhook-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        authority = Authority(cls.folder)
        cls.receiver = Receiver(*authority.issue("hook", "/CN=hook", "IP:127.0.0.1"))
        cls.addClassCleanup(cls.receiver.shutdown)
        other = Authority(cls.folder, "other")
        cls.impostor = Receiver(*other.issue("impostor", "/CN=hook", "IP:127.0.0.1"))
        cls.addClassCleanup(cls.impostor.shutdown)
        (cls.folder / "secret").write_text(SECRET + "\n")
        hosts = [f"127.0.0.1:{each.server_port}" for each in (cls.receiver, cls.impostor)]
        settings = json.dumps(
            {
                "secret_file": str(cls.folder / "secret"),
                "hosts": hosts,
                "tls_ca": str(authority.certificate),
            }
        )
        cls.daemon = FakeDaemon(settings=f"webhooks: {settings}\n")
        cls.addClassCleanup(cls.daemon.close)

    def submit(self, script, receiver=None, path="/hook"):
        return self.daemon.submit_script(script, f"webhook={(receiver or self.receiver).url(path)}")

    def calls(self, job, count=1, seconds=30):
        """The first so many calls about a job."""
        return wait_for(
            lambda: len(found := self.receiver.of(job)) >= count and found,
            f"{count} calls about {job}",
            seconds,
        )

    def test_it_hears_of_each_end_once(self):
        done = self.submit("steps=2", path="/hook?team=blue")
        long = self.submit("steps=100000 step_ms=50")
        self.daemon.wait_step(long, 1)
        self.daemon.run("cancel", long)
        ((path, headers, body),) = self.calls(done)
        self.assertEqual(path, "/hook?team=blue")
        self.assertEqual(headers["content-type"], "application/json")
        self.assertEqual(body["type"], "job.succeeded")
        job = self.daemon.json("get", done)
        self.assertEqual(body["timestamp"], job["end_time"])
        data = body["data"]
        self.assertEqual((data["state"], data["global_step"]), ("SUCCEEDED", 2))
        self.assertEqual(data["name"], job["name"])
        self.assertEqual(self.calls(long)[0][2]["type"], "job.cancelled")
        self.assertEqual(len(self.receiver.of(done)), 1)

    def test_until_it_has_heard_over_a_kill(self):
        self.receiver.codes[:] = [500, 302, 503]
        job = self.submit("steps=1")
        self.calls(job)
        self.daemon.kill()
        self.daemon.start()
        # After 5 s, after 30 s more: the second one is seen here.
        first, second = self.calls(job, 2)[:2]
        self.receiver.codes.clear()
        self.assertEqual(first[1]["webhook-id"], second[1]["webhook-id"])
        self.assertNotEqual(first[1]["webhook-timestamp"], second[1]["webhook-timestamp"])
        self.assertNotIn("/elsewhere", [path for path, _, _ in self.receiver.heard])
        counted = re.compile(r'snug_webhook_calls_total\{outcome="failed"\} [1-9]')
        wait_for(lambda: counted.search(self.daemon.metrics()), "the failure to be counted", 30)

    # Who has another certificate hears nothing, and the job has ended all the same.
    def test_an_impostor_hears_nothing(self):
        job = self.submit("steps=1", self.impostor)
        self.daemon.run("watch", job)
        wait_for(lambda: f"job {job}: webhook" in self.daemon.log.read_text(), "the call to fail")
        self.assertEqual(self.impostor.heard, [])
        self.assertEqual(self.daemon.json("get", job)["state"], "SUCCEEDED")

    def test_who_may_not_be_called_is_refused(self):
        port = self.receiver.server_port
        for url in (
            f"http://127.0.0.1:{port}/",
            f"https://localhost:{port}/",
            f"https://x@127.0.0.1:{port}/",
            "https://127.0.0.1/",
        ):
            for words in (("submit", "--no-check"), ("submit",)):
                said = self.daemon.run(
                    *words, self.daemon.job_file(), f"webhook={url}", "--output", "json", code=1
                )
                error = json.loads(said.stderr)["error"]
                self.assertIn("webhook", json.dumps(error), url)
                self.assertEqual(error["reason"], "BAD_FIELD", url)


class ConfigurationTest(unittest.TestCase):
    def test_a_daemon_without_hosts_calls_nobody(self):
        daemon = FakeDaemon()
        self.addCleanup(daemon.close)
        refused = daemon.run("submit", daemon.job_file(), "webhook=https://a.b/", code=1).stderr
        self.assertIn("no webhooks.hosts", refused)


if __name__ == "__main__":
    unittest.main()
