"""Says which pinned requirements are not installed: one `name==version` a line, nothing when all
are.

Usage: python check_pins.py requirements.txt...
A package counts when its version is the pinned one and its RECORD is there, which pip writes last:
an install that was interrupted does not count. Knows nothing of what the pinned packages need in
turn.
"""

import importlib.metadata
import sys


def pins(path):
    """The `name==version` lines of a requirements file."""
    with open(path, encoding="utf-8") as file:
        lines = (line.split("#")[0].strip() for line in file)
        return [line for line in lines if line]


def is_installed(pin):
    name, version = pin.split("==")
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    # A wheel may carry a local version: 2.11.0+cu130 is 2.11.0.
    return distribution.version.split("+")[0] == version and distribution.files is not None


for requirements in sys.argv[1:]:
    for pin in pins(requirements):
        if not is_installed(pin):
            print(pin)
