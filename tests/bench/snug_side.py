"""One job of Snug: step times, peak memory, and where a step's time goes."""

import json
import pathlib
import subprocess
import sys
import time

from tests.harness.binaries import binary
from tests.harness.daemon import ENDED, metric_lines


def resident_peak(pid):
    """Maximum resident bytes of a living process so far, 0 when it has gone."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    peak = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak[0].split()[1]) * 1024 if peak else 0


# Of a child's maximum the system counts what its parent held when it was forked: a small parent.
BARE = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def bare_bytes():
    """Maximum resident bytes of a worker that finds no assignment: the process and its libraries
    before anything is loaded."""
    line = [sys.executable, "-c", BARE, str(binary("snug-worker")), "/nonexistent/assignment.binpb"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


POLL_S = 0.1


def follow(daemon, name):
    """Polls a job to its end: seconds from its assignment to its first metrics, peak RSS. The
    machine is the job's: a look through all processes every 10 ms cost it a quarter of its speed,
    and a process's maximum stays until it ends."""
    attempt, peak, first, workers = daemon.attempt(name), 0, None, []
    while True:
        workers = workers or daemon.processes("snug-worker")
        for pid in workers:
            peak = max(peak, resident_peak(pid))
        lines = attempt / "metrics.jsonl"
        if first is None and lines.is_file() and lines.stat().st_size:
            first = time.time() - (attempt / "assignment.binpb").stat().st_mtime
        job = daemon.job(name) if (attempt / "exit.json").is_file() else None
        if job and job["state"] in ENDED:
            return job, first, peak
        time.sleep(POLL_S)


def tokens_of_steps(lines):
    """Tokens of each step, from how many there were at its end."""
    seen = [0, *(int(line["num_tokens"]) for line in lines)]
    return [after - before for before, after in zip(seen, seen[1:])]


def profile(daemon, name, steps):
    """What snug-step-profile prints for the attempt's assignment."""
    program = binary("snug").parent.parent / "tests" / "bin" / "snug-step-profile"
    line = [str(program), str(daemon.attempt(name) / "assignment.binpb"), str(steps)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def step_lines(daemon, name):
    """The metrics of each step."""
    lines = metric_lines(daemon.attempt(name) / "metrics.jsonl")
    return [line for line in lines if "step_seconds" in line]


def write_unpinned(folder, workload):
    """The workload's files, and a job file that leaves the choice of a plan open."""
    workload.write(folder)
    file = folder / "job.yaml"
    job = json.loads(file.read_text())
    del job["memory"]
    file.write_text(json.dumps(job))
    return file


def run_job(daemon, file, *settings):
    """One job to its end: what it was, and the seconds of its steps."""
    name = daemon.submit(file, *settings)
    daemon.wait_state(name, "RUNNING")
    job = follow(daemon, name)[0]
    if job["state"] != "SUCCEEDED":
        raise RuntimeError(job["error"])
    return job, [line["step_seconds"] for line in step_lines(daemon, name)]


def run(folder, daemon, steps):
    """One job, and the profile of its steps; `steps`: of the profile, 0 for none."""
    name = daemon.submit(folder / "job.yaml")
    job, first, peak = follow(daemon, name)
    if job["state"] != "SUCCEEDED":
        raise RuntimeError(job["error"])
    lines = step_lines(daemon, name)
    found = {
        "step_seconds": [line["step_seconds"] for line in lines],
        "tokens": tokens_of_steps(lines),
        "max_rss_bytes": peak,
        "bare_rss_bytes": bare_bytes(),
        "measured_peak_bytes": int(job["memory"]["measured_peak_bytes"]),
        "start_seconds": first - lines[0]["step_seconds"],
    }
    if steps:
        found["profile"] = profile(daemon, name, steps)
    return found
