"""docs/api.md names each call of the service, with its fields, its role and its errors as the
schema and the daemon have them; and what it shows for grpcurl and for Python is one request.

Examples run against stubs that note what they are given."""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUBS = tempfile.TemporaryDirectory(prefix="snug-stubs-")
sys.path[:0] = [STUBS.name, str(ROOT / "client/python")]

import build_wheel  # noqa: E402

build_wheel.write_stubs(pathlib.Path(STUBS.name))

from google.api import field_behavior_pb2  # noqa: E402
from google.protobuf import json_format, message_factory  # noqa: E402
from snug.v1 import job_pb2, service_pb2  # noqa: E402

from snug_client import Client  # noqa: E402

PAGE = (ROOT / "docs/api.md").read_text(encoding="utf-8")
REQUIRED = field_behavior_pb2.REQUIRED
SERVICE = service_pb2.DESCRIPTOR.services_by_name["FineTuning"]
SCHEMA = (ROOT / "proto/snug/v1/service.proto").read_text(encoding="utf-8")
SIGNATURES = {
    match[1]: match[0].removeprefix("rpc ").removesuffix(";")
    for match in re.finditer(r"rpc (\w+)\([\w ]+\) returns \([\w ]+\);", SCHEMA)
}
SECTIONS = {
    part.split("\n", 1)[0]: part.split("\n## ")[0] for part in re.split(r"(?m)^### ", PAGE)[1:]
}


def words(text):
    """What is in backticks."""
    return re.findall(r"`([^`]+)`", text)


def block(section, language):
    """The code of the one block in that language."""
    (found,) = re.findall(rf"(?s)```{language}\n(.*?)\n```", section)
    return found


def part(section, begin, end):
    """What stands between two words of a section."""
    return re.search(rf"(?s){begin}(.*?){end}", section)[1]


class Answers:
    """Of a stream: one message, and its end."""

    def __init__(self, message):
        self.left = [message]

    def __iter__(self):
        return iter(self.left)

    def cancel(self):
        self.left = []


class NotingStub:
    """A stub of the service whose calls note their requests and give an empty reply."""

    def __init__(self):
        self.calls = []
        for method in SERVICE.methods:
            setattr(self, method.name, self._call(method))

    def _call(self, method):
        def call(request):
            sent = [request] if hasattr(request, "DESCRIPTOR") else list(request)
            self.calls.append((method.name, sent))
            reply = message_factory.GetMessageClass(method.output_type)()
            if method.name == "WatchJob":
                reply.state = job_pb2.Job.STATE_SUCCEEDED
            if method.name == "GetJobLogs":
                reply.text = b'{"global_step": 1}\n'
            if method.name == "DownloadJob":
                reply.path = "file"
            streams = "returns (stream" in SIGNATURES[method.name]
            return Answers(reply) if streams else reply

        return call


def shown_requests(section, method):
    """The messages of the line for grpcurl."""
    name, text = re.fullmatch(r"snug_call (\w+) '(.*)'", block(section, "")).groups()
    assert name == method.name, name
    found = []
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        text = text[end:].lstrip()
        request = message_factory.GetMessageClass(method.input_type)()
        found.append(json_format.ParseDict(value, request))
    return found


def python_calls(code):
    """What an example of Python sends, run behind the lines that the page begins with."""
    noting = NotingStub()
    begin = re.search(r"(?s)```python\n(.*?)\n```", PAGE)[1]
    names = {}
    exec(begin, names)
    names["stub"] = names["client"]._stub = noting
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            exec(code, {**names, "print": lambda *_, **__: None})
        finally:
            os.chdir(before)
    for _, requests in noting.calls:
        for request in requests:
            if type(request) is service_pb2.CreateJobRequest:
                request.request_id = ""  # The client's own, another each time.
    return noting.calls


def behaviour(field):
    """What the schema says of it."""
    return field.GetOptions().Extensions[field_behavior_pb2.field_behavior]


def each_call():
    """Each call with its section."""
    for method in SERVICE.methods:
        yield method, SECTIONS[method.name]


class ApiPageTest(unittest.TestCase):
    def test_each_call_has_a_section_and_nothing_else_has(self):
        self.assertEqual(sorted(SECTIONS), sorted(method.name for method in SERVICE.methods))
        self.assertEqual(len(re.findall(r"(?m)^### ", PAGE)), len(SERVICE.methods))

    def test_signatures_are_those_of_the_schema(self):
        for method, section in each_call():
            self.assertEqual(words(section)[0], SIGNATURES[method.name], method.name)

    def test_roles_are_those_that_the_daemon_asks_for(self):
        rules = (ROOT / "server/api/authorise.cc").read_text(encoding="utf-8")
        ranks = dict(re.findall(r'\{"(\w+)", Rank::k(\w+),', rules))
        for method, section in each_call():
            self.assertEqual(words(section)[1], ranks[method.name].lower(), method.name)

    def test_tables_have_all_fields_of_requests(self):
        for method, section in each_call():
            named = re.findall(r"(?m)^\| `(\w+)` \|", section)
            self.assertEqual(sorted(named), sorted(method.input_type.fields_by_name), method.name)

    def test_fields_that_are_needed_are_said_to_be(self):
        for method, section in each_call():
            said = re.findall(r"(?m)^\| `(\w+)` \| needed: ", section)
            fields = method.input_type.fields
            needed = [field.name for field in fields if REQUIRED in behaviour(field)]
            self.assertEqual(sorted(said), sorted(needed), method.name)

    def test_replies_have_the_fields_that_are_named(self):
        for method, section in each_call():
            named = words(part(section, "\nGives ", r"Errors:\s"))
            self.assertTrue(named, method.name)
            if named != [method.output_type.name]:
                known = set(method.output_type.fields_by_name)
                self.assertEqual(set(named) - known, set(), method.name)

    def test_the_job_has_the_fields_that_are_named(self):
        rows = re.findall(r"(?m)^\| (`.*?`) \|", part(PAGE, "\n## The job\n", "\n## "))
        named = [name for row in rows for name in words(row)]
        self.assertGreater(len(named), 15)
        self.assertEqual(set(named) - set(job_pb2.Job.DESCRIPTOR.fields_by_name), set())

    def test_errors_are_those_of_the_daemon(self):
        table = part(PAGE, "\n## Errors\n", "\n## ")
        listed = {name for row in re.findall(r"(?m)^\| (`.*?`) \|", table) for name in words(row)}
        files = [*(ROOT / "server").rglob("*.cc"), *(ROOT / "server").rglob("*.h")]
        source = "".join(file.read_text(encoding="utf-8") for file in files)
        self.assertEqual([name for name in sorted(listed) if f'"{name}"' not in source], [])
        for method, section in each_call():
            named = set(words(part(section, r"Errors:\s", "\n```")))
            self.assertEqual(named - listed, set(), method.name)

    def test_grpcurl_and_python_send_the_same_request(self):
        for method, section in each_call():
            calls = python_calls(block(section, "python"))
            self.assertEqual(calls, [(method.name, shown_requests(section, method))])

    def test_methods_of_the_client_are_called_where_there_is_one(self):
        own = {name for name in vars(Client) if not name.startswith("_")} - {"close", "wait"}
        shown = set(re.findall(r"\bclient\.(\w+)\(", PAGE))
        self.assertEqual(shown, own)


if __name__ == "__main__":
    sys.exit(unittest.main())
