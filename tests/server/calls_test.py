"""Calls that come many times, over restarts, half, or as bytes that are no request, by the numbers
of the faults. The worker trains nothing.
"""

import base64
import contextlib
import hashlib
import threading
import time
import unittest
import uuid

import grpc
from tests.harness import api
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon

NO_UTF8 = b"\xff\xfe"
ENDED = ("STATE_SUCCEEDED", "STATE_FAILED", "STATE_CANCELLED")


def tagged(number, content):
    """A field of bytes, in protobuf's encoding; both are short."""
    key = number << 3 | 2
    head = bytes([key]) if key < 0x80 else bytes([key & 0x7F | 0x80, key >> 7])
    return head + bytes([len(content)]) + content


def bad_strings(message, depth=3):
    """Requests of this type with a string that is no UTF-8: (field's path, bytes)."""
    for field in message.fields:
        if field.type == field.TYPE_STRING:
            yield field.name, tagged(field.number, NO_UTF8)
        elif field.type == field.TYPE_MESSAGE and depth > 1:
            for path, content in bad_strings(field.message_type, depth - 1):
                yield f"{field.name}.{path}", tagged(field.number, content)


class CallsTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon()
        self.addCleanup(self.daemon.close)
        self.channel = self.dial()

    def dial(self):
        channel = api.dial(self.daemon.socket)
        self.addCleanup(channel.close)
        return channel

    # F-55: each method of the schema, and each string in a request.
    def test_f55_bytes_that_are_no_request_on_every_method(self):
        strings = 0
        for name, method in api.methods().items():
            for content in (b"\x0a\xff\xff\xff\xff", b"\xff" * 100, b"\x0b\x0b\x0b", b"\x07"):
                self.assert_undecodable(name, content, content)
            for path, content in bad_strings(method.input_type):
                strings += 1
                self.assert_undecodable(name, content, path)
        self.assertGreater(strings, 100)
        self.assertGreaterEqual(len(api.methods()), 35)

    def assert_undecodable(self, name, content, what):
        code, details = api.refusal(self.channel, name, content)
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, (name, what))
        self.assertIn(b"google.rpc.BadRequest", details, (name, what))

    def create(self, channel, key, script="steps=1"):
        """The job's id, or the code that it is refused with."""
        fields = {"spec": api.spec_of(self.daemon, script), "request_id": key}
        try:
            return api.call(channel, "CreateJob", **fields)["id"]
        except grpc.RpcError as error:
            return error.code()

    # F-57: 100 at once, again after the daemon was killed, and then with another body.
    def test_f57_one_request_a_hundred_times(self):
        key, answers = str(uuid.uuid4()), []
        channels = [self.dial() for _ in range(10)]
        at_once = threading.Barrier(100)

        def ask(channel):
            at_once.wait()
            answers.append(self.create(channel, key))

        threads = [threading.Thread(target=ask, args=(channels[i % 10],)) for i in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), 100)
        self.assertEqual(len(set(answers)), 1, set(answers))
        self.assertIsInstance(answers[0], str)
        self.daemon.restart()
        channel = self.dial()
        self.assertEqual(self.create(channel, key), answers[0])
        other = self.create(channel, key, "steps=2")
        self.assertEqual(other, grpc.StatusCode.ALREADY_EXISTS)
        self.assertEqual(len(self.daemon.json("list", "--all")["jobs"]), 1)
        self.daemon.wait_state(answers[0], "SUCCEEDED")

    # F-57: the daemon is killed while they come; who asks again gets the one that there is.
    def test_f57_one_request_over_a_kill(self):
        for delay in (0.0, 0.005, 0.02, 0.05):
            key, answers = str(uuid.uuid4()), []
            channel = self.dial()
            asking = [
                threading.Thread(target=lambda: answers.append(self.create(channel, key)))
                for _ in range(20)
            ]
            for thread in asking:
                thread.start()
            time.sleep(delay)
            self.daemon.restart()
            for thread in asking:
                thread.join()
            answers.append(self.create(self.dial(), key))
            ids = {answer for answer in answers if isinstance(answer, str)}
            self.assertEqual(len(ids), 1, answers)
        self.assertEqual(len(self.daemon.json("list", "--all")["jobs"]), 4)

    # F-62: whoever watches again after each kill sees the same job, and its end.
    def test_f62_watchers_go_on_after_each_kill(self):
        name = self.daemon.submit_script("steps=100 step_ms=30")
        self.daemon.wait_step(name, 1)
        seen = [[] for _ in range(5)]

        def watch(into):
            while not into or into[-1]["state"] not in ENDED:
                with contextlib.suppress(grpc.RpcError), api.dial(self.daemon.socket) as channel:
                    for job in api.follow(channel, "WatchJob", id=name):
                        into.append(job)
                time.sleep(0.05)

        threads = [threading.Thread(target=watch, args=(into,), daemon=True) for into in seen]
        for thread in threads:
            thread.start()
        for _ in range(3):
            beyond = int(self.daemon.job(name)["progress"]["global_step"])
            wait_for(lambda: all(self.last_step(into) > beyond for into in seen), "watchers", 60)
            self.daemon.restart()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        for into in seen:
            self.assertEqual(into[-1]["state"], "STATE_SUCCEEDED")
            self.assertEqual(self.last_step(into), 100)
            self.assertEqual({job["epoch"] for job in into}, {1})
            times = [job["update_time"] for job in into if "update_time" in job]
            self.assertEqual(times, sorted(times))

    @staticmethod
    def last_step(jobs):
        return int(jobs[-1].get("progress", {}).get("global_step", 0)) if jobs else -1

    # F-63: tampered in each of its characters, of another filter, of another list, of a daemon that
    # is no more.
    def test_f63_page_tokens_that_are_not_this_lists(self):
        for _ in range(5):
            self.daemon.submit_script("steps=1")
        first = api.call(self.channel, "ListJobs", page_size=2, all=True)
        token = first["next_page_token"]
        rest = api.call(self.channel, "ListJobs", page_size=5, all=True, page_token=token)
        self.assertEqual(len(first["jobs"] + rest["jobs"]), 5)
        refused = [token[:-4], token + "AAAA", "!", "A" * 100, token.swapcase(), token * 1000]
        for i in range(len(token)):
            other = "B" if token[i] == "A" else "A"
            refused.append(token[:i] + other + token[i + 1 :])
        plain = base64.urlsafe_b64decode(token + "==")
        for bit in range(8 * len(plain)):
            forged = bytearray(plain)
            forged[bit // 8] ^= 1 << bit % 8
            refused.append(base64.urlsafe_b64encode(forged).decode())
        for bad in refused:
            if self.means(bad) != self.means(token):
                self.assert_bad_token("ListJobs", all=True, page_token=bad)
        self.assert_bad_token("ListJobs", all=False, page_token=token)
        self.assert_bad_token("ListJobs", all=True, order_by="create_time", page_token=token)
        self.assert_bad_token("ListJobs", all=True, labels={"a": "b"}, page_token=token)
        self.assert_bad_token("ListTokens", page_token=token)
        self.assert_bad_token("ListFiles", page_token=token)
        self.daemon.restart()
        self.channel = self.dial()
        self.assert_bad_token("ListJobs", all=True, page_token=token)

    @staticmethod
    def means(token):
        """What base64 makes of it; its last character has bits that say nothing."""
        with contextlib.suppress(ValueError):
            return base64.b64decode(token + "=" * (-len(token) % 4), "-_", validate=True)
        return None

    def assert_bad_token(self, method, **fields):
        code, details = api.refusal(self.channel, method, api.request(method, **fields))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, (method, fields))
        self.assertIn(b"page_token", details)

    def parts(self):
        """Uploads below the state folder that are not whole."""
        return list((self.daemon.state / "uploads").glob("*/part-*"))

    # F-49: the client is killed at each tenth of an upload whose hash it has said, and goes on.
    def test_f49_uploads_that_break_off_at_each_tenth(self):
        content = b"".join(b'{"input_ids": [%d, 4, 5]}\n' % i for i in range(40_000))
        hashed = hashlib.sha256(content).hexdigest()
        header = {"filename": "rows.jsonl", "sha256": hashed}
        sent = 0
        for tenth in range(1, 10):
            until = len(content) * tenth // 10
            self.break_off({**header, "offset": str(sent)}, content[sent:until])
            sent = self.received(hashed, until)
        self.assertEqual(api.call(self.channel, "ListFiles").get("files", []), [])
        last = api.request(
            "UploadFile",
            header={**header, "offset": str(sent)},
            content=base64.b64encode(content[sent:]).decode(),
            last=True,
        )
        answer = api.raw(self.channel, "UploadFile")(iter([last]), timeout=60)
        file = api.answer("UploadFile", answer)
        self.assertEqual((file["sha256"], int(file["bytes"])), (hashed, len(content)))
        self.assertEqual(self.parts(), [])
        kept = self.daemon.state.glob(f"uploads/*/{file['id']}/dataset.jsonl")
        self.assertEqual([path.read_bytes() for path in kept], [content])

    # F-49: of one whose hash nobody has said nothing is left.
    def test_f49_uploads_without_a_hash_leave_nothing(self):
        content = b'{"input_ids": [3, 4, 5]}\n' * 40_000
        for tenth in range(1, 10):
            self.break_off({"filename": "rows.jsonl"}, content[: len(content) * tenth // 10])
        wait_for(lambda: not self.parts(), "what broke off to go", 60)
        self.assertEqual(api.call(self.channel, "ListFiles").get("files", []), [])

    def received(self, hashed, until):
        """How much of it is there, once that is as much as was sent."""

        def there():
            said = api.call(self.channel, "GetUpload", sha256=hashed)
            return int(said.get("received_bytes", 0)) >= until and until

        return wait_for(there, f"{until} bytes to be there", 60)

    def break_off(self, header, content):
        """Sends that much in chunks, and hangs up when the daemon has it."""
        chunks = [content[at : at + 100_000] for at in range(0, len(content), 100_000)]
        all_sent, hung_up = threading.Event(), threading.Event()

        def requests():
            for i, chunk in enumerate(chunks):
                fields = {"content": base64.b64encode(chunk).decode()}
                if i == 0:
                    fields["header"] = header
                yield api.request("UploadFile", **fields)
            all_sent.set()
            hung_up.wait(120)  # The end never comes.

        channel = self.dial()
        upload = api.raw(channel, "UploadFile").future(requests(), timeout=120)
        self.assertTrue(all_sent.wait(60))
        at = int(header.get("offset", 0))
        wait_for(
            lambda: any(part.stat().st_size >= at + len(content) for part in self.parts()),
            "the daemon to have it",
            60,
        )
        upload.cancel()
        channel.close()
        hung_up.set()


if __name__ == "__main__":
    unittest.main()
