"""Predicted, counted and seen bytes of a step, over models, plans and widths of heads.

Predicted: snug-step's account before it runs. Counted: its allocator's peak. Seen: how much more of
the GPU its driver counted (cudaMemGetInfo) at the end than before the process began, and what the
driver counts for the process (NVML, by nvidia-smi). The context is what was taken when the process
had opened the GPU.
"""

import argparse
import json
import pathlib
import subprocess
import threading
import time

from tests.gpu import models
from tests.gpu.day import TEST

MIB = 1 << 20
SECONDS = {"100m": 20, "1b": 25, "8b": 45}
# From the small to the large: what a time that runs out leaves is a whole table of the small ones.
PLANS = {"keep": 0.0, "half": 0.5, "full": 1.0}


def ask(*query):
    done = subprocess.run(
        ["nvidia-smi", *query, "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def used_mib():
    return int(ask("--query-gpu=memory.used").split()[0])


class Watch:
    """The most that the driver counted for a process, looked at until it is stopped."""

    def __init__(self, pid):
        self.pid, self.most, self.on = pid, 0, True
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self):
        while self.on:
            for line in ask("--query-compute-apps=pid,used_memory").splitlines():
                words = line.replace(",", " ").split()
                if len(words) == 2 and words[0] == str(self.pid) and words[1].isdigit():
                    self.most = max(self.most, int(words[1]))
            time.sleep(0.2)

    def stop(self):
        self.on = False
        self.thread.join()
        return self.most


def measure(folder, size, head_width, plan, share):
    path = models.write(folder, size, head_width)
    recompute = round(share * models.layers(size))
    command = [TEST / "snug-step-cuda", "--model", path, "--device", "gpu:0", "--bf16"]
    command += ["--rows", "4", "--tokens", "2048", "--steps", "2", "--recompute", str(recompute)]
    before = used_mib()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = Watch(process.pid)
    try:
        output, errors = process.communicate(timeout=SECONDS[size])
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
    nvml = watch.stop()
    row = {"row": f"{size}_{head_width}_{plan}", "code": process.returncode}
    if process.returncode != 0:
        return {**row, "error": errors[-300:]}
    report = json.loads(output.splitlines()[-1])
    opened, _, end = report["taken_bytes"]
    return {
        **row,
        "predicted_mib": report["predicted_bytes"] / MIB,
        "counted_mib": report["peak_bytes"] / MIB,
        "context_mib": opened / MIB - before,
        "seen_mib": (end - opened) / MIB,
        "nvml_mib": nvml,
        "step_seconds": report["step_seconds"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--models", required=True, type=pathlib.Path)
    options = parser.parse_args()
    for size in models.SIZES:
        for head_width in models.HEAD_WIDTHS:
            for plan, share in PLANS.items():
                row = measure(options.models, size, head_width, plan, share)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
