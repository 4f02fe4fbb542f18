"""Where the binaries under test are: SNUG_BIN_DIR, as ctest sets it, else build/bin of the
checkout."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def binary(name):
    """Path of a built program."""
    folder = pathlib.Path(os.environ.get("SNUG_BIN_DIR", ROOT / "build" / "bin"))
    return folder / name
