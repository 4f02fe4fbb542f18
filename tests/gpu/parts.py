"""What runs in the hour, part by part, the most valuable first.

A program is a command line under a timeout of its own. Words in braces stand for what the machine
decides: {bin} and {test} the kit's folders, {python}, {models} configurations, {out} the results.
What a program prints as lines of JSON are its figures.
"""

import pathlib
from dataclasses import dataclass, field

from tests.gpu import models

PART_S = 520  # Under nine minutes, with something left for unpacking.
STEP = ("--device", "gpu:0", "--threads", "8", "--bf16", "--rows", "4", "--tokens", "2048")

# Ten kernels whose tests compute-sanitizer watches: those that share memory between threads.
SANITIZED = (
    "fused_rms_norm",
    "cross_entropy",
    "columns",
    "softmax",
    "normalize",
    "affine",
    "dropout",
    "quantize",
    "attention",
    "sampling",
)


@dataclass
class Program:
    name: str
    command: list
    timeout_s: int = 60
    environment: dict = field(default_factory=dict)


def step(name, model, *options, timeout_s=60, head_width=128):
    path = f"{{models}}/{model}-{head_width}"
    return Program(name, ["{test}/snug-step-cuda", "--model", path, *STEP, *options], timeout_s)


def python(name, module, *words, timeout_s=120):
    return Program(name, ["{python}", "-m", module, *words], timeout_s)


def unittests(name, path, *tests, timeout_s=150):
    return Program(
        name,
        ["{python}", "-B", f"{{root}}/tests/{path}.py", *tests],
        timeout_s,
        {"SNUG_TEST_DEVICE": "gpu:0"},
    )


def kernel_tests(folder):
    """Those that the kit carries; none of what takes more memory than a GPU may be asked for."""
    names = sorted(p.name for p in pathlib.Path(folder).glob("kernels_*_test_cuda"))
    return [
        Program(name, ["{test}/" + name], 40) for name in names if "far_rows" not in name
    ]


def bring_up(test_folder):
    small = ["--steps", "3", "--lora", "16", "--rows", "2", "--tokens", "512"]
    model = ["--model", "{models}/100m-64"]
    worker = "{test}/worker_"
    return [
        Program("machine", ["nvidia-smi"], 20),
        Program("loss_gpu", ["{test}/snug-step-cuda", *model, *small, "--device", "gpu:0"], 60),
        Program("loss_cpu", ["{test}/snug-step", *model, *small, "--threads", "16"], 90),
        step("step_8b_keep", "8b", "--recompute", "0", "--steps", "3"),
        *(
            Program(
                f"context_{i}", ["{bin}/snug-worker-cuda", "--measure-context", "gpu:0"], 30
            )
            for i in range(3)
        ),
        Program("flash", [worker + "execute_gpu_flash_attention_test"], 40),
        Program("device", [worker + "execute_gpu_gpu_device_test_cuda"], 40),
        Program("tape", [worker + "execute_gpu_tape_test_cuda"], 60),
        Program("attempt", [worker + "train_gpu_attempt_test_cuda"], 60),
        *kernel_tests(test_folder),
    ]


def speed(_):
    return [
        step("keep", "8b", "--recompute", "0", "--steps", "5"),
        step("keep_profile", "8b", "--recompute", "0", "--steps", "2", "--profile"),
        step("half", "8b", "--recompute", "16", "--steps", "4"),
        step("full", "8b", "--recompute", "32", "--steps", "4"),
        python("ceilings", "tests.gpu.ceilings", timeout_s=80),
        python("eager_flash", "tests.gpu.eager", "--attention", "flash", timeout_s=80),
        python("eager_cudnn", "tests.gpu.eager", "--attention", "cudnn", timeout_s=80),
        python("eager_liger", "tests.gpu.eager", "--attention", "flash", "--liger", timeout_s=80),
    ]


def truth(_):
    watched = [
        Program(
            f"{tool}_{name}",
            ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "5"]
            + [f"{{test}}/kernels_{name}_test_cuda", "--gtest_filter=-*SameBits*"],
            25,
        )
        for name in SANITIZED
        for tool in ("memcheck", "racecheck")
    ]
    kernels = ["{test}/kernels_benchmark", "--device", "cuda", "--seconds", "0.05"]
    return [
        python("memory", "tests.gpu.memory", "--models", "{models}", timeout_s=260),
        Program("kernels", kernels, 150),
        *watched,
    ]


def service(_):
    return [
        unittests("worker_kill", "fault/worker_kill_test"),
        unittests("daemon_kill", "fault/daemon_kill_test"),
        unittests("cap", "e2e/cap_test"),
        python("two_at_once", "tests.gpu.two_at_once", "--models", "{models}", timeout_s=90),
        python("above_free", "tests.gpu.above_free", timeout_s=60),
        unittests("parity_bf16", "parity/bf16_test", timeout_s=200),
        unittests("main_job", "e2e/main_job_test", timeout_s=200),
    ]


def probes(_):
    names = ("shared_read", "map_times", "pinned_copies", "graph_capture")
    return [Program(name, ["{test}/snug-gpu-probes", name], 60) for name in names]


PARTS = {"A": bring_up, "B": speed, "C": truth, "D": service, "E": probes}


def write_models(folder):
    for size in models.SIZES:
        for head_width in models.HEAD_WIDTHS:
            models.write(folder, size, head_width)
