"""A daemon that is killed again and again under submits, cancels, pauses and deletes, at failpoints
(server/failpoint.h) and at random moments, and what must hold after each start.

Workers train nothing (tests/server/testing/fake_worker.cc). What was acknowledged, and what was
asked without an answer, is kept here beside the daemon; after each start the two are compared:
  lost      an acknowledged job is there, unless its deletion was asked for
  doubled   a request makes one job, however often it is sent; no job has two workers at a time
  final     a job that has ended stays as it ended
  store     what `snug doctor` checks (server/examine/examination.cc); reservations within capacity
At the end every job is let go on, and each that succeeds has every step once and the same weights.

    python -m tests.fault.crash --cycles 10000 --summary FILE [--sides 6] [--seed N]
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
from tests.fault import crash_points, crash_work
from tests.fault.crash_daemon import HOOK, FailingDaemon
from tests.harness.daemon import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 12
MOST_LIVE = 4
MOST_ENDED = 12
CALL_S = 20.0
CYCLE_S = 0.6  # That a failpoint has to be reached.
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


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
        self.files = crash_work.Files(api.snug_dot_v1_dot_files__pb2, self.daemon.folder)
        self.point = ""  # Of this cycle.
        self.sending = 0  # New jobs that nobody has answered for.
        self.pressed = threading.Event()  # To send one more, however many there are.
        self.counts = collections.Counter()

    def call(self, method, request, reply="Job"):
        """One call; raises grpc.RpcError where the daemon is gone."""
        modules = (self.api, self.api.snug_dot_v1_dot_job__pb2, self.files.api)
        kind = next(getattr(each, reply) for each in modules if hasattr(each, reply))
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
            elif len(live) >= MOST_LIVE and not self.pressed.is_set():
                job = None
            else:
                self.tokens += 1
                request = self.api.CreateJobRequest(request_id=str(uuid.uuid4()))
                request.spec.CopyFrom(self.spec)
                request.spec.display_name = f"steps={STEPS} step_ms=40 token={self.tokens}"
                request.spec.webhook = f"https://{HOOK}/"
                if crash_points.family(self.point) == "prepare":
                    request.spec.dataset = self.fresh_dataset()
                job = Known(self.tokens, request)
                self.known[job.token] = job
            if job is not None:
                self.pressed.clear()
                self.sending += 1
        if job is None:
            return time.sleep(0.005)
        try:
            made = self.call("CreateJob", job.request)
        finally:
            with self.lock:
                self.sending -= 1
        with self.lock:
            if job.id and job.id != made.id:
                raise Violation(f"doubled: one request made {job.id} and {made.id}")
            job.id = made.id
        return None

    def fresh_dataset(self):
        """One that has not been prepared yet."""
        file = self.daemon.jobs / f"train-{self.tokens}.jsonl"
        ids = [3, 4, 5 + self.tokens % 50]
        row = {"input_ids": ids, "labels": ids}
        file.write_text((json.dumps(row) + "\n") * (1 + self.tokens))
        return str(file)

    def operate_one(self):
        """Uploads, deletes an upload, copies the store."""
        family = crash_points.family(self.point)
        wanted = family in ("upload", "copy", "backup")
        if not wanted and self.random.random() < 0.9:
            return time.sleep(0.05)
        try:
            if family in ("copy", "backup") or self.random.random() < 0.2:
                self.files.back_up(self.channel, self.api)
            elif len(self.files.kept) > 5 or self.point == "upload.gone":
                self.files.delete(self.call)
                self.files.upload(self.channel)
            else:
                self.files.upload(self.channel)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise
        return time.sleep(0.01)

    def change_one(self):
        """Cancels, pauses, resumes or deletes some job."""
        with self.lock:
            there = [job for job in self.known.values() if job.id and not job.deleted]
            ended = [job for job in there if job.final]
            if len(ended) > MOST_ENDED:
                job, method = self.random.choice(ended), "DeleteJob"
            elif there:
                method = self.random.choice(["CancelJob", "PauseJob"] + ["ResumeJob"] * 4)
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
        listed = self.call("ListFiles", self.files.api.ListFilesRequest(), "ListFilesResponse")
        self.files.compare(listed, self.daemon.state)
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
        name, setting = crash_points.choose(self.random)
        self.point = name
        if crash_points.family(name) == "audit":
            crash_work.fill_audit_log(self.daemon.state)
        if crash_points.family(name) == "restore":
            crash_work.restore(self.daemon, setting)
            name = self.point = setting = ""
        self.daemon.start(setting)
        failures, over = [], threading.Event()
        serves = self.await_answer()
        if serves:
            try:
                self.compare()
            except grpc.RpcError:
                serves = False  # Killed meanwhile.
        before = len(self.daemon.hits())
        acts = (self.submit_one, self.submit_one, self.change_one, self.operate_one)
        threads = [threading.Thread(target=self.ask, args=(act, failures, over)) for act in acts]
        if serves:
            for thread in threads:
                thread.start()
            self.watch(name, before)
        # Of a daemon that has died by itself the workers go on.
        self.counts["running"] += bool(self.daemon.processes("fake-worker"))
        if self.daemon.process.poll() is None:
            self.press()
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

    def press(self):
        """Until a new job is on its way, and a moment longer."""
        self.pressed.set()
        end = time.monotonic() + 0.2
        while not self.sending and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(self.random.uniform(0, 0.004))

    def watch(self, name, before):
        """Until the point is reached, or for a random time."""
        slow = crash_points.family(name) in crash_points.SLOW
        limit = (
            (crash_points.SLOW_S if slow else CYCLE_S) if name else self.random.uniform(0.02, 0.3)
        )
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
        # Nobody has heard of any: each job that has ended is still to be told of.
        untold = store.execute(
            "SELECT id FROM jobs WHERE state IN (8, 9, 10) AND id NOT IN (SELECT job FROM webhooks)"
        ).fetchall()
        store.close()
        if untold:
            raise Violation(f"the ends of {untold} are forgotten: no webhook is called")
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
        summary["cycles_s"] = round(time.monotonic() - summary["begin"], 1)
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
    summary["begin"] = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="snug-schema-") as folder:
        api = schema(pathlib.Path(folder))
        shares = [cycles // sides + (i < cycles % sides) for i in range(sides)]
        threads = [
            threading.Thread(target=run_side, args=(api, seed * 1000 + i, each, summary))
            for i, each in enumerate(shares)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        summary["seconds"] = round(time.monotonic() - summary.pop("begin"), 1)
    return summary


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--sides", type=int, default=6)
    parser.add_argument("--summary", type=pathlib.Path, help="a file for what is printed")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    given = parser.parse_args()
    summary = run(given.cycles, given.sides, given.seed)
    text = json.dumps({"seed": given.seed, **summary}, indent=1, sort_keys=True)
    print(text)
    if given.summary:
        given.summary.write_text(text + "\n")
    return 1 if summary["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
