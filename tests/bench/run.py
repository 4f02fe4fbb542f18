"""Makes the table of tests/bench/results: Snug against transformers + peft, as ratios of one
run.

    python tests/bench/run.py [--repeats N] [--smoke] [--output FILE]

Both sides train the same workload in fresh processes that take turns, on the same torch and
threads. Step time: the median over steps from the second on, then the median over repeats. Peak
memory: maximum resident set of the process, and what Snug's own account says. Start: from the
assignment on disk to where the worker's first step begins. Figures, not goals: nothing here passes
or fails.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from tests.bench import workload as workloads
from tests.harness.binaries import ROOT, binary
from tests.harness.daemon import ENDED, Daemon, metric_lines

RESULTS = ROOT / "tests" / "bench" / "results"
MIB = 1 << 20


def transformers_side(folder, workload):
    """Step seconds and peak of one run of transformers + peft."""
    job = json.dumps(workloads.job_of(workload))
    script = ROOT / "tests" / "bench" / "transformers_side.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-B", str(script), str(folder), job]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def resident_peak(pid):
    """Maximum resident bytes of a living process so far, 0 when it has gone."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    peak = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak[0].split()[1]) * 1024 if peak else 0


def follow(daemon, name):
    """Polls a job to its end: seconds from its assignment to its first metrics, peak RSS."""
    attempt, peak, first = daemon.attempt(name), 0, None
    while True:
        for pid in daemon.processes("snug-worker"):
            peak = max(peak, resident_peak(pid))
        lines = attempt / "metrics.jsonl"
        if first is None and lines.is_file() and lines.stat().st_size:
            first = time.time() - (attempt / "assignment.binpb").stat().st_mtime
        job = daemon.job(name) if (attempt / "exit.json").is_file() else None
        if job and job["state"] in ENDED:
            return job, first, peak
        time.sleep(0.01)


def snug_side(folder, daemon):
    """Step seconds, peaks and start of one job."""
    name = daemon.submit(folder / "job.yaml")
    job, first, peak = follow(daemon, name)
    if job["state"] != "SUCCEEDED":
        raise RuntimeError(job["error"])
    lines = metric_lines(daemon.attempt(name) / "metrics.jsonl")
    return {
        "step_seconds": [line["step_seconds"] for line in lines],
        "max_rss_bytes": peak,
        "measured_peak_bytes": int(job["memory"]["measured_peak_bytes"]),
        "start_seconds": first - lines[0]["step_seconds"],
    }


def median_step(runs):
    """Median over runs of the median over steps after the first."""
    return statistics.median(statistics.median(run["step_seconds"][1:]) for run in runs)


def measure(workload, repeats, folder):
    """One row of the table."""
    workloads.write(workload, folder)
    theirs, ours = [], []
    daemon = Daemon(device="cpu:0=12GiB")
    try:
        for _ in range(repeats):
            theirs.append(transformers_side(folder, workload))
            ours.append(snug_side(folder, daemon))
    finally:
        daemon.close()
    step, their_step = median_step(ours), median_step(theirs)
    peak, their_peak = (max(r["max_rss_bytes"] for r in runs) for runs in (ours, theirs))
    account = max(run["measured_peak_bytes"] for run in ours)
    start = statistics.median(run["start_seconds"] for run in ours)
    cells = [workload.name, f"{their_step:.3f}", f"{step:.3f}", f"**{step / their_step:.2f}**"]
    bare = max(run["bare_rss_bytes"] for run in theirs)
    cells += [f"{their_peak / MIB:.0f} ({bare / MIB:.0f})", f"{peak / MIB:.0f}"]
    cells += [f"**{peak / their_peak:.2f}**"]
    return "| " + " | ".join([*cells, f"{account / MIB:.0f}", f"{start:.2f}"]) + " |"


def processor():
    """The CPU's name as the kernel gives it."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def program_table(smoke):
    """Rows of the C++ benchmark of lowering and replay."""
    program = binary("snug").parent.parent / "tests" / "bin" / "program_benchmark"
    line = [str(program), "--benchmark_format=json"]
    line += ["--benchmark_min_time=0.001"] if smoke else []
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["benchmarks"]
    return [f"| {row['name']} | {row['real_time']:.3f} |" for row in rows]


def report(rows, arguments):
    """The page: what was run where, then the figures."""
    shape = workloads.LARGE
    head = f"{datetime.date.today()}, {processor()}, {workloads.threads()} threads"
    lines = ["# Snug against transformers + peft", "", f"{head}, torch {torch.__version__}."]
    lines += [f"`python tests/bench/run.py {' '.join(sys.argv[1:])}`".replace(" `", "`")]
    lines += [f"Llama of {workloads.parameters(shape) / 1e6:.0f} M parameters, 4 x 512 tokens,"]
    lines += [f"medians of {arguments.repeats} interleaved runs in fresh processes;"]
    lines += ["peak = largest resident set of the process, (n) = of HF's before it loads anything."]
    lines += [""]
    lines += ["| | HF s/step | Snug s/step | ratio | HF peak MiB | Snug peak MiB | ratio "]
    lines[-1] += "| Snug's account MiB | worker's start s |"
    lines += ["|---" * 9 + "|", *rows, "", "| 80-layer Llama | ms |", "|---|---|"]
    return "\n".join([*lines, *program_table(arguments.smoke)]) + "\n"


def main():
    """Measures every workload and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does it run at all?")
    today = RESULTS / f"{datetime.date.today()}.md"
    parser.add_argument("--output", type=pathlib.Path, default=today)
    arguments = parser.parse_args()
    rows = []
    for workload in workloads.WORKLOADS:
        workload = workloads.smoke(workload) if arguments.smoke else workload
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(workload, arguments.repeats, pathlib.Path(folder) / "job"))
            print(rows[-1], flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(report(rows, arguments))
    print(arguments.output.read_text())


if __name__ == "__main__":
    main()
