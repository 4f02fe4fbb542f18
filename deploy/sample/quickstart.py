"""Runs the main job through a daemon of its own: a full fine-tuning, then an adapter on its model.

    .venv/bin/python deploy/sample/quickstart.py [--rows N] [--steps N] [--work DIR]

Everything lies under .cache/quickstart: sample/ (data, model, job files; made once), sample/trained
(the first job's model), adapter/ (the second job's), state/ (the daemon's, kept). Talks to Snug
through the `snug` command alone. Ends the daemon it started, whatever happens.

--rows and --steps make a small one of it, to see that everything works and not what it learns:
packages to learn from, optimizer steps of each job. It has a folder of its own. Another number of
rows is another sample: it is made anew.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SNUG_BIN_DIR", ROOT / "build/bin"))
SCRIPTS = ROOT / "deploy/sample"

ROWS = 12000  # packages to learn from, at most
METRICS_PORT = 9464  # snugd's default; another one is taken where that is in use
MAX_SOCKET_PATH = 100  # sun_path holds 107 characters
START_SECONDS = 60  # a daemon measures its device before it listens, which takes some seconds
STOP_SECONDS = 30


def say(text):
    print(f"\n== {text}", flush=True)


def mib(count):
    return f"{int(count) / 2**20:,.0f} MiB"


class Daemon:
    """A snugd of our own, from `with` to its end. All it writes lies in `work`."""

    def __init__(self, work):
        self.state = work / "state"
        self.pid_file = work / "snugd.pid"
        self.log = work / "snugd.log"
        self.metrics = f"http://127.0.0.1:{free_port(METRICS_PORT)}/metrics"
        path = str(work / "snug.sock")
        long = len(path) > MAX_SOCKET_PATH
        self.socket = tempfile.mkdtemp(prefix="snug-") + "/snug.sock" if long else path
        self.process = None

    def command(self):
        port = self.metrics.split(":")[2].split("/")[0]
        command = [BIN / "snugd", "--state-dir", self.state, "--socket", self.socket]
        return [str(word) for word in command + ["--metrics-port", port]]

    def __enter__(self):
        end_of_earlier_run(self.pid_file)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, start_new_session=True
            )
        self.pid_file.write_text(str(self.process.pid))
        deadline = time.monotonic() + START_SECONDS
        while self.snug("list", check=False, capture_output=True).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                sys.exit(f"snugd did not start:\n{self.log.read_text()}")
            time.sleep(0.1)
        self.cancel_live_jobs()  # those of a run that was killed
        return self

    def __exit__(self, *unused):
        self.cancel_live_jobs()  # workers outlive their daemon
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.pid_file.unlink(missing_ok=True)

    def cancel_live_jobs(self):
        run = self.snug("list", "--output", "json", check=False, capture_output=True)
        for job in [] if run.returncode else json.loads(run.stdout).get("jobs", []):
            self.snug("cancel", job["id"], check=False)

    def snug(self, *words, **options):
        """Runs `snug`; `check` (default) makes its failure ours."""
        command = [str(BIN / "snug"), "--server", f"unix:{self.socket}", *map(str, words)]
        options.setdefault("check", True)
        return subprocess.run(command, text=True, **options)

    def json(self, *words, **options):
        run = self.snug(*words, "--output", "json", stdout=subprocess.PIPE, **options)
        return json.loads(run.stdout)


def free_port(wanted):
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return probe.getsockname()[1]
            except OSError:
                continue
    sys.exit("no free port for the metrics")


def end_of_earlier_run(pid_file):
    """A run that was killed may have left its daemon."""
    try:
        pid = int(pid_file.read_text())
        command = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return
    if command == "snugd":
        os.kill(pid, signal.SIGTERM)
        time.sleep(2)


def rows_of(sample):
    """What the sample was made with; None: there is none, or it does not say."""
    try:
        return json.loads((sample / "sample.json").read_text())["rows"]
    except (OSError, ValueError, KeyError):
        return None


def make_sample(sample, rows):
    if rows_of(sample) == rows:
        return
    say("making the sample: data, tokenizer, a model that knows nothing")
    python("make_sample.py", "--output", sample, "--rows", rows)


def python(script, *words):
    command = [sys.executable, "-B", str(SCRIPTS / script), *map(str, words)]
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})


def run_job(daemon, file, destination, *overrides):
    """Submits, watches, downloads. Gives the job as it ended."""
    daemon.snug("plan", file, *overrides)
    job = daemon.json("submit", file, *overrides)["id"]
    if daemon.snug("watch", job, check=False).returncode:
        daemon.snug("logs", job, check=False)
        sys.exit(f"job {job} did not succeed")
    shutil.rmtree(destination, ignore_errors=True)
    daemon.snug("download", job, destination)
    return daemon.json("get", job)


def budget_between(daemon, file):
    """Half-way between the smallest plan and the one that keeps everything."""
    peaks = [int(plan["peak_bytes"]) for plan in daemon.json("plan", file)["plans"]]
    return (min(peaks) + max(peaks)) // 2, max(peaks)


def ask(before, after, questions, count):
    """Shows answers; gives the loss on the questions before the job, which no job reports."""
    results = after.with_suffix(".asked.json")
    words = ("--questions", questions, "--show", 3, "--count", count, "--results", results)
    python("ask.py", "--before", before, "--after", after, *words)
    return json.loads(results.read_text())["loss"]["before"]


def losses(directory):
    """(first training loss, last training loss, last loss on what was held out)."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    train = [line["loss"] for line in lines if "loss" in line]
    held_out = [line["eval_loss"] for line in lines if "eval_loss" in line]
    return train[0], train[-1], held_out[-1]


def report(title, job, directory, before):
    first, last, held_out = losses(directory)
    memory = job["memory"]
    print(f"{title}")
    print(f"  held-out loss   {before:.3f} before, {held_out:.3f} after")
    print(f"  training loss   {first:.3f} at the first step, {last:.3f} at the last")
    print(f"  plan            {memory['plan']}")
    print(f"  peak memory     {mib(memory['predicted_peak_bytes'])} predicted, ", end="")
    print(f"{mib(memory['measured_peak_bytes'])} measured, {mib(memory['budget_bytes'])} reserved")


def print_metrics(daemon):
    with urllib.request.urlopen(daemon.metrics, timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    for line in lines:
        if line.startswith("snug_") and "bucket" not in line and not line.endswith(" 0"):
            print(f"  {line}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help=f"packages to learn from; default: {ROWS}")
    parser.add_argument("--steps", type=int, help="of each job; default: what the job files say")
    parser.add_argument("--work", type=pathlib.Path, help="default: .cache/quickstart")
    options = parser.parse_args()
    small = options.rows or options.steps
    options.work = options.work or ROOT / ".cache" / ("quickstart-small" if small else "quickstart")
    options.work = options.work.resolve()
    return options


def main():
    began = time.monotonic()
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    options.work.mkdir(parents=True, exist_ok=True)
    make_sample(options.work / "sample", options.rows or ROWS)
    with Daemon(options.work) as daemon:
        print(f"daemon: log in {daemon.log}, metrics at {daemon.metrics}")
        run_both(daemon, options.work, options.steps)
    print(f"\nAll of it took {time.monotonic() - began:.0f} s.")


def run_both(daemon, work, steps):
    sample, adapter = work / "sample", work / "adapter"
    start, model = sample / "model", sample / "trained"
    changes = (f"training.max_steps={steps}",) if steps else ()
    say("job 1: full fine-tuning, a package's name -> its summary")
    full = run_job(daemon, sample / "full.yaml", model, *changes)
    say("job 2: LoRA on that model, name and summary -> section")
    budget, keep = budget_between(daemon, sample / "lora.yaml")
    print(f"budget {mib(budget)}; keeping everything would need {mib(keep)}")
    lora = run_job(daemon, sample / "lora.yaml", adapter, f"memory.budget={budget}", *changes)

    say("asked before and after")
    full_before = ask(start, model, sample / "summaries-eval.jsonl", 3)
    lora_before = ask(model, adapter, sample / "sections-eval.jsonl", 3 if steps else 60)

    say("results")
    report("job 1, full fine-tuning", full, model, full_before)
    report("job 2, LoRA", lora, adapter, lora_before)
    print(f"  the adapter     {adapter}")
    print(f"metrics, while the daemon runs: curl {daemon.metrics}")
    print_metrics(daemon)
    print("\nTo look around afterwards, start the daemon again and ask it:")
    print(f"  {' '.join(daemon.command())} &")
    print(f"  {BIN / 'snug'} --server unix:{daemon.socket} list --all")


if __name__ == "__main__":
    main()
