"""One training run of transformers + peft in a process of its own: step times and peak memory.

    python transformers_side.py FOLDER JSON   (a folder of workload.write, the job and "batch")

Prints one JSON object: {"step_seconds": [...], "tokens": [...] of each step, "max_rss_bytes": n,
"bare_rss_bytes": n, "step_bytes": n}. Eager PyTorch as a user runs it: sdpa attention, AdamW,
clipping; rows of unequal length padded to the longest of their batch. The job may say "how":
{"gradient_checkpointing": true} or, compiled, {"activation_memory_budget": share}, or {}; then
step_bytes is the most that a step from the second on takes beside what is there between steps.
"""

import ctypes
import json
import pathlib
import resource
import sys
import time

import torch
import torch._functorch.config as functorch_config
from peft import LoraConfig, get_peft_model

from tests.bench import tasks
from tests.bench.workload import threads
from tests.harness import models


def load(folder, job):
    """The model of a job, ready to train."""
    dtype = torch.bfloat16 if job["training"]["precision"] == "bf16" else torch.float32
    if "task" in job:
        task = tasks.TASKS[job["task"]]
        model, kind = task.auto.from_pretrained(f"{folder}/model", dtype=dtype).train(), task.peft
    else:
        model, kind = models.load_model(f"{folder}/model", dtype), "CAUSAL_LM"
    how = job.get("how", {})
    if how.get("gradient_checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if job["method"] == "lora":
        model = get_peft_model(model, LoraConfig(task_type=kind, **job["lora"]))
    if "activation_memory_budget" in how:
        functorch_config.activation_memory_budget = how["activation_memory_budget"]
        model = torch.compile(model, dynamic=False)
    return model


def padded(rows):
    """Arguments of the model for some rows, and how many tokens they have."""
    longest = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = labels[i, : len(row)] = torch.tensor(row)
    arguments = {"input_ids": ids, "labels": labels}
    if any(len(row) < longest for row in rows):
        arguments["attention_mask"] = (labels != -100).long()
    return arguments, sum(len(row) for row in rows)


def batches(folder, job):
    """Arguments and tokens of batches of rows, over and over."""
    with open(f"{folder}/train.jsonl", encoding="utf-8") as lines:
        rows = [json.loads(line)["input_ids"] for line in lines]
    while True:
        for first in range(0, len(rows), job["batch"]):
            yield padded(rows[first : first + job["batch"]])


def train(folder, job):
    """Seconds and tokens of each step."""
    model = load(folder, job)
    training = job["training"]
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=training["learning_rate"], weight_decay=0.0)
    source = (tasks if "task" in job else sys.modules[__name__]).batches(folder, job)
    seconds, tokens, step_bytes = [], [], 0
    for step in range(training["max_steps"]):
        arguments, count = next(source)
        if "pixel_values" in arguments:  # Swin does not do it itself.
            arguments["pixel_values"] = arguments["pixel_values"].to(model.dtype)
        # The first step compiles and fills pools.
        before = resident_bytes() if step and "how" in job else None
        start = time.perf_counter()
        model(**arguments).loss.backward()
        if training["max_grad_norm"]:
            torch.nn.utils.clip_grad_norm_(parameters, training["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
        tokens.append(count)
        if before is not None:
            step_bytes = max(step_bytes, memory_line("VmHWM") - before)
    return {"step_seconds": seconds, "tokens": tokens, "step_bytes": step_bytes}


def memory_line(name):
    """Bytes of a line of this process's status."""
    lines = pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def resident_bytes():
    """What is there now; the maximum counts from here on."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return memory_line("VmRSS")


def max_rss_bytes():
    """Largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    """Prints the figures of one run; bare: Python and its libraries before anything is loaded."""
    torch.set_num_threads(threads())
    bare = max_rss_bytes()
    found = train(sys.argv[1], json.loads(sys.argv[2]))
    found |= {"max_rss_bytes": max_rss_bytes(), "bare_rss_bytes": bare}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
