"""snug-probe, called from Python: trains on a prepared dataset and writes down what it did.

The program is a test tool around the worker's own trainer; this file is the one place that
knows its command line and its files:

    snug-probe --model DIR --data PREPARED_DIR --spec FILE --output DIR
               [--init-adapter DIR] [--plan keep|recompute|mixed] [--steps N]

    --spec     a JobSpec as proto JSON with every field given that has a default
    --plan     keep (default); recompute: every block; mixed: block i is run again when i is even
    --steps    optimizer steps, 1 if not given; max_steps of the spec only shapes the schedule

It writes in the output folder:
    gradients.safetensors  of step 1, all micro-batches added, before clipping; fp32, by the key
                           that the parameter has in the model file or in the adapter file
    weights.safetensors    every trained parameter after the last step, fp32, by the same keys
    losses.json            {"loss": [a number per step], "grad_norm": [...], "learning_rate": [...],
                            "step_seconds": [...],
                            "rows": [per step [per micro-batch [row numbers in their order]]]}
    memory.json            {"predicted_peak_bytes": n, "measured_peak_bytes": n, "arena_bytes": n}

It computes nothing itself and knows no tolerance.
"""

import dataclasses
import json
import pathlib
import subprocess

from safetensors.numpy import load_file

from tests.harness.binaries import DEVICE


@dataclasses.dataclass
class Probed:
    """What snug-probe wrote; arrays are numpy, by parameter key."""

    losses: list
    gradients: dict
    weights: dict
    rows: list
    losses_json: dict
    memory: dict


@dataclasses.dataclass
class Request:
    """One call of snug-probe. `spec` is a JobSpec as a dict."""

    model: pathlib.Path
    data: pathlib.Path
    spec: dict
    output: pathlib.Path
    init_adapter: pathlib.Path | None = None
    plan: str = "keep"
    steps: int = 1


def command(binary, request):
    """The command line of a request; writes the spec beside the output."""
    request.output.mkdir(parents=True, exist_ok=True)
    spec_file = request.output / "spec.json"
    spec_file.write_text(json.dumps(request.spec))
    line = [str(binary), "--model", str(request.model), "--data", str(request.data)]
    line += ["--device", DEVICE]
    line += ["--spec", str(spec_file), "--output", str(request.output)]
    line += ["--plan", request.plan, "--steps", str(request.steps)]
    if request.init_adapter:
        line += ["--init-adapter", str(request.init_adapter)]
    return line


def probe(binary, request):
    """Runs snug-probe and reads its files. Raises with its stderr when it fails."""
    done = subprocess.run(
        command(binary, request), capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"snug-probe exited {done.returncode}: {done.stderr[-4000:]}")
    losses = json.loads((request.output / "losses.json").read_text())
    return Probed(
        losses=losses["loss"],
        gradients=load_file(request.output / "gradients.safetensors"),
        weights=load_file(request.output / "weights.safetensors"),
        rows=losses["rows"],
        losses_json=losses,
        memory=json.loads((request.output / "memory.json").read_text()),
    )
