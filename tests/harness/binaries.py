"""Where the binaries under test are: SNUG_BIN_DIR, as ctest sets it, else build/bin of the
checkout. Which device jobs run on: SNUG_TEST_DEVICE, else cpu:0. Tests that ctest lists once more
as _gpu (label gpu) run on gpu:0; with SNUG_TEST_EMULATED that GPU is emulated."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = os.environ.get("SNUG_TEST_DEVICE", "cpu:0")
ON_GPU = DEVICE.startswith("gpu:")
EMULATED = "SNUG_TEST_EMULATED" in os.environ
_SUFFIX = "" if not ON_GPU else "-emulated" if EMULATED else "-cuda"


def binary(name):
    """Path of a built program."""
    folder = pathlib.Path(os.environ.get("SNUG_BIN_DIR", ROOT / "build" / "bin"))
    return folder / name


def worker_binary():
    """The worker of DEVICE."""
    return binary("snug-worker" + _SUFFIX)


def probe_binary():
    """The probe of DEVICE."""
    return binary("snug-probe" + _SUFFIX)
