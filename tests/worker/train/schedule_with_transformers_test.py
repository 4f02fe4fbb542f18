"""Learning rates against transformers' get_scheduler: every step, to the last bit."""

import itertools
import json
import math
import os
import pathlib
import subprocess
import unittest

import torch
from transformers import get_scheduler

TOOL = pathlib.Path(os.environ["SNUG_BIN_DIR"]).parent / "tests/bin/show_schedule"

# lr_scheduler_type, lr_scheduler_kwargs
SCHEDULES = [
    ("linear", {}),
    ("cosine", {}),
    ("cosine", {"num_cycles": 1.3}),
    ("constant", {}),
    ("constant_with_warmup", {}),
    ("cosine_with_min_lr", {"min_lr": 3e-6}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.05, "num_cycles": 0.7}),
    ("cosine_with_restarts", {}),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", {}),
    ("polynomial", {"lr_end": 1e-5, "power": 2.5}),
    ("warmup_stable_decay", {"num_decay_steps": 11}),
    ("warmup_stable_decay", {"num_decay_steps": 9, "num_stable_steps": 8, "min_lr_ratio": 0.1}),
]
SCHEDULES += [
    (
        "warmup_stable_decay",
        {"num_decay_steps": 17, "warmup_type": rise, "decay_type": fall, "min_lr_ratio": 0.03},
    )
    for rise, fall in itertools.product(("linear", "cosine", "1-sqrt"), repeat=2)
]
RATE = 2.7e-4


def transformers_rates(name, kwargs, warmup, steps):
    """What the optimizer is given at each step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule = get_scheduler(
        name,
        optimizer,
        num_warmup_steps=warmup,
        num_training_steps=steps,
        scheduler_specific_kwargs=dict(kwargs),
    )
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def our_rates(cases, steps):
    """A list per case: (name, kwargs, warm-up as job fields)."""
    lines = []
    for name, kwargs, warmup in cases:
        training = {"lr_scheduler_type": name.upper(), "learning_rate": RATE, **warmup}
        training["lr_scheduler_kwargs"] = kwargs
        lines.append(json.dumps({"method": "LORA", "training": training}))
    done = subprocess.run(
        [TOOL, str(steps)], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    return [[float.fromhex(word) for word in line.split()] for line in done.stdout.splitlines()]


class ScheduleTest(unittest.TestCase):
    """Runs of 1 to 101 steps, with and without warm-up."""

    def test_every_step_equals_transformers(self):
        for steps, warmup in itertools.product((23, 40, 101), (0, 1, 7)):
            cases = [(name, kwargs, {"warmup_steps": warmup}) for name, kwargs in SCHEDULES]
            for (name, kwargs, _), ours in zip(cases, our_rates(cases, steps), strict=True):
                with self.subTest(name=name, kwargs=kwargs, steps=steps, warmup=warmup):
                    self.assertEqual(ours, transformers_rates(name, kwargs, warmup, steps))

    def test_a_warmup_ratio_is_rounded_up(self):
        cases = [("linear", {}, {"warmup_ratio": 0.03})]
        expected = transformers_rates("linear", {}, math.ceil(101 * 0.03), 101)
        self.assertEqual(our_rates(cases, 101)[0], expected)


if __name__ == "__main__":
    unittest.main()
