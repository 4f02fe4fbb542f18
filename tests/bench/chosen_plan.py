"""Whether the plan that is chosen for a budget is as fast as any: its step against those of ten
other plans that fit the same budget, the fastest by prediction of many that are pinned by hand.

    python -m tests.bench.chosen_plan [--only WORDS] [--rounds 3]

Each plan is a job of a few steps; all of them run one after the other, and again in each round, so
that what slows the machine down slows all of them. A plan's time is the median of its rounds.
Prints a table for each model, the fastest first. Nothing here passes or fails.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import tempfile

from tests.bench import snug_side, workload
from tests.harness.daemon import Daemon

NAMES = ("llama", "gemma2")  # Four layers each.
STEPS = 4
PLANS = 10
SHARE = 0.55  # Of what lies between the smallest plan and keep, the budget has so much.


def pinned():
    """Ways to save what a step keeps, from little to all."""
    recompute, keep = "recompute", "keep"
    layers = [{f"layers.{i}.*": recompute for i in range(k)} for k in (1, 2, 3)]
    chunks = [{"kind": "chunk", "rows": rows} for rows in (128, 256, 512)]
    parts = [{f"*.{part}": recompute} for part in ("mlp.*", "attention.*", "norm*")]
    kept = [{"*": recompute, f"*.{part}": keep} for part in ("mlp.gate", "attention.*", "norm*")]
    return [
        {"*": keep},
        {"*": recompute},
        *layers,
        *({"*": chunk} for chunk in chunks),
        *({"*": recompute, "*.mlp.*": chunk} for chunk in chunks),
        *parts,
        *kept,
        {"*.mlp.*": chunks[1], "*.attention.*": recompute},
        {"*.mlp.*": chunks[1], "*.norm*": recompute},
        {"*.mlp.*": recompute, "*.norm*": recompute},
        {"*": recompute, "*.input": "offload"},
        {**layers[1], "*.mlp.*": recompute},
        {**layers[0], "*.mlp.*": recompute, "*.norm*": recompute},
    ]


def setting(stash):
    """The same in a line of a job's."""
    return f"memory.stash={json.dumps(stash)}"


class Model:
    """One model's job file, and a daemon that runs it."""

    def __init__(self, subject, folder, daemon):
        self.file, self.daemon = snug_side.write_unpinned(folder, subject), daemon

    def plan(self, stash):
        """Bytes of the pinned plan, and seconds of a step, as predicted."""
        done = self.daemon.run("plan", self.file, stash, "--output", "json")
        answer = json.loads(done.stdout)
        plan = answer["plans"][answer["chosen"]]
        return int(plan["peak_bytes"]), plan["step_seconds"]

    def seconds(self, *settings):
        """Of a step, by the job's own metrics; and the job."""
        job, took = snug_side.run_job(self.daemon, self.file, *settings)
        return statistics.median(took[1:]), job


def measure(model, rounds):
    """The budget; (seconds, bytes, what) of the plan that is chosen for it, and of the others."""
    plans = {setting(stash): model.plan(setting(stash)) for stash in pinned()}
    peaks = {stash: peak for stash, (peak, _) in plans.items()}
    least = min(peaks.values())
    budget = least + int(SHARE * (max(peaks.values()) - least))
    fit = [stash for stash, peak in peaks.items() if peak <= budget]
    fit = sorted(fit, key=lambda stash: plans[stash][1])[:PLANS]
    if len(fit) < PLANS:
        raise RuntimeError(f"{len(fit)} plans fit {budget} bytes, not {PLANS}")
    chosen = f"memory.budget={budget}"
    took, kinds = {stash: [] for stash in (chosen, *fit)}, ""
    for _ in range(rounds):
        for stash, seconds in took.items():
            found, job = model.seconds(stash)
            seconds.append(found)
            if stash == chosen:
                kinds = job["plan"]["name"]
                peaks[stash] = int(job["plan"]["peak_bytes"])
    times = {stash: statistics.median(seconds) for stash, seconds in took.items()}
    rows = [(times[stash], peaks[stash], stash) for stash in fit]
    return budget, (times[chosen], peaks[chosen], f"chosen: {kinds}"), rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has these words")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for subject in workload.FAMILIES:
        if subject.name not in NAMES or options.only not in subject.name:
            continue
        with tempfile.TemporaryDirectory() as parent:
            daemon = Daemon(device="cpu:0=12GiB")
            try:
                model = Model(
                    dataclasses.replace(subject, steps=STEPS),
                    pathlib.Path(parent) / "work",
                    daemon,
                )
                budget, chosen, others = measure(model, options.rounds)
            finally:
                daemon.close()
        best = min(others)[0]
        ratio = f"chosen {chosen[0] / best:.3f} of the best of {len(others)}"
        print(f"\n{subject.name}, budget {budget >> 20} MiB: {ratio}\n")
        print("| s/step | MiB | plan |\n|---|---|---|")
        for seconds, peak, what in sorted([chosen, *others]):
            print(f"| {seconds:.2f} | {peak >> 20} | `{what}` |", flush=True)


if __name__ == "__main__":
    main()
