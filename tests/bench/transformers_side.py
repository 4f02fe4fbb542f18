"""One training run of transformers + peft in a process of its own: step times and peak memory.

    python transformers_side.py FOLDER JSON   (a folder of workload.write, the job as JSON)

Prints one JSON object: {"step_seconds": [...], "max_rss_bytes": n, "bare_rss_bytes": n}. Eager
PyTorch as a user runs it: padding-free batch, sdpa attention, AdamW, clipping; no gradient
checkpointing.
"""

import json
import resource
import sys
import time

import torch
from peft import LoraConfig, get_peft_model

from tests.bench.workload import threads
from tests.harness import models


def load(folder, job):
    """The model of a job, ready to train."""
    dtype = torch.bfloat16 if job["training"]["precision"] == "bf16" else torch.float32
    model = models.load_model(f"{folder}/model", dtype)
    if job["method"] == "lora":
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **job["lora"]))
    return model


def batches(folder, batch):
    """Batches of token ids, over and over."""
    with open(f"{folder}/train.jsonl", encoding="utf-8") as lines:
        rows = torch.tensor([json.loads(line)["input_ids"] for line in lines])
    while True:
        yield from rows.split(batch)


def train(folder, job):
    """Seconds of each step."""
    model = load(folder, job)
    training = job["training"]
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=training["learning_rate"], weight_decay=0.0)
    source = batches(folder, training["per_device_train_batch_size"])
    seconds = []
    for _ in range(training["max_steps"]):
        ids = next(source)
        start = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, training["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return seconds


def max_rss_bytes():
    """Largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    """Prints the figures of one run; bare: Python and its libraries before anything is loaded."""
    torch.set_num_threads(threads())
    bare = max_rss_bytes()
    seconds = train(sys.argv[1], json.loads(sys.argv[2]))
    peak = max_rss_bytes()
    found = {"step_seconds": seconds, "max_rss_bytes": peak, "bare_rss_bytes": bare}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
