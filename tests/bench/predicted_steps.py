"""How well the time of a plan is predicted: seconds of a step as the daemon reckoned them before
the job's first, against the median of those that its worker took from the second on.

    python -m tests.bench.predicted_steps [--only WORDS]

Models of several families, each under plans pinned by hand, one job after the other on an otherwise
idle machine, whose rates the daemon has measured at its start. Prints a table, and the median and
the worst of the errors. Nothing here passes or fails.
"""

import argparse
import dataclasses
import pathlib
import statistics
import tempfile

from tests.bench import snug_side, tasks, workload
from tests.harness.daemon import Daemon

STASHES = ("keep", "recompute", "chunk", "offload")
STEPS = 5


def subjects():
    """Four layers of each decoder, a model of next to nothing but starts of ops, and the first
    checkpoint's size of each other model."""
    decoders = [w for w in workload.FAMILIES if w.name in ("llama", "gemma2", "qwen3")]
    full = [dataclasses.replace(w, name=f"{w.name}, full", lora=False) for w in decoders[:1]]
    small = dataclasses.replace(decoders[0].smoke(), name="llama, small")
    wanted = ("LoRA fp32", "full fp32")
    others = [w for w in tasks.WORKLOADS if w.name.split(", ")[1] in wanted]
    return [dataclasses.replace(w, steps=STEPS) for w in (*decoders, *full, small, *others)]


def measure(folder, daemon, stash):
    """Seconds of a step: (predicted, measured)."""
    pinned = f'memory.stash={{"*": {stash}}}'
    job, took = snug_side.run_job(daemon, folder / "job.yaml", pinned)
    return job["plan"]["step_seconds"], statistics.median(took[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has these words")
    options = parser.parse_args()
    errors = []
    print("| model | stash | predicted | measured | error |\n|---|---|---|---|---|")
    for subject in subjects():
        if options.only not in subject.name:
            continue
        with tempfile.TemporaryDirectory() as parent:
            folder = pathlib.Path(parent) / "work"
            subject.write(folder)
            daemon = Daemon(device="cpu:0=12GiB")
            try:
                for stash in STASHES:
                    predicted, measured = measure(folder, daemon, stash)
                    errors.append(predicted / measured - 1)
                    cells = f"{predicted:.3g} s | {measured:.3g} s | {errors[-1]:+.0%}"
                    print(f"| {subject.name} | `{stash}` | {cells} |", flush=True)
            finally:
                daemon.close()
    sizes = sorted(map(abs, errors))
    print(f"\nOf {len(sizes)}: median error {statistics.median(sizes):.0%}, worst {sizes[-1]:.0%}")


if __name__ == "__main__":
    main()
