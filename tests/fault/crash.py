"""A daemon that is killed again and again under submits, cancels, pauses and deletes, at failpoints
(server/failpoint.h) and at random moments, and what must hold after each start.

Workers train nothing (tests/server/testing/fake_worker.cc). What was acknowledged, and what was
asked without an answer, is kept here beside the daemon; after each start the two are compared:
  lost      an acknowledged job is there, unless its deletion was asked for
  doubled   a request makes one job, however often it is sent; no job has two workers at a time
  final     a job that has ended stays as it ended
  store     what `snug doctor` checks (server/examine/examination.cc); reservations within capacity
At the end every job is let go on, and each that succeeds has every step once and the same weights.

    python -m tests.fault.crash --cycles 500 --sides 2 [--seed N]
"""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import grpc
from google.protobuf import json_format
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FAKE, FakeDaemon

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 12
MOST_LIVE = 8
MOST_ENDED = 12
CALL_S = 20.0
CYCLE_S = 0.6  # That a failpoint has to be reached.
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")

# Which process has the point, and what may be done there.
POINTS = {
    "store.commit": ("daemon", ("kill", "error", "delay:50")),
    "store.committed": ("daemon", ("kill", "delay:50")),
    "store.sync_folder": ("daemon", ("kill",)),
    "witness.write": ("daemon", ("kill", "error")),
    "witness.written": ("daemon", ("kill",)),
    "witness.sync": ("daemon", ("kill",)),
    "spawn.begin": ("daemon", ("kill", "error")),
    "spawn.done": ("daemon", ("kill",)),
    "launch.folders": ("daemon", ("kill",)),
    "launch.locked": ("daemon", ("kill",)),
    "file.rename": ("daemon", ("kill", "error")),
    "file.renamed": ("daemon", ("kill",)),
    "link.read": ("daemon", ("kill", "error")),
    "link.received": ("daemon", ("kill",)),
    "link.send": ("daemon", ("kill", "error")),
    "trash.rename": ("daemon", ("kill", "error")),
    "trash.renamed": ("daemon", ("kill",)),
    "worker.spawn": ("shim", ("kill",)),
    "worker.spawned": ("shim", ("kill",)),
    "exit.written": ("shim", ("kill",)),
    "exit.synced": ("shim", ("kill",)),
    "exit.renamed": ("shim", ("kill",)),
    "checkpoint.weights": ("worker", ("kill",)),
    "checkpoint.manifest": ("worker", ("kill",)),
    "checkpoint.renamed": ("worker", ("kill",)),
    "result.rename": ("worker", ("kill",)),
    "result.renamed": ("worker", ("kill",)),
}
# Reached hundreds of times in a life; those that are reached a few times; all others once.
OFTEN = ("store.commit", "store.committed", "witness.write", "witness.written", "link.received")
SOME = ("spawn", "launch", "file", "link", "trash", "checkpoint")


class Violation(Exception):
    """Something that must hold does not."""


def schema(folder):
    """The generated messages of the API."""
    files = [f"snug/v1/{path.name}" for path in (ROOT / "proto/snug/v1").glob("*.proto")]
    command = ["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={folder}", *files]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(folder))
    from snug.v1 import service_pb2  # pylint: disable=import-outside-toplevel

    return service_pb2


class Known:
    """A job as the harness knows it."""

    def __init__(self, token, request):
        self.token, self.request = token, request
        self.id = ""  # Empty: not acknowledged.
        self.delete_asked = self.deleted = False
        self.final = ""


class FailingDaemon(FakeDaemon):
    """snugd with failpoints; it is started and watched by the side, and answers when it likes."""

    def __init__(self):
        shim = os.environ["SNUG_FAILING_SHIM"]
        inspect = pathlib.Path(os.environ["SNUG_BIN_DIR"]) / "snug-inspect"
        settings = f"shim: {shim}\ninspect: {inspect}\nmax_jobs_per_device: 4\n"
        super().__init__(settings=settings)

    def start(self, failpoint=""):
        """Starts it, and does not wait."""
        self.starts += 1
        self.log = self.folder / "snugd.log"
        hits = self.folder / "hits"
        environment = {**os.environ, "SNUG_FAILPOINT": failpoint, "SNUG_FAILPOINT_LOG": str(hits)}
        command = [os.environ["SNUG_FAILING_DAEMON"], "--state-dir", self.state]
        command += ["--socket", self.socket, "--device", self.device, "--metrics-port", "0"]
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                [str(word) for word in [*command, *self.flags]],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def hits(self):
        """Names of the points that have acted, one for each time."""
        path = self.folder / "hits"
        return path.read_text().split() if path.exists() else []


class Side:
    """One daemon, what is asked of it, and what is known of its jobs."""

    def __init__(self, api, seed):
        self.api, self.random = api, random.Random(seed)
        self.daemon = FailingDaemon()
        self.channel = grpc.insecure_channel(f"unix:{self.daemon.socket}")
        self.lock = threading.Lock()
        self.known = {}  # By token.
        self.tokens = 0
        self.spec = None
        self.counts = collections.Counter()

    def call(self, method, request, reply="Job"):
        """One call; raises grpc.RpcError where the daemon is gone."""
        kind = getattr(self.api, reply, None) or self.api.snug_dot_v1_dot_job__pb2.Job
        stub = self.channel.unary_unary(
            f"/snug.v1.FineTuning/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=kind.FromString,
        )
        return stub(request, timeout=CALL_S, wait_for_ready=False)

    def await_answer(self):
        """Whether it serves; false where it has ended first."""

        def answers():
            if self.daemon.process.poll() is not None:
                return "ended"
            try:
                self.call("GetServerInfo", self.api.GetServerInfoRequest(), "ServerInfo")
                return "serves"
            except grpc.RpcError:
                # Dialled anew: a channel would wait for a second between two tries.
                self.channel.close()
                self.channel = grpc.insecure_channel(f"unix:{self.daemon.socket}")
                return None

        return wait_for(answers, "snugd to answer", 60) == "serves"

    def begin(self):
        """What jobs are made of: the command line reads the file, the daemon fills it in."""
        if not self.await_answer():
            raise RuntimeError(self.daemon.log.read_text(errors="replace"))
        name = self.daemon.submit_script("steps=1", "training.save_steps=3")
        job = self.daemon.wait_state(name, "SUCCEEDED")
        spec = self.api.CreateJobRequest().spec
        json_format.ParseDict(job["spec"], spec)
        self.daemon.run("delete", name)
        self.spec = spec

    # What is asked, from two threads, until the daemon is gone.

    def submit_one(self):
        """A new job, or one that nobody has acknowledged yet once more."""
        with self.lock:
            unknown = [job for job in self.known.values() if not job.id]
            live = [job for job in self.known.values() if not job.final and not job.deleted]
            if unknown:
                job = unknown[0]
            elif len(live) >= MOST_LIVE:
                job = None
            else:
                self.tokens += 1
                request = self.api.CreateJobRequest(request_id=str(uuid.uuid4()))
                request.spec.CopyFrom(self.spec)
                request.spec.display_name = f"steps={STEPS} step_ms=15 token={self.tokens}"
                job = Known(self.tokens, request)
                self.known[job.token] = job
        if job is None:
            return time.sleep(0.01)
        made = self.call("CreateJob", job.request)
        with self.lock:
            if job.id and job.id != made.id:
                raise Violation(f"doubled: one request made {job.id} and {made.id}")
            job.id = made.id
        return None

    def change_one(self):
        """Cancels, pauses, resumes or deletes some job."""
        with self.lock:
            there = [job for job in self.known.values() if job.id and not job.deleted]
            ended = [job for job in there if job.final]
            if len(ended) > MOST_ENDED:
                job, method = self.random.choice(ended), "DeleteJob"
            elif there:
                method = self.random.choice(["CancelJob", "PauseJob", "ResumeJob", "ResumeJob"])
                job = self.random.choice(there)
            else:
                job = None
            if job is not None and method == "DeleteJob":
                job.delete_asked = True
        if job is None:
            return time.sleep(0.01)
        request = getattr(self.api, f"{method}Request")(id=job.id)
        try:
            shown = self.call(method, request)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise
            with self.lock:
                job.delete_asked = False  # Refused: it is in another state.
            return time.sleep(0.005)
        with self.lock:
            job.deleted |= method == "DeleteJob"
            self.note(job, shown)
        return time.sleep(self.random.uniform(0, 0.05))

    def note(self, job, shown):
        """What has ended stays as it ended."""
        state = self.state_of(shown)
        if job.final and state != job.final:
            raise Violation(f"{job.id} has been {job.final} and is {state}")
        if state in ENDED:
            job.final = state

    @staticmethod
    def state_of(shown):
        """The name of a job's state."""
        return shown.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[shown.state].name

    def ask(self, act, failures, over):
        """Does one thing after another until the cycle is over."""
        try:
            while not over.is_set():
                act()
        except grpc.RpcError:
            pass  # It is gone, or about to be.
        except Exception as error:  # pylint: disable=broad-exception-caught
            failures.append(error)

    # What is compared after each start.

    def all_jobs(self):
        """All jobs of the store, by the token in their names."""
        found = collections.defaultdict(list)
        request = self.api.ListJobsRequest(all=True, page_size=1000)
        while True:
            page = self.call("ListJobs", request, "ListJobsResponse")
            for shown in page.jobs:
                found[int(shown.display_name.rsplit("=", 1)[1])].append(shown)
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    def compare(self):
        """The daemon's word against ours."""
        found = self.all_jobs()
        for token, jobs in found.items():
            if len(jobs) > 1:
                raise Violation(f"doubled: {[job.id for job in jobs]} are one request's")
            if token not in self.known:
                raise Violation(f"{jobs[0].id} was never asked for")
        for token, job in list(self.known.items()):
            there = found.get(token)
            if job.deleted and there:
                raise Violation(f"{job.id} was deleted, and is there")
            if job.id and not there and not job.delete_asked:
                raise Violation(f"lost: {job.id} was acknowledged, and is not there")
            if job.deleted or (job.delete_asked and not there):
                del self.known[token]
                continue
            if there:
                if job.id and there[0].id != job.id:
                    raise Violation(f"{job.id} is called {there[0].id} now")
                self.note(job, there[0])
        doubled = self.daemon.state / "doubled"
        if doubled.exists():
            raise Violation(f"two workers of one job: {doubled.read_text()}")
        checked = self.call("CheckStore", self.api.CheckStoreRequest(), "CheckStoreResponse")
        if checked.findings:
            raise Violation(f"the store: {checked.findings}")
        info = self.call("GetServerInfo", self.api.GetServerInfoRequest(), "ServerInfo")
        for device in info.devices:
            if device.reserved_bytes > device.capacity_bytes:
                raise Violation(f"{device.name}: {device.reserved_bytes} bytes are promised")

    # Cycles.

    def choose(self):
        """A point with what is done there, or nothing: a random moment."""
        if self.random.random() < 0.3:
            return "", ""
        name = self.random.choice(list(POINTS))
        action = self.random.choice(POINTS[name][1])
        most = 40 if name in OFTEN else 3 if name.split(".")[0] in SOME else 1
        hit = self.random.randint(1, most)
        return name, f"{name}={action}@{hit}"

    def kill_somebody(self):
        """The daemon, the shims, the workers, or all of them."""
        whom = self.random.choice(["daemon", "daemon", "shim", "worker", "all"])
        self.counts[f"random:{whom}"] += 1
        programs = {"shim": ["snug-shim-failing"], "worker": ["fake-worker"]}
        programs["all"] = programs["shim"] + programs["worker"]
        for program in programs.get(whom, []):
            for pid in self.daemon.processes(program):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def cycle(self):
        """One life of the daemon."""
        name, setting = self.choose()
        self.daemon.start(setting)
        failures, over = [], threading.Event()
        serves = self.await_answer()
        if serves:
            try:
                self.compare()
            except grpc.RpcError:
                serves = False  # Killed meanwhile.
        before = len(self.daemon.hits())
        acts = (self.submit_one, self.submit_one, self.change_one)
        threads = [threading.Thread(target=self.ask, args=(act, failures, over)) for act in acts]
        if serves:
            for thread in threads:
                thread.start()
            self.watch(name, before)
        if self.daemon.process.poll() is None:
            if not name:
                self.kill_somebody()
            self.daemon.kill()
        with self.lock:
            self.counts["unanswered"] += any(not job.id for job in self.known.values())
        over.set()
        for thread in threads if serves else ():
            thread.join()
        refused = not serves and "=error" in setting  # Something failed that a start needs.
        if self.daemon.process.wait(60) not in (-signal.SIGKILL, 74) and not refused:
            raise Violation(f"snugd exited {self.daemon.process.returncode}")
        if failures:
            raise failures[0]
        self.counts["cycles"] += 1

    def watch(self, name, before):
        """Until the point is reached, or for a random time."""
        limit = CYCLE_S if name else self.random.uniform(0.02, 0.3)
        end = time.monotonic() + limit
        while time.monotonic() < end and self.daemon.process.poll() is None:
            if name and len(self.daemon.hits()) > before:
                time.sleep(0.03)  # What follows from it begins.
                return
            time.sleep(0.01)

    def finish(self):
        """Lets all jobs go on to their ends, and looks at what they made."""
        self.daemon.start()
        if not self.await_answer():
            raise Violation(self.daemon.log.read_text(errors="replace")[-2000:])
        self.compare()
        while any(not job.id for job in self.known.values()):
            self.submit_one()

        def all_ended():
            self.compare()
            found = self.all_jobs()
            states = {jobs[0].id: self.state_of(jobs[0]) for jobs in found.values()}
            for job, state in states.items():
                if state == "PAUSED":
                    self.call("ResumeJob", self.api.ResumeJobRequest(id=job))
            return all(state in ENDED for state in states.values())

        wait_for(all_ended, "all jobs to end", 240)
        wait_for(lambda: not self.daemon.processes("fake-worker"), "all workers to end", 60)
        self.counts["jobs"] = self.tokens
        weights = set()
        for job in self.known.values():
            shown = self.daemon.job(job.id)
            self.counts[shown["state"]] += 1
            if shown["state"] == "FAILED" and "no retries are left" not in shown["reason"]:
                raise Violation(f"{job.id} has failed: {shown['reason']}")
            if shown["state"] == "SUCCEEDED":
                weights.add(self.look_at_output(job.id, shown["epoch"]))
        if len(weights) > 1:
            raise Violation("final weights differ")
        self.daemon.kill(signal.SIGTERM)
        self.look_at_events()

    def look_at_output(self, name, epoch):
        """Every step is there once; its weights."""
        steps = self.daemon.steps(name, epoch)
        if steps != list(range(1, STEPS + 1)):
            raise Violation(f"{name} has the steps {steps}")
        (output,) = self.daemon.attempt(name, epoch).glob("output/adapter_model.safetensors")
        return output.read_bytes()

    def look_at_events(self):
        """A job ends once."""
        store = sqlite3.connect(self.daemon.state / "snug.db")
        twice = store.execute(
            "SELECT job, count(*) FROM events WHERE new IN (8, 9, 10) GROUP BY job "
            "HAVING count(*) > 1"
        ).fetchall()
        store.close()
        if twice:
            raise Violation(f"jobs have ended more than once: {twice}")


def run_side(api, seed, cycles, summary):
    """Some cycles of one daemon; what became of them goes into the summary."""
    side = Side(api, seed)
    try:
        side.begin()
        side.daemon.kill()
        for _ in range(cycles):
            side.cycle()
        side.finish()
        summary["counts"].update(side.counts)
        summary["hits"].update(side.daemon.hits())
    except Exception as error:  # pylint: disable=broad-exception-caught
        kept = pathlib.Path(tempfile.mkdtemp(prefix="snug-crash-"))
        side.daemon.kill()
        subprocess.run(["cp", "-r", side.daemon.folder, kept], check=False)
        summary["violations"].append(f"{type(error).__name__}: {error}; all of it is in {kept}")
    finally:
        side.daemon.close()


def run(cycles, sides, seed):
    """So many cycles on so many daemons side by side; the summary as a dict."""
    print(f"SNUG_FAULT_SEED={seed}", flush=True)
    summary = {"counts": collections.Counter(), "hits": collections.Counter(), "violations": []}
    with tempfile.TemporaryDirectory(prefix="snug-schema-") as folder:
        api = schema(pathlib.Path(folder))
        begin = time.monotonic()
        threads = [
            threading.Thread(target=run_side, args=(api, seed * 1000 + i, cycles // sides, summary))
            for i in range(sides)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        summary["seconds"] = round(time.monotonic() - begin, 1)
    return summary


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--sides", type=int, default=2)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    given = parser.parse_args()
    summary = run(given.cycles, given.sides, given.seed)
    print(json.dumps(summary, indent=1))
    return 1 if summary["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
