"""What sharing does for whole traces, by snug-sim: a table and the plots of docs/simulator.md.

    python -m tests.bench.simulator [--seeds N] [--jobs N] [--out FILE.md] [--plots FOLDER]

Three drawn traces at load 0.9 under every policy; the same with interference half and twice as
strong; speed-ups over exclusive where all jobs come at once and under-fill a device, or fill it.
Means over the seeds. With --smoke a few jobs, and nothing is written. Nothing here passes or fails.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

from tests.bench.bar_chart import bar_chart
from tests.harness.binaries import binary

TRACES = ("philly", "helios", "pai")
POLICIES = ("exclusive", "fixed", "carma", "snug", "oracle")
STRENGTHS = (0.5, 1.0, 2.0)
COLUMNS = ("trace", "policy", "makespan h", "completion mean s", "p99 s", "mean / exclusive")
COLUMNS += ("jobs per busy device", "squeezes", "requeues", "starved", "refused")


def simulate(generate, seed, interference=1.0):
    """Policy -> its figures."""
    words = [binary("snug-sim"), "--generate", generate, "--policy", "all", "--seed", seed]
    words += ["--interference", interference, "--output", "json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    return {run["policy"]: run for run in map(json.loads, done.stdout.splitlines())}


class Runs:
    """Simulations of one setting, one for each seed."""

    def __init__(self, generate, seeds, interference=1.0):
        self.runs = [simulate(generate, seed, interference) for seed in range(1, seeds + 1)]

    def mean(self, policy, key):
        return statistics.fmean(run[policy][key] for run in self.runs)

    def ratio(self, key, policy, other):
        """The mean of the seeds' ratios."""
        return statistics.fmean(run[policy][key] / run[other][key] for run in self.runs)

    def total(self, policy, key):
        return sum(run[policy][key] for run in self.runs)


def policy_rows(name, runs):
    for policy in POLICIES:
        cells = [name, policy, f"{runs.mean(policy, 'makespan_s') / 3600:.1f}"]
        for key in ("completion_mean_s", "completion_p99_s"):
            cells.append(f"{runs.mean(policy, key):,.0f}")
        cells += [f"{runs.ratio('completion_mean_s', policy, 'exclusive'):.2f}"]
        cells += [f"{runs.mean(policy, 'jobs_per_device'):.2f}"]
        cells += [f"{runs.mean(policy, key):.0f}" for key in ("squeezes", "oom_requeues")]
        cells += [str(runs.total(policy, key)) for key in ("starved", "refused")]
        yield "| " + " | ".join(cells) + " |"


def measure(seeds, jobs):
    """All settings: by trace and strength, and by trace of jobs that come at once."""
    loaded = {}
    for trace in TRACES:
        for strength in STRENGTHS:
            loaded[trace, strength] = Runs(f"{trace}:jobs={jobs},load=0.9", seeds, strength)
    at_once = {
        name: Runs(f"{name}:jobs={max(jobs // 5, 1)},load=0", seeds)
        for name in ("small", "saturating")
    }
    return loaded, at_once


def tables(loaded, at_once):
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---" * len(COLUMNS) + "|"
    for trace in TRACES:
        yield from policy_rows(trace, loaded[trace, 1.0])
    yield ""
    yield "| mean completion time | interference | philly | helios | pai | goal |"
    yield "|---|---|---|---|---|---|"
    for other, goal in (("exclusive", 0.6), ("carma", 0.8), ("fixed", None), ("oracle", None)):
        for strength in STRENGTHS:
            cells = [f"snug / {other}", f"x {strength:g}"]
            for trace in TRACES:
                ratio = loaded[trace, strength].ratio("completion_mean_s", "snug", other)
                cells.append(f"{ratio:.2f}")
            cells.append(f"≤ {goal}" if goal and strength == 1.0 else "")
            yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "| all at once | exclusive / snug | carma / snug | fixed / snug | oracle / snug | goal |"
    yield "|---|---|---|---|---|---|"
    for name, runs in at_once.items():
        others = ("exclusive", "carma", "fixed", "oracle")
        ratios = [runs.ratio("makespan_s", other, "snug") for other in others]
        goal = "≥ 1.6" if name == "small" else "≥ 0.98"
        yield f"| makespan of {name} | " + " | ".join(f"{r:.2f}" for r in ratios) + f" | {goal} |"


def plots(loaded):
    """File name -> SVG."""
    by_policy = {
        trace: [loaded[trace, 1.0].ratio("completion_mean_s", p, "exclusive") for p in POLICIES]
        for trace in TRACES
    }
    by_strength = {
        trace: [
            loaded[trace, s].ratio("completion_mean_s", "snug", "exclusive") for s in STRENGTHS
        ]
        for trace in TRACES
    }
    packed = {
        trace: [loaded[trace, 1.0].mean(p, "jobs_per_device") for p in POLICIES] for trace in TRACES
    }
    strengths = [f"interference x {s:g}" for s in STRENGTHS]
    return {
        "simulator-completion.svg": bar_chart(
            "Mean completion time at load 0.9, exclusive = 1", POLICIES, by_policy
        ),
        "simulator-interference.svg": bar_chart(
            "snug's mean completion time, exclusive = 1", strengths, by_strength
        ),
        "simulator-packing.svg": bar_chart("Jobs per busy device", POLICIES, packed),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--plots", type=pathlib.Path)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    if given.smoke:
        given.seeds, given.jobs = 1, 20
    loaded, at_once = measure(given.seeds, given.jobs)
    text = "\n".join(tables(loaded, at_once)) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    for name, picture in plots(loaded).items():
        if given.plots:
            (given.plots / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
