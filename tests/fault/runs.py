"""What the fault tests share: a job whose undisturbed run is known, and the comparison with it.

Kills fall at random moments; the seed is printed and SNUG_FAULT_SEED sets it.
"""

import os
import random
import time

from safetensors.numpy import load_file

from tests.harness import jobs
from tests.harness.daemon import evaluation_lines, metric_lines

SAVE_STEPS = 20
EVAL_STEPS = 15  # Not always where a checkpoint is, so a resumed run writes some lines twice.
LOSS_SLACK = 0.01  # Of a run that sums in another order.


def seeded_random():
    """A generator whose seed is printed."""
    seed = int(os.environ.get("SNUG_FAULT_SEED", time.time_ns() % 2**32))
    print(f"SNUG_FAULT_SEED={seed}", flush=True)
    return random.Random(seed)


def full_job(folder, steps):
    """A full fine-tuning job file with its changes: (file, key=value ...)."""
    file = jobs.full_folder(folder)
    return file, f"training.max_steps={steps}", f"training.save_steps={SAVE_STEPS}"


def lora_job(folder, steps, precision):
    """A LoRA job with dropout, so that its random numbers must survive as well."""
    file = jobs.lora_folder(folder)
    return (
        file,
        f"training.max_steps={steps}",
        f"training.save_steps={SAVE_STEPS}",
        f"training.precision={precision}",
        f"training.eval_steps={EVAL_STEPS}",
        "lora.lora_dropout=0.1",
    )


def learned(daemon, name):
    """The tensors that a job gave, by key, as bytes."""
    output = daemon.folder / f"download-{name}"
    daemon.run("download", name, output)
    (weights,) = output.glob("*model.safetensors")
    return {key: tensor.tobytes() for key, tensor in load_file(weights).items()}


def steps_of(daemon, name, epoch):
    """Steps and losses of metrics.jsonl of an attempt, in the order of the lines."""
    lines = metric_lines(daemon.attempt(name, epoch) / "metrics.jsonl")
    return [(line["global_step"], line["loss"]) for line in lines]


def evaluations_of(daemon, name, epoch):
    """Steps and losses of the evaluations of an attempt, in the order of the lines."""
    lines = evaluation_lines(daemon.attempt(name, epoch) / "metrics.jsonl")
    return [(line["global_step"], line["eval_loss"]) for line in lines]


class Undisturbed:
    """A run that nobody disturbs: what all others must equal."""

    def __init__(self, daemon, job, steps):
        name = daemon.submit(*job)
        daemon.wait_state(name, "SUCCEEDED")
        self.weights = learned(daemon, name)
        self.steps = steps_of(daemon, name, 1)
        self.evaluations = evaluations_of(daemon, name, 1)
        self.numbers = list(range(1, steps + 1))

    def check(self, test, daemon, name, epoch, bits=True):
        """The job ended in this attempt with the same losses, each step and evaluation once, and
        weights. Without `bits` the losses are those up to the order of sums."""
        job = daemon.wait_state(name, "SUCCEEDED")
        test.assertEqual(job["epoch"], epoch)
        test.assertEqual([step for step, _ in self.steps], self.numbers)
        if not bits:
            theirs = [loss for _, loss in steps_of(daemon, name, epoch)]
            for ours, their in zip([loss for _, loss in self.steps], theirs, strict=True):
                test.assertAlmostEqual(ours, their, delta=LOSS_SLACK * abs(ours))
            return job
        test.assertEqual(steps_of(daemon, name, epoch), self.steps)
        test.assertEqual(evaluations_of(daemon, name, epoch), self.evaluations)
        weights = learned(daemon, name)
        test.assertEqual(weights.keys(), self.weights.keys())
        changed = [key for key, tensor in weights.items() if tensor != self.weights[key]]
        test.assertEqual(changed, [])
        return job
