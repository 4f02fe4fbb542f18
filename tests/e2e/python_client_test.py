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
from unittest import mock

import nbclient
import nbformat

from tests.harness import metric_readers
from tests.harness.binaries import ROOT, binary
from tests.harness.daemon import Daemon, evaluation_lines, metric_lines

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
    assert next(client.metrics(long.id))["global_step"] == 1
    client.pause(long.id)
    for snapshot in client.watch(long.id):
        if snapshot.state == snapshot.STATE_PAUSED:
            break
    assert [one.id for one in client.list(labels={"a": "b"})] == [long.id]
    assert client.resume(long.id).state != snapshot.STATE_PAUSED
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


SERIES = (
    ("train/loss", "loss"),
    ("train/learning_rate", "learning_rate"),
    ("train/num_tokens", "num_tokens"),
    ("eval/loss", "eval_loss"),
)
WANDB = pathlib.Path(sys.executable).parent / "wandb"


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
        cls.home = pathlib.Path(cls.daemon.folder) / "home"
        cls.home.mkdir()
        ignored = shutil.ignore_patterns("model", "data", "__pycache__")
        shutil.copytree(ROOT / "examples", cls.folder, ignore=ignored)
        subprocess.run([sys.executable, "-B", str(cls.folder / "make.py")], check=True)
        build = [sys.executable, "-B", str(ROOT / "client/python/build_wheel.py")]
        wheels = str(cls.daemon.folder / "wheels")
        built = subprocess.run([*build, wheels], check=True, capture_output=True, text=True)
        cls.python = make_venv(cls.daemon.folder / "venv")
        wheel = built.stdout.strip() + "[mlflow,progress,tensorboard,wandb]"
        pip = [cls.python, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
        subprocess.run([*pip, "--quiet", wheel], check=True)

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

    def run_notebook(self, *cells):
        """The outputs of the last cell, and the states of all widgets."""
        home = self.folder / "jupyter"
        kernel = [self.python, "-m", "ipykernel", "install", "--prefix", home, "--name", "snug"]
        subprocess.run([str(word) for word in kernel], check=True, capture_output=True)
        notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
        paths = {"JUPYTER_PATH": str(home / "share/jupyter"), "HOME": str(home)}
        with mock.patch.dict(os.environ, {**self.environment(), **paths}):
            nbclient.NotebookClient(notebook, kernel_name="snug", timeout=300).execute(
                cwd=str(self.folder)
            )
        widgets = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
        return notebook.cells[-1].outputs, [each["state"] for each in widgets.values()]

    # The bar is as long as the job, and says how it ended.
    def test_a_bar_in_a_notebook(self):
        outputs, widgets = self.run_notebook(
            "import snug_client\nclient = snug_client.Client()",
            "job = {'model': 'model', 'dataset': 'data/pairs.jsonl', 'method': 'lora'}",
            "submitted = client.submit(job, training={'max_steps': 5, 'max_seq_length': 64})",
            "ended = client.wait(submitted.id, progress=True)",
        )
        shown = [output.data for output in outputs if output.output_type == "display_data"]
        self.assertIn("application/vnd.jupyter.widget-view+json", shown[0])
        (bar,) = (each for each in widgets if each["_model_name"] == "FloatProgressModel")
        self.assertEqual((bar["value"], bar["max"], bar["bar_style"]), (5, 5, "success"))
        texts = [each["value"] for each in widgets if each["_model_name"] == "HTMLModel"]
        self.assertTrue(any("succeeded" in text for text in texts), texts)
        self.assertTrue(any("5/5" in text and "loss=" in text for text in texts), texts)

    # No tool need be there for the rest of the package; without it the export says so.
    def test_an_export_without_its_library_names_what_to_install(self):
        job = self.daemon.submit(self.folder / "lora.yaml", "training.max_steps=1")
        self.daemon.wait_state(job, "SUCCEEDED")
        for tool in ("tensorboard", "wandb", "mlflow"):
            words = [job, "--to", tool, str(self.folder / "none")]
            text = (
                f"import sys; sys.modules[{tool!r}] = None\n"
                f"from snug_client.export_metrics import main; print(main({words!r}))"
            )
            printed, said = self.run_script(text)
            self.assertEqual(printed, "1\n")
            self.assertIn(f"install snug-client[{tool}]", said)
            self.assertEqual(list(self.folder.glob("none/*")), [])

    def export(self, *words, code=0, path=None):
        """What `snug export-metrics` prints, or says where it fails."""
        path = path or f"{self.python.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [str(binary("snug")), "export-metrics", *map(str, words)],
            env={**self.environment(), **metric_readers.PROXIES, "HOME": self.home, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def job_with_metrics(self):
        """A job that has ended, and the lines of its downloaded metrics.jsonl."""
        changes = ("training.max_steps=6", "eval_split=0.2", "training.eval_steps=2")
        job = self.daemon.submit(self.folder / "lora.yaml", *changes, "labels.team=x")
        self.daemon.wait_state(job, "SUCCEEDED")
        downloaded = self.folder / f"downloaded-{job}"
        self.daemon.run("download", job, downloaded)
        file = downloaded / "metrics.jsonl"
        return job, metric_lines(file) + evaluation_lines(file)

    def expect_series(self, found, lines, digits=15):
        """`found`: of each series (step, time in seconds, value); all of metrics.jsonl is there."""
        for series, key in SERIES:
            wanted = [(one["global_step"], one["time"], one[key]) for one in lines if key in one]
            self.assertGreater(len(wanted), 1, series)
            self.assertEqual([one[0] for one in found[series]], [one[0] for one in wanted])
            for one, (_, seconds, value) in zip(found[series], wanted):
                self.assertAlmostEqual(one[1], seconds, places=3)
                self.assertAlmostEqual(one[2], value, delta=abs(value) * 10**-digits)

    # Each tool's own reader finds every value of metrics.jsonl at its step and time.
    def test_metrics_are_exported_to_tensorboard(self):
        job, lines = self.job_with_metrics()
        runs = self.folder / "runs"
        self.assertEqual(self.export(job, job, "--to", "tensorboard", runs), f"{runs / job}\n")
        self.assertEqual([path.name for path in runs.iterdir()], [job])
        self.expect_series(metric_readers.tensorboard(runs / job), lines, digits=6)
        self.assertIn("is there already", self.export(job, "--to", "tensorboard", runs, code=1))
        named = self.export(job, "--to", "excel", runs, code=64)
        self.assertIn('tensorboard, wandb or mlflow, and no "excel"', named)
        self.assertIn("no-such", self.export("no-such", "--to", "tensorboard", runs, code=1))
        self.assertEqual([path.name for path in runs.iterdir()], [job])
        where = self.export(job, "--to", "tensorboard", runs, code=1, path="/nowhere")
        self.assertIn("install snug-client[tensorboard]", where)

    def test_metrics_are_exported_to_wandb_and_nothing_is_sent(self):
        job, lines = self.job_with_metrics()
        with metric_readers.Nobody() as network:
            runs = self.folder / "wandb"
            self.assertEqual(self.export(job, "--to", "wandb", runs), f"{runs / job}\n")
            self.assertEqual(network.calls(), 0)
        run = metric_readers.wandb(runs / job)
        # A step's lines are one row of wandb's, whose time is that of the last of them.
        in_order = sorted(lines, key=lambda one: one["time"])
        last = {one["global_step"]: one["time"] for one in in_order}
        rows = [{**one, "time": last[one["global_step"]]} for one in lines]
        self.expect_series(run.series, rows)
        self.assertEqual((run.id, run.project, run.tags), (job, "snug", ["team=x"]))
        self.assertEqual(run.config["training.max_steps"], 6)
        self.assertEqual(run.config["method"], "LORA")
        self.assertEqual(sorted(path.name for path in self.home.iterdir()), [])
        sync = [str(WANDB), "sync", "--dry-run", *map(str, runs.glob("*/wandb/offline-run-*"))]
        said = subprocess.run(sync, capture_output=True, text=True, check=True).stderr
        self.assertIn("Would sync 1 run(s)", said)

    def test_metrics_are_exported_to_mlflow_and_nothing_is_sent(self):
        job, lines = self.job_with_metrics()
        other = self.daemon.submit(self.folder / "lora.yaml", "training.max_steps=1")
        self.daemon.wait_state(other, "SUCCEEDED")
        store = self.folder / "mlruns"
        with metric_readers.Nobody() as network:
            made = [self.export(one, "--to", "mlflow", store).strip() for one in (job, other)]
            self.assertEqual(network.calls(), 0)
        runs = metric_readers.mlflow(store)
        self.assertEqual(sorted(runs), sorted([job, other]))
        self.assertEqual([pathlib.Path(path).name for path in made], [runs[job].id, runs[other].id])
        self.expect_series(runs[job].series, lines)
        self.assertEqual(runs[job].status, "FINISHED")
        self.assertEqual(runs[job].tags["team"], "x")
        self.assertEqual(runs[job].params["training.max_steps"], "6")
        again = self.export(other, job, "--to", "mlflow", store, code=1)
        self.assertIn(f"has a run of {other} already", again)
        self.assertEqual(len(metric_readers.mlflow(store)), 2)

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
