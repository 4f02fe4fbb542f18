"""Makes the table of tests/bench/results: Snug against transformers + peft, as ratios of one
run.

    python -m tests.bench.run [--repeats N] [--quick | --smoke] [--only WORDS] [--output FILE]

Both sides train the same workload in fresh processes that take turns, on the same torch and
threads. Step time: the median over steps from the second on, then the median over repeats. Peak
memory: maximum resident set of the process, less that of a process that has only loaded its
libraries. Floor: all matrix products of a step (linears, adapters, head, attention) measured alone,
on the paths that the worker takes, beside the steps of the same run. Start: from the assignment on
disk to where the worker's first step begins. Families: forward and backward of models of random
weights, of all families in one process, step by step in turn. Nothing here passes or fails; goals
stand beside the figures.
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

import torch

from tests.bench import snug_side, tasks
from tests.bench import workload as workloads
from tests.harness import models
from tests.harness.binaries import ROOT, binary
from tests.harness.daemon import Daemon

RESULTS = ROOT / "tests" / "bench" / "results"
MIB = 1 << 20
LEAST_SHARE = 0.01  # Of a step, for a part to be listed.


def transformers_side(folder, workload, settings=None):
    """Steps and peak of one run of transformers + peft."""
    job = json.dumps(workload.job() | {"batch": workload.batch} | (settings or {}))
    script = ROOT / "tests" / "bench" / "transformers_side.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-B", str(script), str(folder), job]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measure(workload, repeats, folder):
    """The runs of both sides: (transformers', Snug's). The last of a decoder's is profiled: floors
    are of decoders."""
    steps = 0 if isinstance(workload, tasks.TaskWorkload) else workload.steps
    workload.write(folder)
    theirs, ours = [], []
    daemon = Daemon(device="cpu:0=12GiB")
    try:
        for repeat in range(repeats):
            theirs.append(transformers_side(folder, workload))
            last = repeat == repeats - 1
            ours.append(snug_side.run(folder, daemon, steps if last else 0))
    finally:
        daemon.close()
    return theirs, ours


def median_step(runs):
    """Median over runs of the median over steps after the first."""
    return statistics.median(statistics.median(run["step_seconds"][1:]) for run in runs)


def net_peak(runs):
    """Largest peak of some runs above what was there before anything was loaded, in MiB."""
    return max(run["max_rss_bytes"] - run["bare_rss_bytes"] for run in runs) / MIB


def tokens_per_second(runs):
    """Median over runs of the rate of the steps after the first."""
    return statistics.median(
        sum(run["tokens"][1:]) / sum(run["step_seconds"][1:]) for run in runs
    )


def row(cells):
    """A row of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def ratio(value, goal):
    """A figure beside its goal."""
    return f"**{value:.2f}** ({goal})" if goal else f"**{value:.2f}**"


def sides(workload, theirs, ours):
    """Cells of step time and memory of a workload."""
    step, their_step = median_step(ours), median_step(theirs)
    peak, their_peak = net_peak(ours), net_peak(theirs)
    return [
        workload.name,
        f"{their_step:.3f}",
        f"{step:.3f}",
        ratio(step / their_step, workload.goals[0]),
        workload.expected,
        f"{their_peak:.0f}",
        f"{peak:.0f}",
        ratio(peak / their_peak, workload.goals[1]),
    ]


def step_row(workload, theirs, ours):
    """Step time and memory of a workload, and its step against the floor."""
    found = ours[-1]["profile"]
    return row(
        [
            *sides(workload, theirs, ours),
            f"{found['floor_seconds']:.3f}",
            ratio(found["step_seconds"] / found["floor_seconds"], 1.25),
            f"{found['step_cpu_seconds'] / found['floor_cpu_seconds']:.2f}",
            f"{found['floor_seconds'] / median_step(theirs):.2f}",
            f"{statistics.median(run['start_seconds'] for run in ours):.2f}",
        ]
    )


def task_row(workload, theirs, ours):
    """Step time and memory of a model of another task."""
    return row(sides(workload, theirs, ours))


SIDES_HEAD = (
    "| | HF s/step | Snug s/step | ratio (goal) | expected | HF net MiB | Snug net MiB "
    "| ratio (goal) |"
)
TASKS_HEAD = [SIDES_HEAD, "|---" * 8 + "|"]
STEP_HEAD = [
    SIDES_HEAD + " floor s | step / floor (goal) | in CPU time | floor / HF | start s |",
    "|---" * 13 + "|",
]


def mixed_row(workload, theirs, ours):
    """Tokens per second of packed rows against padded ones."""
    rate, their_rate = tokens_per_second(ours), tokens_per_second(theirs)
    cells = [workload.name, f"{their_rate:.0f}", f"{rate:.0f}"]
    return row([*cells, ratio(rate / their_rate, workload.goals[0]), workload.expected])


def parts_rows(workload, found):
    """Where a step's time went, largest first, then the floor by kind."""
    parts = [part for part in found["parts"] if part["share"] >= LEAST_SHARE]
    text = ", ".join(f"{part['part']} {100 * part['share']:.1f}" for part in parts)
    floor = ", ".join(f"{kind} {cost['seconds']:.3f}" for kind, cost in found["floor"].items())
    rate = found["flops"] / found["step_seconds"] / 1e9
    return row([workload.name, text, floor, f"{rate:.0f}", found["products"]])


PARTS_HEAD = [
    "| | % of the step | floor, s | GFLOP/s of the step | products |",
    "|---" * 5 + "|",
]


def measure_families(arguments, bf16):
    """{family: what snug-step says of it}: steps of all families take turns in one process."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for workload in workloads.FAMILIES:
            workload = workload.smoke() if arguments.smoke else workload
            names.append(workload.shape.family)
            models.config_of(workload.shape).save_pretrained(pathlib.Path(folder) / names[-1])
        program = binary("snug").parent.parent / "tests" / "bin" / "snug-step"
        line = [str(program), *(["--bf16"] if bf16 else [])]
        line += ["--rows", str(workload.batch), "--tokens", str(workload.tokens)]
        line += ["--threads", str(workloads.threads()), "--steps", str(workload.steps)]
        for name in names:
            line += ["--model", str(pathlib.Path(folder) / name)]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
    return dict(zip(names, map(json.loads, done.stdout.splitlines())))


def family_rows(arguments):
    """Each family's rate, and as a share of Llama's in the same round: medians over rounds."""
    rows = []
    if arguments.only not in "families":
        return rows
    for dtype in ("fp32", "bf16"):
        rounds = [measure_families(arguments, dtype == "bf16") for _ in range(arguments.repeats)]
        for name in rounds[0]:
            cells = [f"{name} {dtype}"]
            for rate in ("flops_per_second", "flops_per_cpu_second"):
                ours = statistics.median(found[name][rate] for found in rounds)
                share = [found[name][rate] / found["llama"][rate] for found in rounds]
                cells += [f"{ours / 1e9:.0f}", ratio(statistics.median(share), 0.95)]
            rows.append(row(cells))
            print(rows[-1], flush=True)
    return rows


FAMILIES_HEAD = [
    "| family | GFLOP/s | against Llama (goal) | GFLOP per CPU second | against Llama (goal) |",
    "|---" * 5 + "|",
]


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
    return [f"| {entry['name']} | {entry['real_time']:.3f} |" for entry in rows]


def head(arguments):
    """What was run where, and beside what."""
    load = os.getloadavg()[0]
    lines = ["# Snug against transformers + peft", ""]
    lines += [f"{datetime.date.today()}, {processor()}, {workloads.threads()} threads,"]
    lines[-1] += f" torch {torch.__version__}; load before: {load:.1f}."
    lines += [f"`python -m tests.bench.run {' '.join(sys.argv[1:])}`".replace(" `", "`")]
    size = workloads.parameters(workloads.LARGE) / 1e6
    lines += [f"Llama of {size:.0f} M parameters, 4 x 512 tokens where nothing else is said;"]
    lines += ["BERT, T5, ViT and Swin with the dropout of their configurations;"]
    lines += [f"medians of {arguments.repeats} interleaved runs in fresh processes. Net MiB:"]
    lines += ["largest resident set less that of a process that has loaded only its libraries."]
    lines += ["Floor: the step's matrix products alone. Goals in brackets."]
    return lines + [""]


def run_all(chosen, arguments, table):
    """Measures workloads one after another; gives the rows that `table` makes, and their parts."""
    rows, parts = [], []
    for workload in chosen:
        if arguments.only and arguments.only not in workload.name:
            continue
        workload = workload.smoke() if arguments.smoke else workload
        workload = workloads.quick(workload) if arguments.quick else workload
        with tempfile.TemporaryDirectory() as folder:
            runs = measure(workload, arguments.repeats, pathlib.Path(folder) / "job")
        rows.append(table(workload, *runs))
        if "profile" in runs[1][-1]:
            parts.append(parts_rows(workload, runs[1][-1]["profile"]))
        print(rows[-1], *parts[-1:], sep="\n", flush=True)
    return rows, parts


def main():
    """Measures every workload and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--quick", action="store_true", help="fewer steps, one repeat")
    parser.add_argument("--only", default="", help="workloads whose name has these words")
    today = RESULTS / f"{datetime.date.today()}.md"
    parser.add_argument("--output", type=pathlib.Path, default=today)
    arguments = parser.parse_args()
    arguments.repeats = 1 if arguments.quick else arguments.repeats
    lines = head(arguments)
    decoders = workloads.WORKLOADS + (() if arguments.smoke else workloads.LEAN)
    steps, parts = run_all(decoders, arguments, step_row)
    of_tasks = tasks.WORKLOADS[:: tasks.VARIANTS if arguments.smoke else 1]
    other, _ = run_all(of_tasks, arguments, task_row)
    mixed, more = run_all(workloads.MIXED, arguments, mixed_row)
    lines += [*STEP_HEAD, *steps, "", *TASKS_HEAD, *other, ""]
    lines += ["| | HF tokens/s, padded | Snug tokens/s, packed | ratio (goal) | expected |"]
    lines += ["|---" * 5 + "|", *mixed, "", *PARTS_HEAD, *parts, *more, ""]
    lines += [*FAMILIES_HEAD, *family_rows(arguments), ""]
    lines += ["| 80-layer Llama | ms |", "|---|---|", *program_table(arguments.smoke)]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("\n".join(lines) + "\n")
    print(arguments.output.read_text())


if __name__ == "__main__":
    main()
