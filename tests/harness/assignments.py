"""A worker started by hand, without a daemon: the assignment of a finished job, with a few fields
changed."""

import json
import re
import subprocess

from tests.harness.binaries import ROOT, worker_binary

NAME = "assignment.binpb"


def _protoc(what, content):
    """Converts an Assignment between its bytes and its text."""
    line = ["protoc", f"-I{ROOT}/proto", f"--{what}=snug.v1.Assignment", "snug/v1/worker.proto"]
    return subprocess.run(line, input=content, capture_output=True, check=True).stdout


def read(attempt):
    """An attempt's assignment as text."""
    return _protoc("decode", (attempt / NAME).read_bytes()).decode()


def field(text, name):
    """The value of a top-level field of an assignment, without quotes; "" where it is not set."""
    found = re.search(rf'^{name}: "?(.*?)"?$', text, re.MULTILINE)
    return found[1] if found else ""


def write_changed(attempt, folder, **fields):
    """Makes `folder` the attempt that `attempt` was but for these top-level fields, and for the
    daemon, which is told nothing."""
    folder.mkdir(parents=True)
    text = read(attempt)
    fields = {"attempt_dir": str(folder), **fields}
    for name in ("link_socket", *fields):
        text = re.sub(rf"^{name}: .*\n", "", text, flags=re.MULTILINE)
    text += "".join(f"{name}: {json.dumps(value)}\n" for name, value in fields.items())
    write_text(folder, text)
    return folder


def write_text(folder, text):
    """Writes an assignment, given as text, where a worker is told to read it."""
    (folder / NAME).write_bytes(_protoc("encode", text.encode()))


def run(folder, **options):
    """Runs the worker on a folder's assignment; gives the finished process and result.json.
    `options`: more of subprocess.run."""
    done = start(folder, **options)
    return done, json.loads((folder / "result.json").read_text())


def start(folder, **options):
    """As run, where the worker may end without a result."""
    line = [str(worker_binary()), str(folder / NAME)]
    return subprocess.run(line, capture_output=True, text=True, check=False, **options)
