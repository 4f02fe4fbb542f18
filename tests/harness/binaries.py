"""Where the binaries under test are: SNUG_BIN_DIR, as ctest sets it, else build/bin of the
checkout. Which device jobs run on: SNUG_TEST_DEVICE, else cpu:0; tests that ctest lists once more
with the label gpu run on gpu:0."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = os.environ.get("SNUG_TEST_DEVICE", "cpu:0")
ON_GPU = DEVICE.startswith("gpu:")


def binary(name):
    """Path of a built program."""
    folder = pathlib.Path(os.environ.get("SNUG_BIN_DIR", ROOT / "build" / "bin"))
    return folder / name


def worker_binary():
    """The worker of DEVICE."""
    return binary("snug-worker-cuda" if ON_GPU else "snug-worker")


def probe_binary():
    """The probe of DEVICE."""
    return binary("snug-probe-cuda" if ON_GPU else "snug-probe")
