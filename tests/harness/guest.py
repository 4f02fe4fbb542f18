"""A Linux of its own for tests of what this machine's kernel may not have: Debian's User Mode
Linux, a kernel that runs as a process, on this machine's files, with control groups of version 2
and all their controllers. Nothing that happens in it outlives it but files.

    status, output = run(["python", "-m", "unittest", ...], environment)

python -m tests.harness.guest FOLDER is the first process there.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile

from tests.harness.binaries import ROOT

MEMORY = "3G"  # That it believes to have; this machine gives what is touched.
KERNEL = [
    "linux.uml",
    "root=/dev/root",
    "rootfstype=hostfs",
    "rootflags=/",
    "rw",
    "quiet",
    f"mem={MEMORY}",
    "con=null",
    "con0=null,fd:1",
]
MOUNTS = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tmpfs", "/run"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/mnt"),  # Of temporary files.
]
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
POWER_OFF = 0x4321FEDC


def run(command, environment, seconds):
    """The command's exit status, or None where it was not reached, and what was printed."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run.json").write_text(json.dumps([command, environment]))
        init = folder / "init"
        words = [sys.executable, "-m", "tests.harness.guest", name]
        init.write_text(
            f"#!/bin/sh\ncd {shlex.quote(str(ROOT))}\nexec {shlex.join(words)} >/dev/console 2>&1\n"
        )
        init.chmod(0o755)
        with open(folder / "printed", "wb") as printed:
            kernel = subprocess.Popen(
                [*KERNEL, f"init={init}"],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # With the processes that it makes of its own ones.
            )
        with contextlib.suppress(subprocess.TimeoutExpired):
            kernel.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)
        kernel.wait()
        status = folder / "status"
        reached = int(status.read_text()) if status.exists() else None
        output = (folder / "printed").read_bytes().decode(errors="replace")
        return reached, output.replace("\r", "")


def _mount():
    libc = ctypes.CDLL(None, use_errno=True)
    for kind, place in MOUNTS:
        pathlib.Path(place).mkdir(exist_ok=True)
        if libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None) != 0:
            raise OSError(ctypes.get_errno(), f"mount of {kind} at {place}")


def _raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def _wait_for(child):
    """Its exit status; those that others leave behind are waited for as well."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def main(folder):
    _mount()
    _raise_loopback()
    command, environment = json.loads((pathlib.Path(folder) / "run.json").read_text())
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": "/mnt", **environment}
    child = os.posix_spawnp(command[0], command, environment)
    (pathlib.Path(folder) / "status").write_text(str(_wait_for(child)))
    os.sync()
    ctypes.CDLL(None).reboot(POWER_OFF)


if __name__ == "__main__":
    main(sys.argv[1])
