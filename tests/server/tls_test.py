"""snugd on TCP: with TLS or not at all; who is let in, what he may do there, and what is written of
it. The worker trains nothing (tests/server/testing/fake_worker.cc).
"""

import hashlib
import json
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time
import unittest
import urllib.parse

import grpc
from tests.harness.binaries import ROOT, binary
from tests.harness.certificates import Authority
from tests.harness.daemon import wait_for
from tests.server.tls_site import Site

ENDLESS = "steps=100000 step_ms=50"


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site()
        cls.addClassCleanup(cls.site.close)
        cls.user = cls.site.token("blue", "user")
        cls.viewer = cls.site.token("blue", "viewer")
        cls.red = cls.site.token("red", "user")
        cls.operator = cls.site.token("red", "operator")

    def audit(self):
        """The lines of the audit log."""
        text = (self.site.daemon.state / "audit.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def submitted(self, script, tenant="blue", token=None, **more):
        """A job of the tenant's; its id."""
        file = self.site.job(tenant, script, **more)
        return self.site.ok("submit", file, token=token or self.user)["id"]

    def channel(self, token):
        """gRPC's own, with that token."""
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(self.site.authority.certificate.read_bytes()),
            grpc.access_token_call_credentials(token),
        )
        return grpc.secure_channel(self.site.address().removeprefix("https://"), credentials)

    def test_a_job_runs_to_its_end(self):
        name = self.submitted("steps=3")
        job = self.site.ended(name, "SUCCEEDED", self.user)
        self.assertEqual(job["name"], f"tenants/blue/jobs/{name}")
        self.assertEqual(job["owner"], "tenant:blue")
        watched = self.site.run("watch", job["name"], token=self.viewer)
        self.assertEqual(watched.returncode, 0, watched.stderr)
        target = self.site.folder / "output"
        self.site.ok("download", name, target, token=self.viewer)
        self.assertTrue((target / "adapter_model.safetensors").is_file())
        self.assertEqual(self.site.daemon.job(name)["state"], "SUCCEEDED")

    def test_what_has_a_name_is_known_by_it_to_its_tenant_alone(self):
        name = self.submitted("steps=6", training={"max_steps": 6, "save_steps": 3})
        job = self.site.ended(name, "SUCCEEDED", self.user)
        checkpoint = self.site.ok("checkpoints", job["name"], token=self.viewer)["checkpoints"][0]
        self.assertEqual(
            checkpoint["name"], f"{job['name']}/checkpoints/{checkpoint['global_step']}"
        )
        listed = self.site.ok("artifacts", checkpoint["name"], token=self.viewer)["artifacts"]
        self.assertIn(f"{checkpoint['name']}/artifacts/weights", [each["name"] for each in listed])
        target = self.site.folder / "checkpoint"
        self.site.ok("download", checkpoint["name"], target, token=self.viewer)
        for each in listed:
            content = (target / each["path"]).read_bytes()
            self.assertEqual(hashlib.sha256(content).hexdigest(), each["sha256"])
        for command in ("get", "checkpoints", "artifacts", "cancel"):
            reasons = {
                self.site.reason(command, name, token=self.red)
                for name in (job["name"], "tenants/blue/jobs/none", "tenants/red/jobs/none")
            }
            self.assertEqual(reasons, {"JOB_NOT_FOUND"})

    def test_the_python_client(self):
        stubs = self.site.folder / "stubs"
        stubs.mkdir()
        tool = ROOT / "client/python"
        write = "import pathlib, sys, build_wheel as b; b.write_stubs(pathlib.Path(sys.argv[1]))"
        python = [sys.executable, "-B", "-c"]
        subprocess.run([*python, write, stubs], check=True, env={**os.environ, "PYTHONPATH": tool})
        file = json.loads(self.site.job("blue", "steps=2").read_text())
        for key in ("model", "dataset"):
            file[key] = str(self.site.folder / "blue" / file[key])
        script = """
import json, os, sys
from snug_client import Client, SnugError
import hashlib, pathlib
with Client(sys.argv[1], token=sys.argv[2], tls_ca=os.environ["CA"]) as client:
    job = client.wait(client.submit(json.loads(sys.argv[3])).id)
    print(job.owner)
    names = [each.name for each in client.artifacts(job.name)]
    key = hashlib.sha256("\\n".join(names).encode()).hexdigest()[:12]
    target = pathlib.Path(sys.argv[4])
    left = target.with_name(f"{target.name}.part-{key}")  # Of a download that broke off.
    left.mkdir(mode=0o700)
    (left / "metrics.jsonl").write_bytes(b'{"not": "it"}')
    for file, each in zip(client.download(job.name, target), client.artifacts(job.name)):
        assert hashlib.sha256(file.read_bytes()).hexdigest() == each.sha256, file
    print(len(os.listdir(target)) > 2, left.exists())
with Client(sys.argv[1], tls_ca=os.environ["CA"]) as client:
    try:
        list(client.list())
    except SnugError as error:
        print(error.code, error.reason)
try:
    Client(sys.argv[1].replace("https", "http"))
except SnugError as error:
    print(error.code)
"""
        environment = {name: value for name, value in os.environ.items() if name != "SNUG_TOKEN"}
        environment |= {"PYTHONPATH": f"{stubs}:{tool}", "CA": str(self.site.authority.certificate)}
        words = [self.site.address(), self.user, json.dumps(file), self.site.folder / "python"]
        done = subprocess.run(
            [*python, script, *words], env=environment, capture_output=True, text=True, timeout=120
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        said = ["tenant:blue", "True False", "UNAUTHENTICATED NO_TOKEN", "INVALID_ARGUMENT"]
        self.assertEqual(done.stdout.splitlines(), said)

    def test_the_page_over_tls(self):
        for path in ("/", "/metrics", "/api/jobs", "/v1/fine_tuning/jobs"):
            self.assertEqual(self.site.page(path)[0], 401, path)
        job = self.submitted("steps=1")
        status, _, body = self.site.page("/api/jobs", self.viewer)
        self.assertEqual(status, 200)
        self.assertIn(job, body)
        self.assertNotIn(job, self.site.page("/api/jobs", self.red)[2])
        status, _, body = self.site.page("/v1/fine_tuning/jobs", self.user)
        self.assertIn(job, [each["id"] for each in json.loads(body)["data"]])
        # The metrics name the jobs of all tenants.
        self.assertEqual(self.site.page("/metrics", self.user)[0], 403)
        for token in (self.operator, self.site.token("red", "auditor")):
            self.assertIn("snug_build_info{", self.site.page("/metrics", token)[2])

    def test_the_link_of_a_page_over_tls(self):
        url = urllib.parse.urlsplit(self.site.ok("open", token=self.viewer)["url"])
        self.assertEqual((url.scheme, url.hostname), ("https", "127.0.0.1"))
        status, headers, _ = self.site.page(f"{url.path}?{url.query}")
        self.assertEqual(status, 303)
        self.assertIn("Secure", headers["Set-Cookie"].split("; "))
        cookie = headers["Set-Cookie"].split("; ")[0]
        self.assertEqual(self.site.page(headers["Location"], Cookie=cookie)[0], 200)

    # Of a certificate that is renewed, without a restart.
    def test_the_page_has_the_certificate_that_there_is(self):
        place = ("127.0.0.1", self.site.page_port())
        before = ssl.get_server_certificate(place)
        self.site.authority.issue("server", "/CN=server", "IP:127.0.0.1")
        self.assertNotEqual(ssl.get_server_certificate(place), before)
        self.assertEqual(self.site.page("/api/jobs", self.viewer)[0], 200)

    def test_nothing_is_served_without_tls(self):
        host, port = self.site.address().removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            answer = b""
            try:
                while part := plain.recv(4096):
                    answer += part
            except ConnectionError:
                pass
        self.assertNotIn(b"\0\0\0\4\1", answer)  # No HTTP/2 settings: a TLS alert, or nothing.
        command = [binary("snugd"), "--state-dir", self.site.folder / "other"]
        command += ["--socket", self.site.folder / "s", "--listen", "127.0.0.1:0"]
        for more, missing in (
            (["--tls-key", "k"], "listen 127.0.0.1:0: tls_cert"),
            (["--tls-cert", "c"], "listen 127.0.0.1:0: tls_key"),
            (["--tls-cert", "c", "--tls-key", "k", "--listen-http", ":1"], "is no HOST:PORT"),
        ):
            done = subprocess.run(
                list(map(str, [*command, *more])), capture_output=True, text=True, timeout=30
            )
            self.assertEqual(done.returncode, 64)
            self.assertIn(missing, done.stderr)
        plain = self.site.address().replace("https", "http")
        refused = self.site.daemon.run("--server", plain, "list", code=1).stderr
        self.assertIn("must be unix:PATH or https://", refused)

    # F-64
    def test_a_certificate_by_another_authority_is_refused_on_both_sides(self):
        other = Authority(self.site.folder, "other")
        started = time.monotonic()
        done = self.site.run("list", token=self.user, ca=other.certificate)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot reach a daemon at https://", done.stderr)
        self.assertLess(time.monotonic() - started, 30)
        cert, key = other.issue("mallory", "/CN=mallory", "URI:spiffe://test/ann")
        mine = ["--tls-cert", cert, "--tls-key", key]
        self.assertEqual(self.site.run(*mine, "list", number=1).returncode, 1)
        self.assertEqual(self.site.run("list", number=1, token=self.user).returncode, 1)

    # F-64
    def test_certificates_are_of_the_tenant_that_names_them(self):
        def words(name, subject, alternative=""):
            cert, key = self.site.authority.issue(name, subject, alternative)
            return ["--tls-cert", cert, "--tls-key", key]

        ann = words("ann", "/CN=anything", "URI:spiffe://test/ann")
        bob = words("bob", "/O=Test/CN=bob")
        eve = words("eve", "/O=Test/CN=bob", "URI:spiffe://test/eve")
        file = self.site.job("blue", "steps=1")
        name = self.site.ok(*ann, "submit", file, number=1)["id"]
        self.assertEqual(self.site.ok(*bob, "get", name, number=1)["id"], name)
        self.assertEqual(
            self.site.reason(*bob, "submit", "--no-check", file, number=1), "PERMISSION_DENIED"
        )
        self.assertEqual(self.site.reason(*eve, "list", number=1), "UNKNOWN_CERTIFICATE")
        self.site.ended(name, "SUCCEEDED", self.user)

    # F-65
    def test_tokens_let_in_while_they_are_valid(self):
        self.assertEqual(self.site.reason("list"), "NO_TOKEN")
        self.assertEqual(self.site.reason("list", token="snug_nobody"), "BAD_TOKEN")
        brief = self.site.token("blue", "viewer", "--expires", "2s")
        self.site.ok("list", token=brief)
        revoked = self.site.token("blue", "user")
        file = self.site.folder / "token"
        file.write_text(revoked + "\n")
        self.site.ok("--token-file", file, "list")
        self.site.daemon.run("token", "revoke", revoked.split("_")[1])
        self.assertEqual(self.site.reason("list", token=revoked), "TOKEN_REVOKED")
        time.sleep(2)
        self.assertEqual(self.site.reason("list", token=brief), "TOKEN_EXPIRED")
        listed = self.site.daemon.run("token", "list").stdout
        self.assertRegex(listed, rf"{revoked.split('_')[1]} +blue +user +revoked")
        self.assertRegex(listed, rf"{brief.split('_')[1]} +blue +viewer +expired")
        for token in (self.user, self.operator):
            self.assertEqual(self.site.reason("token", "list", token=token), "PERMISSION_DENIED")
        for word in ("--tenant", "nobody", "--role", "user"), ("--tenant", "blue", "--role", "x"):
            done = self.site.daemon.run("token", "create", *word, code=None)
            self.assertNotEqual(done.returncode, 0)

    def test_a_tenants_jobs_do_not_exist_for_another(self):
        name = self.submitted(ENDLESS.replace("100000", "900"))
        for command in (["get"], ["cancel"], ["logs"], ["watch"], ["delete"], ["update"]):
            more = ["priority=1"] if command == ["update"] else []
            self.assertEqual(
                self.site.reason(*command, name, *more, token=self.red), "JOB_NOT_FOUND", command
            )
        self.assertEqual(self.site.ok("list", token=self.red)["jobs"], [])
        self.assertIn(name, [job["id"] for job in self.site.ok("list", token=self.viewer)["jobs"]])
        self.assertEqual(
            self.site.reason("cancel", name, token=self.viewer), "PERMISSION_DENIED"
        )
        auditor = self.site.token("red", "auditor")
        self.assertIn(name, [job["id"] for job in self.site.ok("list", token=auditor)["jobs"]])
        self.assertEqual(self.site.ok("get", name, token=auditor)["id"], name)
        self.assertEqual(self.site.reason("cancel", name, token=auditor), "PERMISSION_DENIED")
        self.site.ok("cancel", name, token=self.operator)  # Of another tenant, and of all.
        self.site.ended(name, "CANCELLED", self.user)

    def test_files_lie_below_the_tenants_roots(self):
        blue = self.site.folder / "blue"
        (blue / "out.jsonl").symlink_to(self.site.folder / "red/train.jsonl")
        (blue / "models").symlink_to("../red")
        (blue / "in.jsonl").symlink_to("train.jsonl")
        for keys, field in (
            ({"dataset": str(self.site.folder / "red/train.jsonl")}, "dataset"),
            ({"dataset": "./../red/train.jsonl"}, "dataset"),
            ({"dataset": "./out.jsonl"}, "dataset"),
            ({"model": "./models/model"}, "model"),
            ({"model": str(self.site.daemon.jobs / "model")}, "model"),
        ):
            for words in (["submit"], ["submit", "--no-check"], ["plan"]):
                file = self.site.job("blue", "steps=1", **keys)
                done = self.site.run(*words, file, "--output", "json", token=self.user)
                self.assertEqual(done.returncode, 1, (words, keys))
                error = json.loads(done.stderr)["error"]
                self.assertEqual(error["field"], field)
                self.assertIn("that this daemon opens for tenant blue", error["message"])
        file = self.site.job("blue", "steps=1", dataset="./in.jsonl")
        name = self.site.ok("submit", file, token=self.user)["id"]
        self.site.ended(name, "SUCCEEDED", self.user)

    def test_quotas_of_jobs_and_steps_are_named(self):
        for _ in range(2):
            self.submitted(ENDLESS.replace("100000", "900"))
        file = self.site.job("blue", "steps=1")
        done = self.site.run("submit", "--no-check", file, "--output", "json", token=self.user)
        error = json.loads(done.stderr)["error"]
        self.assertEqual(error["reason"], "QUOTA_EXCEEDED")
        self.assertIn("quota.live_jobs: at most 2, this would be 3", error["message"])
        other = self.submitted("steps=1", "red", self.red)  # Whom that does not touch.
        self.site.ended(other, "SUCCEEDED", self.red)
        for job in self.site.ok("list", token=self.user)["jobs"]:
            self.site.ok("cancel", job["id"], token=self.user)
            self.site.ended(job["id"], "CANCELLED", self.user)
        long = self.site.job("blue", "steps=1", training={"max_steps": 1001})
        done = self.site.run("submit", "--no-check", long, token=self.user)
        self.assertIn("quota.max_steps: at most 1000, this would be 1001", done.stderr)
        epochs = self.site.job("blue", "steps=1", training={"num_train_epochs": 1})
        done = self.site.run("submit", "--no-check", epochs, token=self.user)
        self.assertIn("training.max_steps", done.stderr)

    def test_what_changes_something_is_in_the_audit_log(self):
        name = self.submitted("steps=1")
        self.site.ended(name, "SUCCEEDED", self.user)
        self.site.reason("delete", name, token=self.red)
        self.site.reason("delete", name, token=self.viewer)
        self.site.ok("delete", name, token=self.user)
        lines = [line for line in self.audit() if line["resource"].endswith(f"jobs/{name}")]
        seen = [(line["method"], line["principal"], line["status"]) for line in lines]
        self.assertEqual(
            seen,
            [
                ("CreateJob", "tenant:blue", "OK"),
                ("DeleteJob", "tenant:red", "NOT_FOUND"),
                ("DeleteJob", "tenant:blue", "PERMISSION_DENIED"),
                ("DeleteJob", "tenant:blue", "OK"),
            ],
        )
        self.assertEqual(lines[0]["credential"], f"token:{self.user.split('_')[1]}")
        self.assertRegex(lines[0]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
        created = [line for line in self.audit() if line["method"] == "CreateToken"]
        self.assertIn(f"tokens/{self.user.split('_')[1]}", [line["resource"] for line in created])
        for path in (self.site.daemon.state / "audit.log", self.site.daemon.log):
            for token in (self.user, self.viewer, self.red, self.operator):
                self.assertNotIn(token.split("_")[2], path.read_text())

    def rerun(self, name, token, job_id):
        """RerunJob of that job under an id of one's own choice."""
        with self.channel(token) as to:
            rerun = to.unary_unary("/snug.v1.FineTuning/RerunJob")
            request = b"\x0a" + bytes([len(name)]) + name.encode()
            rerun(request + b"\x12" + bytes([len(job_id)]) + job_id.encode(), timeout=60)

    # F-58
    def test_two_tenants_choose_one_id(self):
        callers = (("blue", self.user), ("red", self.red))
        for tenant, token in callers:
            name = self.submitted("steps=1", tenant, token)
            self.site.ended(name, "SUCCEEDED", token)
            self.rerun(name, token, "same-id")
            with self.assertRaises(grpc.RpcError) as refused:
                self.rerun(name, token, "same-id")
            self.assertEqual(refused.exception.code(), grpc.StatusCode.ALREADY_EXISTS)
            self.assertIn("same-id", refused.exception.details())
        for tenant, token in callers:
            self.site.ended("same-id", "SUCCEEDED", token)
            job = self.site.ok("get", "same-id", token=token)
            self.assertEqual((job["id"], job["key"]), ("same-id", f"same-id.{tenant}"))
            self.assertEqual(job["name"], f"tenants/{tenant}/jobs/same-id")
            folder = self.site.folder / f"out-{tenant}"
            self.site.run("download", "same-id", folder, token=token)
            self.assertTrue((folder / "adapter_config.json").exists())
        # Who sees both and has neither is asked which one he means; a name says it.
        asked = self.site.daemon.run("get", "same-id", code=1)
        self.assertIn("tenants/TENANT/jobs/same-id", asked.stderr)
        red = self.site.ok("get", "tenants/red/jobs/same-id", token=self.operator)
        self.assertEqual(red["owner"], "tenant:red")
        self.site.ok("delete", "same-id", token=self.user)
        self.assertEqual(self.site.reason("get", "same-id", token=self.user), "JOB_NOT_FOUND")
        self.assertEqual(self.site.ok("get", "same-id", token=self.red)["state"], "SUCCEEDED")

    # F-51
    def test_one_address_cannot_have_all_connections(self):
        host, port = self.site.address().removeprefix("https://").split(":")
        crowd = [socket.create_connection((host, int(port)), timeout=30) for _ in range(230)]
        self.addCleanup(lambda: [one.close() for one in crowd])

        def closed():
            gone = 0
            for one in crowd:
                one.setblocking(False)
                try:
                    gone += one.recv(1) == b""
                except BlockingIOError:
                    pass
                except ConnectionError:
                    gone += 1
            return gone

        wait_for(lambda: closed() >= 20, "connections beyond the limit to be closed", 20)
        self.site.daemon.run("list")  # The socket is none of them.
        # F-51: those that never shake hands are not waited for.
        wait_for(lambda: closed() == len(crowd), "silent connections to be closed", 40)

    def test_a_caller_too_many_times_a_second_is_told(self):
        token = self.site.token("blue", "viewer")
        with self.channel(token) as to:
            ask = to.unary_unary("/snug.v1.FineTuning/GetServerInfo")
            codes = [call.code() for call in [ask.future(b"", timeout=60) for _ in range(1000)]]
        self.assertEqual(set(codes), {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED})
        self.assertGreaterEqual(codes.count(grpc.StatusCode.OK), 200)
        self.site.ok("list", token=self.viewer)  # Another's calls are his own.


class ShareTest(unittest.TestCase):
    """The devices' bytes of one tenant's share."""

    def test_a_tenants_jobs_wait_for_its_own_share_and_hold_nobody_up(self):
        site = Site(share="16MiB")
        self.addCleanup(site.close)
        red, blue = site.token("red", "user"), site.token("blue", "user")
        long = "steps=100 step_ms=3000"
        first = site.ok("submit", site.job("red", long), token=red)["id"]
        running = site.ended(first, "RUNNING", red)
        second = site.ok("submit", site.job("red", long), token=red)["id"]
        site.ended(second, "QUEUED", red)
        share = "of its tenant's share, "  # Known from its first round on.
        wait_for(
            lambda: share in site.ok("get", second, token=red)["reason"], "it waits for its share"
        )
        self.assertLessEqual(int(running["memory"]["budget_bytes"]), 16 << 20)
        other = site.ok("submit", site.job("blue", "steps=2"), token=blue)["id"]
        site.ended(other, "SUCCEEDED", blue)
        site.ok("cancel", first, token=red)
        site.ended(second, "RUNNING", red)
        site.ok("cancel", second, token=red)

    def test_a_job_that_needs_more_than_the_share_is_refused(self):
        site = Site(share="1MiB")
        self.addCleanup(site.close)
        red = site.token("red", "user")
        name = site.ok("submit", site.job("red", "steps=1"), token=red)["id"]
        error = site.ended(name, "FAILED", red)["error"]
        self.assertEqual(error["reason"], "QUOTA_EXCEEDED")
        self.assertIn("quota.device_bytes: at most 1048576", error["message"])

    def test_a_tenant_has_so_many_bytes_on_the_disk(self):
        site = Site(stored="1MiB")
        self.addCleanup(site.close)
        red = site.token("red", "user")
        sent = []
        for letter in "abc":
            file = site.folder / f"{letter}.jsonl"
            file.write_text('{"text": "' + letter * 400_000 + '"}\n')
            sent.append(file)
        kept = [site.run("files", "upload", file, token=red).stdout.strip() for file in sent[:2]]
        error = site.run("files", "upload", sent[2], "-o", "json", token=red)
        self.assertEqual(json.loads(error.stderr)["error"]["reason"], "QUOTA_EXCEEDED")
        self.assertIn("quota.stored_bytes: at most 1048576", error.stderr)
        site.ok("files", "delete", kept[0], token=red)
        wait_for(
            lambda: site.run("files", "upload", sent[2], token=red).returncode == 0,
            "what was deleted to count no more",
        )
        self.assertEqual(len(site.ok("files", "list", token=red)["files"]), 2)


if __name__ == "__main__":
    unittest.main()
