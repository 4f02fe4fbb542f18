"""A snugd of the test's own, in a temporary folder, and the snug command line against it.

Ports and sockets are its own: the metrics port is a free one, read from what snugd prints.
Workers outlive a daemon by design, so closing a Daemon ends by id every process whose command
line names its state folder. Waits have a generous end and no meaning but that: nothing here
measures time.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

from tests.harness.binaries import DEVICE, binary

WAIT_S = 300.0  # A loaded machine of two cores starts a worker in 20 s at worst.
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class Failed(Exception):
    """A snug command ended with another code than expected; carries the finished process."""

    def __init__(self, done):
        super().__init__(f"{done.args} exited {done.returncode}: {done.stderr or done.stdout}")
        self.done = done


def wait_for(condition, what, seconds=WAIT_S):
    """Polls until the condition gives something true, and gives that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}")


class Daemon:
    """Starts, kills and restarts snugd over one state folder."""

    def __init__(self, device=f"{DEVICE}=4GiB", flags=(), under=()):
        """`device`: empty where `flags` say which. `under`: a command that snugd is the rest of, as
        prlimit."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-"))
        self.state = self.folder / "state"
        self.socket = self.folder / "s"
        self.device, self.flags, self.under = device, list(flags), list(under)
        self.process, self.starts = None, 0
        self.start()

    def start(self):
        """Starts snugd and waits until it answers."""
        command = [*self.under, binary("snugd"), "--state-dir", self.state, "--socket", self.socket]
        command += ["--device", self.device] if self.device else []
        command += ["--metrics-port", "0", *self.flags]
        self.starts += 1
        self.log = self.folder / f"snugd.{self.starts}.log"
        with open(self.log, "wb") as out:
            # A session of its own: what the terminal or ctest sends to the test is not for it.
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for(self._answers, f"snugd to answer: {self.log.read_text(errors='replace')}")

    def _answers(self):
        if self.process.poll() is not None:
            log = self.log.read_text(errors="replace")
            raise RuntimeError(f"snugd exited {self.process.returncode}: {log}")
        # A client every few milliseconds would take half of a core from what the daemon measures.
        return self.socket.exists() and self.run("list", "--limit", 1, code=None).returncode == 0

    def kill(self, number=signal.SIGKILL):
        """Ends the daemon only; its workers go on."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def restart(self):
        """kill -9 and start again over the same state."""
        self.kill()
        self.start()

    def restart_with(self, settings):
        """The same with this configuration file, which says which devices there are."""
        file = self.folder / "snugd.yaml"
        file.write_text(settings)
        self.device, self.flags = "", ["--config", file]
        self.restart()

    def close(self):
        """Ends the daemon and every process of this state folder, and removes the folder.

        An AssertionError carries what ThreadSanitizer has reported of it meanwhile, where it was
        compiled with that.
        """
        if self.process.poll() is None:
            self.kill()
        wait_for(lambda: not self._end_processes(), "processes of the state folder to end", 60)
        logs = [log.read_text(errors="replace") for log in self.folder.glob("snugd.*.log")]
        shutil.rmtree(self.folder, ignore_errors=True)
        reports = [log for log in logs if "ThreadSanitizer" in log]
        assert not reports, "\n".join(reports)

    def _end_processes(self):
        found = self.processes()
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return found

    def processes(self, program=""):
        """Ids of living processes that were started for this state folder."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = any(word.startswith(os.fsencode(self.state)) for word in words)
            if ours and words[0].endswith(program.encode()):
                found.append(int(entry.name))
        return found

    def run(self, *words, code=0, cwd=None):
        """Runs a snug command. `code`: the exit code it must have; None for any."""
        line = [str(binary("snug")), "--server", f"unix:{self.socket}", *map(str, words)]
        done = subprocess.run(
            line, capture_output=True, text=True, check=False, cwd=cwd, timeout=2 * WAIT_S
        )
        if code is not None and done.returncode != code:
            raise Failed(done)
        return done

    def json(self, *words, cwd=None):
        """The one JSON value that a command prints."""
        return json.loads(self.run(*words, "--output", "json", cwd=cwd).stdout)

    def job(self, name):
        """`snug get JOB`."""
        return self.json("get", name)

    def submit(self, file, *changes):
        """Submits a job file with key=value changes; gives the job's id."""
        return self.json("submit", file, *changes)["id"]

    def wait_state(self, name, *states):
        """Waits until the job is in one of the states; fails at once when it ended otherwise."""

        def reached():
            job = self.job(name)
            if job["state"] not in states and job["state"] in ENDED:
                raise AssertionError(f"{name} is {job['state']}: {job['error']}")
            return job if job["state"] in states else None

        return wait_for(reached, f"{name} to be {' or '.join(states)}")

    def wait_step(self, name, step):
        """Waits until the running job has done a step."""

        def reached():
            job = self.job(name)
            if job["state"] in ENDED:
                raise AssertionError(f"{name} ended before step {step}: {job['state']}")
            return job if int(job["progress"]["global_step"]) >= step else None

        return wait_for(reached, f"step {step} of {name}")

    def pause(self, name, step):
        """Pauses a job that has taken a step. Its worker stands still until the daemon knows, so
        that a short job does not end first."""
        worker = self.wait_step(name, step)["worker_pid"]
        os.kill(worker, signal.SIGSTOP)
        try:
            self.run("pause", name)
        finally:
            os.kill(worker, signal.SIGCONT)
        self.wait_state(name, "PAUSED")

    def wait_heard(self, name, step):
        """Waits until the job has ended or is beyond a step. After a restart: the step last written
        before the kill; the store is not beyond it, so only the worker can have told of more."""

        def heard():
            job = self.job(name)
            beyond = int(job["progress"]["global_step"]) > step
            return job if job["state"] in ENDED or beyond else None

        return wait_for(heard, f"{name} to be heard of again, beyond step {step}")

    def attempt(self, name, epoch=1):
        """The folder of one attempt of a job."""
        return self.state / "jobs" / name / "attempts" / str(epoch)

    def metrics(self):
        """The text of /metrics."""
        port = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", self.log.read_text())
        if not port:
            raise AssertionError(f"snugd names no metrics port: {self.log.read_text()}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=60) as page:
            return page.read().decode()


def _lines(path):
    """The whole lines of a metrics.jsonl, which a worker may still be writing."""
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def metric_lines(path):
    """metrics.jsonl as dicts, the training steps only."""
    return [line for line in _lines(path) if "loss" in line]


def evaluation_lines(path):
    """metrics.jsonl as dicts, the evaluations only."""
    return [line for line in _lines(path) if "eval_loss" in line]
