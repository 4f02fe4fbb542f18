"""What a byte of a step buys: seconds of a step within five budgets, of the same model on the same
cores, by

    the plan that Snug chooses for the budget;
    the fastest of Snug's plans that run k of L layers again;
    transformers, without and with gradient checkpointing;
    transformers compiled by torch.compile, whose partitioner is told an `activation_memory_budget`
    of 0, 1/4, 1/2, 3/4 and 1.

    python -m tests.bench.budgets [--layers 6] [--output FOLDER]

A step's memory is what it takes beside weights, the optimizer's state and the runtime: of Snug what
its worker has measured (gradients, batch, arena), of the others the largest resident set of the
steps from the second on, less that between two steps. Budgets lie evenly between the least that
anyone takes and the most. Prints a table and, with --output, writes a plot beside it. Nothing here
passes or fails.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import tempfile

from tests.bench import run, snug_side, workload
from tests.bench.bar_chart import bar_chart
from tests.harness.daemon import Daemon

STEPS = 5
BUDGETS = 5
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
OF_STEP = ("gradients_bytes", "inputs_bytes", "stash_bytes", "scratch_bytes", "workspace_bytes")
WHOLE_LAYERS = re.compile(r"keep|recompute (\d+) of \d+")
OTHERS = {
    "transformers": {},
    "transformers, checkpointing": {"gradient_checkpointing": True},
    **{f"torch.compile, {share:g}": {"activation_memory_budget": share} for share in SHARES},
}
LINES = ("Snug, chosen", "Snug, k of L", "transformers", "checkpointing", "torch.compile")


@dataclasses.dataclass(frozen=True)
class Point:
    """What a step took under one setting."""

    line: str  # Of LINES.
    what: str
    bytes: int
    seconds: float


def others(folder, subject):
    """Points of transformers."""
    for what, how in OTHERS.items():
        found = run.transformers_side(folder, subject, {"how": how})
        line = what.split(", ")[-1 if "checkpointing" in what else 0]
        seconds = statistics.median(found["step_seconds"][2:])
        yield Point(line, what, found["step_bytes"], seconds)


class Snug:
    """A daemon, and the job file of one model."""

    def __init__(self, file, daemon):
        self.file, self.daemon = file, daemon
        done = daemon.run("plan", file, "--output", "json")
        self.plans = json.loads(done.stdout)["plans"]

    @staticmethod
    def of_step(plan):
        """Bytes that a plan's step takes."""
        return sum(int(plan["memory"].get(part, 0)) for part in OF_STEP)

    def others(self):
        """Bytes that every plan takes beside its step."""
        return min(int(plan["peak_bytes"]) - self.of_step(plan) for plan in self.plans)

    def point(self, line, *settings):
        """Runs a job."""
        job, took = snug_side.run_job(self.daemon, self.file, *settings)
        beyond = int(job["memory"]["measured_peak_bytes"]) - int(job["plan"]["peak_bytes"])
        seconds = statistics.median(took[2:])
        return Point(line, job["plan"]["name"], self.of_step(job["plan"]) + beyond, seconds)

    def chosen(self, step_bytes):
        """The point of the plan that is chosen where a step may take so much."""
        return self.point(LINES[0], f"memory.budget={step_bytes + self.others()}")

    def k_of_l(self, step_bytes):
        """That of the fastest plan of whole layers."""
        whole = [(plan, WHOLE_LAYERS.fullmatch(plan["name"])) for plan in self.plans]
        fit = [p for p in whole if p[1] and self.of_step(p[0]) <= step_bytes]
        if not fit:
            return None
        plan, match = min(fit, key=lambda p: p[0]["step_seconds"])
        name, layers = plan["name"], int(match[1] or 0)
        stash = {"*": "keep"} | {f"layers.{i}.*": "recompute" for i in range(layers)}
        point = self.point(LINES[1], f"memory.stash={json.dumps(stash)}")
        return dataclasses.replace(point, what=name)


def measure(subject, parent):
    """All points, and the budgets."""
    folder = parent / "work"
    file = snug_side.write_unpinned(folder, subject)
    points = list(others(folder, subject))
    daemon = Daemon(device="cpu:0=12GiB")
    try:
        snug = Snug(file, daemon)
        least = min(snug.of_step(plan) for plan in snug.plans if plan["fidelity"] == "exact")
        most = max([p.bytes for p in points] + [snug.of_step(plan) for plan in snug.plans])
        budgets = [least + i * (most - least) // (BUDGETS - 1) for i in range(BUDGETS)]
        for budget in budgets:
            points += [p for p in (snug.chosen(budget), snug.k_of_l(budget)) if p is not None]
    finally:
        daemon.close()
    return points, budgets


def within(points, line, budget):
    """The fastest point of a line that a budget has room for, if any."""
    fit = [p for p in points if p.line == line and p.bytes <= budget * 1.001]
    return min(fit, key=lambda p: p.seconds, default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--output", type=pathlib.Path, help="the plot goes into this folder")
    options = parser.parse_args()
    shape = dataclasses.replace(workload.LARGE, layers=options.layers)
    subject = workload.Workload("LoRA fp32", True, False, shape=shape, steps=STEPS)
    with tempfile.TemporaryDirectory() as parent:
        points, budgets = measure(subject, pathlib.Path(parent))
    print("| setting | MiB of a step | s/step |\n|---|---|---|")
    for point in points:
        print(f"| {point.line}: {point.what} | {point.bytes >> 20} | {point.seconds:.2f} |")
    print(f"\n| MiB | {' | '.join(LINES)} |\n|---|{'---|' * len(LINES)}")
    groups = {}
    for budget in budgets:
        best = [within(points, line, budget) for line in LINES]
        cells = " | ".join(f"{p.seconds:.2f}" if p else "-" for p in best)
        print(f"| {budget >> 20} | {cells} |")
        groups[f"{budget >> 20} MiB"] = [p.seconds if p else 0.0 for p in best]
    if options.output:
        chart = bar_chart("Seconds of a step within a budget", LINES, groups)
        (options.output / "budgets.svg").write_text(chart, encoding="utf-8")


if __name__ == "__main__":
    main()
