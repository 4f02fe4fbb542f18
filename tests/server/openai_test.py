"""The stock client of OpenAI's API runs jobs here; what that API has and this one has not is
refused in its own words, by the parameter's name."""

import hashlib
import json
import socket
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import openai

from tests.harness.fake_daemon import FakeDaemon

ROOTS = f"roots: ['{tempfile.gettempdir()}']"  # Below which the tests' folders are.
TENANTS = f"tenants:\n  - {{name: blue, {ROOTS}}}\n  - {{name: red, {ROOTS}}}\n"
ROWS = "".join(f'{{"input_ids": [{i + 3}, 4, 5], "labels": [{i + 3}, 4, 5]}}\n' for i in range(20))
LONG = "steps=100000 step_ms=50"


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon(settings=TENANTS)
        cls.addClassCleanup(cls.daemon.close)
        port = cls.daemon.json("open")["url"].split(":")[2].split("/")[0]
        cls.url = f"http://127.0.0.1:{port}/v1"
        cls.blue, cls.red = cls.client("blue"), cls.client("red")
        cls.model = str(cls.daemon.jobs / "model")

    @classmethod
    def client(cls, tenant, role="user"):
        token = cls.daemon.json("token", "create", "--tenant", tenant, "--role", role)["secret"]
        return openai.OpenAI(base_url=cls.url, api_key=token, max_retries=0, timeout=20)

    def upload(self, name="rows.jsonl", text=ROWS):
        return self.blue.files.create(file=(name, text.encode()), purpose="fine-tune")

    def create(self, script, **more):
        """A job whose fake worker follows the script."""
        more.setdefault("training_file", self.upload().id)
        jobs = self.blue.fine_tuning.jobs
        return jobs.create(**{"model": self.model, "suffix": script, **more})

    def ended(self, job, *states):
        """The job when it is in one of the states."""
        for _ in range(300):
            now = self.blue.fine_tuning.jobs.retrieve(job.id)
            if now.status in states:
                return now
            time.sleep(0.1)
        self.fail(f"{now.status}: {now.error}")

    def refused(self, call, *args, **named):
        """The error's (status, param, code)."""
        with self.assertRaises(openai.APIStatusError) as caught:
            call(*args, **named)
        error = caught.exception
        self.assertTrue(error.message)
        return error.status_code, error.param, error.code

    def test_a_job_from_upload_to_model(self):
        file = self.upload()
        self.assertEqual((file.object, file.filename), ("file", "rows.jsonl"))
        self.assertEqual((file.bytes, file.purpose), (len(ROWS), "fine-tune"))
        numbers = {"n_epochs": 2, "batch_size": 4, "learning_rate_multiplier": "auto"}
        method = {"type": "supervised", "supervised": {"hyperparameters": numbers}}
        job = self.create(
            "steps=12 step_ms=20",
            training_file=file.id,
            method=method,
            seed=7,
            metadata={"team": "blue"},
        )
        self.assertEqual(job.object, "fine_tuning.job")
        self.assertEqual((job.training_file, job.seed), (file.id, 7))
        self.assertEqual(job.method.supervised.hyperparameters.n_epochs, 2)
        self.assertEqual(job.metadata, {"team": "blue"})
        spec = self.daemon.job(job.id)["spec"]
        self.assertEqual(spec["training"]["per_device_train_batch_size"], 4)
        done = self.ended(job, "succeeded", "failed")
        self.assertEqual(done.status, "succeeded", done.error)
        self.assertEqual(done.fine_tuned_model, job.id)
        self.assertGreaterEqual(done.finished_at, done.created_at)
        events = self.blue.fine_tuning.jobs.list_events(job.id, limit=100).data
        self.assertEqual(events[-1].message, f"Created fine-tuning job: {job.id}")
        steps = [event for event in events if event.type == "metrics"]
        self.assertEqual(steps[0].data["step"], 12)
        self.assertIn("train_loss", steps[0].data)

    def test_lists_go_page_by_page(self):
        made = [self.create("steps=1").id for _ in range(5)]
        seen = [job.id for job in self.blue.fine_tuning.jobs.list(limit=2)]  # All of the pages.
        self.assertEqual([job for job in seen if job in made], made[::-1])
        page = self.blue.fine_tuning.jobs.list(after=made[4], limit=2)
        self.assertEqual([job.id for job in page.data], [made[3], made[2]])
        self.assertTrue(page.has_more)
        self.assertEqual(
            self.refused(self.blue.fine_tuning.jobs.list, limit=0)[:2],
            (400, "limit"),
        )

    def test_cancel_pause_resume_and_checkpoints(self):
        job = self.create(LONG)
        self.ended(job, "running")
        self.blue.fine_tuning.jobs.pause(job.id)
        self.ended(job, "paused")
        found = self.blue.fine_tuning.jobs.checkpoints.list(job.id).data
        self.assertEqual(found[0].fine_tuning_job_id, job.id)
        self.assertGreater(found[0].step_number, 0)
        self.blue.fine_tuning.jobs.resume(job.id)
        self.ended(job, "running")
        self.assertEqual(self.refused(self.blue.files.delete, job.training_file)[2], "FILE_IN_USE")
        self.blue.fine_tuning.jobs.cancel(job.id)
        self.ended(job, "cancelled")

    def test_files_are_their_tenants(self):
        file = self.upload("mine.jsonl")
        self.assertIn(file.id, [found.id for found in self.blue.files.list()])
        self.assertEqual(list(self.red.files.list()), [])
        for call in (self.red.files.retrieve, self.red.files.delete):
            self.assertEqual(self.refused(call, file.id)[0], 404)
        create = self.red.fine_tuning.jobs.create
        self.assertEqual(
            self.refused(create, model=self.model, training_file=file.id)[:2],
            (400, "training_file"),
        )
        self.assertTrue(self.blue.files.delete(file.id).deleted)
        self.assertEqual(self.refused(self.blue.files.retrieve, file.id)[0], 404)

    def test_the_command_sends_files_as_well(self):
        rows = self.daemon.jobs / "sent.jsonl"
        rows.write_text(ROWS)
        sent = self.daemon.run("files", "upload", rows).stdout.strip()
        self.assertRegex(sent, "^file-[0-9a-f]{24}$")
        self.assertEqual(self.daemon.run("files", "upload", rows).stdout.strip(), sent)
        listed = self.daemon.run("files", "list").stdout.splitlines()
        self.assertTrue(any(line.split()[:2] == [sent, "sent.jsonl"] for line in listed), listed)
        job = self.daemon.submit_script("steps=1", f"dataset={sent}")
        self.daemon.wait_state(job, "SUCCEEDED")
        missing = self.daemon.run(
            "submit", self.daemon.job_file(), "dataset=file-000000000000000000000000", code=1
        )
        self.assertIn("dataset: no file", missing.stderr)
        self.daemon.run("files", "delete", sent)
        self.assertNotIn(sent, self.daemon.run("files", "list").stdout)

    # F-49
    def test_an_upload_goes_on_where_it_broke_off(self):
        rows = self.daemon.jobs / "long.jsonl"
        rows.write_text(ROWS * 100)
        content = rows.read_bytes()
        folder = next((self.daemon.state / "uploads").glob("uid:*"), None)
        if folder is None:
            self.daemon.run("files", "upload", self.daemon.jobs / "train.jsonl")
            folder = next((self.daemon.state / "uploads").glob("uid:*"))
        part = folder / f"part-{hashlib.sha256(content).hexdigest()}"
        part.write_bytes(content[:50])
        sent = self.daemon.run("files", "upload", rows).stdout.strip()
        self.assertEqual((folder / sent / "dataset.jsonl").read_bytes(), content)
        part.write_bytes(b"something else")
        (folder / sent).rename(folder.parent / "aside")
        wrong = self.daemon.run("files", "upload", rows, code=1)
        self.assertIn("SHA-256", wrong.stderr)
        self.assertFalse(part.exists())

    def test_jobs_are_their_tenants(self):
        job = self.create(LONG)
        jobs = self.red.fine_tuning.jobs
        for call in (jobs.retrieve, jobs.cancel, jobs.list_events, jobs.checkpoints.list):
            self.assertEqual(self.refused(call, job.id)[0], 404)
        self.blue.fine_tuning.jobs.cancel(job.id)

    def test_what_has_no_place_is_refused_by_name(self):
        file = self.upload().id
        for param, more in {
            "method.type": {"method": {"type": "dpo"}},
            "integrations": {"integrations": [{"type": "wandb", "wandb": {"project": "p"}}]},
            "hyperparameters.batch_size": {"hyperparameters": {"batch_size": 0.5}},
            "hyperparameters.n_layers": {"hyperparameters": {"n_layers": 2}},
            "hyperparameters.n_epochs": {"hyperparameters": {"n_epochs": -1}},
            "training_file": {"training_file": "file-000000000000000000000000"},
            "seed": {"seed": -1},
            "hyperparameters": {"hyperparameters": {}, "method": {"type": "supervised"}},
            "metadata": {"metadata": {"bad key!": "x"}},
        }.items():
            with self.subTest(param):
                call = {"model": self.model, "training_file": file, **more}
                status, named, _ = self.refused(self.blue.fine_tuning.jobs.create, **call)
                self.assertEqual((status, named), (400, param))
        upload = self.blue.files.create
        self.assertEqual(
            self.refused(upload, file=("a.jsonl", b"{}"), purpose="assistants")[1], "purpose"
        )
        self.assertEqual(self.refused(self.blue.files.content, file)[0], 404)
        self.assertEqual(self.refused(self.blue.models.list)[0], 404)

    def test_a_dataset_that_is_none_fails_the_job_with_its_reason(self):
        job = self.create("steps=1", training_file=self.upload("bad.jsonl", "no json\n").id)
        failed = self.ended(job, "failed")
        self.assertEqual(failed.error.param, "training_file")
        self.assertTrue(failed.error.message)
        last = self.blue.fine_tuning.jobs.list_events(job.id).data[0]
        self.assertEqual(last.level, "error")

    def test_without_a_token_nothing_is_answered(self):
        for secret in ("", "snugt_0", "a b"):
            request = urllib.request.Request(
                f"{self.url}/fine_tuning/jobs", headers={"Authorization": f"Bearer {secret}"}
            )
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=10)
            self.assertEqual(caught.exception.code, 401)
            error = json.loads(caught.exception.read())["error"]
            self.assertEqual(error["type"], "authentication_error")
        viewer = self.client("blue", "viewer")
        self.assertEqual(self.refused(viewer.files.list)[0], 403)

    def test_an_upload_that_breaks_off_leaves_nothing(self):
        host, port = self.url.split("/")[2].split(":")
        head = (
            "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n"
            f"Authorization: Bearer {self.blue.api_key}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
            'Content-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n--b\r\n'
            'Content-Disposition: form-data; name="file"; filename="half.jsonl"\r\n\r\n'
        )
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(head.encode() + b"x" * 1000)
        time.sleep(1)
        self.assertNotIn("half.jsonl", [file.filename for file in self.blue.files.list()])
        left = list((self.daemon.state / "uploads/tenant:blue").glob("part-*"))
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
