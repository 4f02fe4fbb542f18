"""Whether this machine lets a process trace another and change its system calls, as User Mode Linux
does with all of its processes and tries when it starts. For x86-64, as that.

python -m tests.harness.tracing prints what is refused.
"""

import ctypes
import os
import signal

# Of linux/ptrace.h, and places in struct user of sys/user.h.
TRACEME, PEEKUSER, POKEUSER, OLDSETOPTIONS, SYSCALL = 0, 3, 6, 21, 24
TRACESYSGOOD = 1
RESULT, CALL = 8 * 10, 8 * 15  # rax, orig_rax
GETPID, GETPPID = 39, 110

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def _ask(request, pid, place=0, value=0):
    ctypes.set_errno(0)
    answer = LIBC.ptrace(request, pid, place, value)
    if ctypes.get_errno() != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def _be_traced():
    try:
        _ask(TRACEME, 0)
    except OSError as error:
        os._exit(error.errno)
    os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(1000):  # One is waited for.
        os.getpid()
    os._exit(0)


def _go_on(child):
    """To where its next system call begins or ends."""
    _ask(SYSCALL, child)
    os.waitpid(child, 0)


def _change_a_call(child):
    """Whether its next getpid can be made a getppid."""
    _ask(OLDSETOPTIONS, child, 0, TRACESYSGOOD)
    _go_on(child)
    while _ask(PEEKUSER, child, CALL) != GETPID:
        _go_on(child)
    _ask(POKEUSER, child, CALL, GETPPID)
    _go_on(child)
    return _ask(PEEKUSER, child, RESULT) == os.getpid()


def refusal():
    """What of it is refused, and how; empty: nothing."""
    child = os.fork()
    if child == 0:
        _be_traced()
    _, status = os.waitpid(child, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        return f"PTRACE_TRACEME: {os.strerror(os.waitstatus_to_exitcode(status))}"
    try:
        return "" if _change_a_call(child) else "a system call stays what it was"
    except OSError as error:
        return f"changing a system call: {error.strerror}"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    print(refusal())
