"""The example of docs/python.md runs as it stands: the wheel is built and installed into a fresh
venv, without a network, and runs a job of a real daemon. Errors, pauses and cancels as well."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import unittest

from tests.harness.binaries import ROOT
from tests.harness.daemon import Daemon

# The mistakes that the client itself finds, and what the daemon says of a job.
ERRORS = """
from snug_client import Client, JobFailed, SnugError

job = {"model": "model", "dataset": "data/pairs.jsonl", "method": "lora"}


def refused(call):
    try:
        call()
    except SnugError as error:
        print(type(error).__name__, error.code or "-", error.reason or "-", error.field or "-")
    else:
        raise AssertionError("it was not refused")


with Client() as client:
    refused(lambda: client.submit(job, trainings={}))
    refused(lambda: client.submit(job, method="dora"))
    refused(lambda: client.submit(job, training={"learning_rate": -1}))
    refused(lambda: client.get("no-such-job"))
    refused(lambda: list(client.watch("no-such-job")))
    refused(lambda: client.download("no-such-job", "nothing"))
    training = {"max_steps": 100000, "max_seq_length": 64}
    long = client.submit(job, training=training, labels={"a": "b"})
    for snapshot in client.watch(long.id):
        if snapshot.progress.global_step > 0:
            break
    client.pause(long.id)
    for snapshot in client.watch(long.id):
        if snapshot.state == snapshot.PAUSED:
            break
    assert [one.id for one in client.list(labels={"a": "b"})] == [long.id]
    assert client.resume(long.id).state != snapshot.PAUSED
    client.cancel(long.id)
    refused(lambda: client.wait(long.id))
    nobody = Client("unix:no-socket")
    refused(lambda: nobody.get(long.id))
    refused(lambda: list(nobody.watch(long.id)))
    assert long.id not in [one.id for one in client.list()]
    assert long.id in [one.id for one in client.list(all=True)]
"""

REFUSALS = """SnugError INVALID_ARGUMENT BAD_JOB_FILE trainings
SnugError INVALID_ARGUMENT BAD_JOB_FILE method
SnugError INVALID_ARGUMENT BAD_FIELD training.learning_rate
SnugError NOT_FOUND JOB_NOT_FOUND -
SnugError NOT_FOUND JOB_NOT_FOUND -
SnugError NOT_FOUND JOB_NOT_FOUND -
JobFailed - - -
SnugError UNAVAILABLE - -
SnugError UNAVAILABLE - -
"""

WATCH = """
import sys
from snug_client import Client

for snapshot in Client().watch(sys.argv[1]):
    print(snapshot.progress.global_step)
"""


def example():
    """The one Python text of the page."""
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return text


def make_venv(folder):
    """A fresh venv that finds what the package depends on where this Python has it. pip resolves
    the wheel's dependencies against it, and can ask nobody else."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    lines = [f"import site; site.addsitedir({path!r})\n" for path in sorted(paths)]
    (site / "dependencies.pth").write_text("".join(lines), encoding="utf-8")
    return folder / "bin/python"


class PythonClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(device="cpu:0=2GiB")
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = pathlib.Path(cls.daemon.folder) / "examples"
        ignored = shutil.ignore_patterns("model", "data", "__pycache__")
        shutil.copytree(ROOT / "examples", cls.folder, ignore=ignored)
        subprocess.run([sys.executable, "-B", str(cls.folder / "make.py")], check=True)
        build = [sys.executable, "-B", str(ROOT / "client/python/build_wheel.py")]
        wheels = str(cls.daemon.folder / "wheels")
        built = subprocess.run([*build, wheels], check=True, capture_output=True, text=True)
        cls.python = make_venv(cls.daemon.folder / "venv")
        pip = [cls.python, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
        subprocess.run([*pip, "--quiet", built.stdout.strip() + "[progress]"], check=True)

    def environment(self):
        return {"PATH": os.environ["PATH"], "SNUG_SERVER": f"unix:{self.daemon.socket}"}

    def run_script(self, text):
        """What the script prints, and its bar."""
        done = subprocess.run(
            [str(self.python), "-c", text],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_the_example_of_the_page(self):
        printed, bar = self.run_script(example())
        lines = printed.splitlines()
        self.assertRegex(lines[0], r"^\S.* on cpu:0$")
        self.assertRegex(lines[1], r"^\S* training.learning_rate - ")
        states = [line for line in lines if line.startswith("SUCCEEDED ")]
        self.assertEqual(len(states), 1, printed)
        self.assertGreater(int(states[0].split()[1]), 0)
        self.assertIn("succeeded", bar)
        downloaded = {path.name: path.read_bytes() for path in (self.folder / "adapter").iterdir()}
        job = self.daemon.json("list", "--all", "--name", "first")["jobs"][0]["id"]
        self.daemon.run("download", job, self.folder / "other")
        theirs = {path.name: path.read_bytes() for path in (self.folder / "other").iterdir()}
        self.assertIn("adapter_model.safetensors", downloaded)
        self.assertEqual(downloaded, theirs)

    def test_errors_pauses_and_cancels(self):
        printed, _ = self.run_script(ERRORS)
        self.assertEqual(printed, REFUSALS)
        self.assertFalse((self.folder / "nothing").exists())

    def test_a_watch_goes_on_where_the_daemon_restarts(self):
        changes = ("training.max_steps=100000", "--no-check")
        job = self.daemon.run("submit", self.folder / "lora.yaml", *changes).stdout.strip()
        command = [str(self.python), "-u", "-c", WATCH, job]
        watch = subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE, text=True)
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.kill)
        before = next(step for step in map(int, watch.stdout) if step > 0)
        self.daemon.restart()
        next(step for step in map(int, watch.stdout) if step > before + 100)
        self.daemon.run("cancel", job)
        watch.stdout.read()
        self.assertEqual(watch.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
