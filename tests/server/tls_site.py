"""A daemon on TCP with TLS, and what its callers do."""

import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile

from tests.harness.binaries import binary
from tests.harness.certificates import Authority
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon

TENANTS = """
tenants:
  - name: blue
    roots: ["{folder}/blue"]
    quota: {{live_jobs: 2, max_steps: 1000}}
    certificates:
      - {{uri: "spiffe://test/ann", role: user}}
      - {{subject: "CN=bob,O=Test", role: viewer}}
  - name: red
    roots: ["{folder}/red"]
    quota: {{device_bytes: {share}, stored_bytes: {stored}}}
listen_http:
  - {{address: "127.0.0.1:0", tls_cert: {cert}, tls_key: {key}}}
listen:
  - {{address: "127.0.0.1:0", tls_cert: {cert}, tls_key: {key}}}
  - {{address: "127.0.0.1:0", tls_cert: {cert}, tls_key: {key}, tls_ca: {ca}}}
"""


class Site:
    """A daemon with two addresses, one for tokens and one for certificates, and two tenants, each
    with the model and the data in a folder of its own."""

    def __init__(self, share="1GiB", stored="1TiB", settings="", under=()):
        """`under`: a command that snugd is the rest of, as Daemon has it."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-tls-"))
        self.authority = Authority(self.folder)
        cert, key = self.authority.issue("server", "/CN=server", "IP:127.0.0.1")
        ca = self.authority.certificate
        places = {"folder": self.folder, "cert": cert, "key": key, "ca": ca}
        settings += TENANTS.format(**places, share=share, stored=stored)
        self.daemon = FakeDaemon(settings=settings, under=under)
        for tenant in ("blue", "red"):
            subprocess.run(["cp", "-r", self.daemon.jobs, self.folder / tenant], check=True)

    def close(self):
        self.daemon.close()
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def address(self, number=0):
        """https://HOST:PORT, as snugd says it."""
        return re.findall(r"https://127\.0\.0\.1:\d+", self.daemon.log.read_text())[number]

    def page_port(self):
        """Of the page over TLS, as snugd says it."""
        said = re.search(r"pages on https://127\.0\.0\.1:(\d+)", self.daemon.log.read_text())
        return int(said[1])

    def page(self, path, token="", **headers):
        """(status, headers, body) of a GET there."""
        port = self.page_port()
        trust = ssl.create_default_context(cafile=self.authority.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=trust)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()
        finally:
            connection.close()

    def token(self, tenant, role, *words):
        """A new one, given out over the socket; what a client sends."""
        return self.daemon.run(
            "token", "create", "--tenant", tenant, "--role", role, *words
        ).stdout.strip()

    def job(self, tenant, script, **more):
        """A job file in the tenant's folder."""
        keys = {"model": "./model", "dataset": "./train.jsonl", "method": "lora"}
        keys |= {"display_name": script, "training": {"max_steps": 100}} | more
        file = self.folder / tenant / "job.json"
        file.write_text(json.dumps(keys))
        return file

    def run(self, *words, token="", ca=None, number=0):
        """A snug command over TLS; what it ended with."""
        environment = {name: value for name, value in os.environ.items() if name != "SNUG_TOKEN"}
        if token:
            environment["SNUG_TOKEN"] = token
        line = [binary("snug"), "--server", self.address(number)]
        line += ["--tls-ca", ca or self.authority.certificate, *words]
        return subprocess.run(
            list(map(str, line)),
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=120,
        )

    def ok(self, *words, **options):
        """The JSON that a command prints."""
        done = self.run(*words, "--output", "json", **options)
        if done.returncode != 0:
            raise AssertionError(f"{done.args} exited {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def reason(self, *words, **options):
        """Of the error that a command ends with."""
        done = self.run(*words, "--output", "json", **options)
        if done.returncode == 0:
            raise AssertionError(f"{done.args} was not refused")
        return json.loads(done.stderr)["error"]["reason"]

    def ended(self, name, state, token):
        """The job once it is in that state."""
        return wait_for(
            lambda: (job := self.ok("get", name, token=token))["state"] == state and job,
            f"{name} to be {state}",
            60,
        )
