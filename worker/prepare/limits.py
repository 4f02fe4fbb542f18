"""What snug-prepare may not do, because its input is a stranger's: use more memory and CPU time
than it was given, dump core, or reach the network. Set before the first byte of input is read."""

import ctypes
import resource
import signal
import socket
import sys

from errors import PrepareError

CLONE_NEWNET = 0x40000000
UNKNOWN_FAMILY = -1  # Of a descriptor's socket, until Python asks the kernel.
GRACE_CPU_SECONDS = 5  # from SIGXCPU, which ends the run with a message, to the kernel's SIGKILL


def apply(memory_bytes, cpu_seconds):
    """Lowers the limits for good. PrepareError(PREPARE_LIMIT) is raised when the CPU time is
    spent."""
    _lower(resource.RLIMIT_AS, memory_bytes, memory_bytes)
    _lower(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + GRACE_CPU_SECONDS)
    _lower(resource.RLIMIT_CORE, 0, 0)

    def out_of_time(signum, frame):
        message = f"preparing took more than {cpu_seconds} s of CPU time"
        raise PrepareError("PREPARE_LIMIT", message)

    signal.signal(signal.SIGXCPU, out_of_time)
    _cut_network()


def _lower(which, soft, hard):
    _, current = resource.getrlimit(which)
    if current != resource.RLIM_INFINITY:
        soft, hard = min(soft, current), min(hard, current)
    resource.setrlimit(which, (soft, hard))


def _cut_network():
    # The daemon starts this in snug-confine, which refuses every socket. By hand, as root: a
    # network namespace of its own, with nothing in it. Otherwise this fails and the audit hook,
    # which cannot be taken out again, has to do: Python code can open no socket.
    ctypes.CDLL(None).unshare(CLONE_NEWNET)

    def refuse_sockets(event, args):
        if event.startswith("socket.") and not _is_of_a_pair(event, args):
            raise PermissionError("snug-prepare has no network")

    sys.addaudithook(refuse_sockets)


def _is_of_a_pair(event, args):
    """What files/given.py does with sockets that are connected already."""
    if event == "socket.__new__":
        return args[1] in (UNKNOWN_FAMILY, socket.AF_UNIX)
    return event == "socket.sendmsg" and args[1] is None
