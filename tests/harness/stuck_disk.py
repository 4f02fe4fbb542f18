"""A file system of FUSE with one file, which nobody comes back from opening: who is killed in it
cannot end, as behind a disk or a driver that does not answer. In a Linux of its own (guest.py).
"""

import ctypes
import os
import pathlib
import struct
import threading

MODULE = "/usr/lib/uml/modules/{release}/kernel/fs/fuse/fuse.ko"
FINIT_MODULE = 313  # A system call that the C library has no function for.
MNT_FORCE = 1
# Of its protocol: https://www.kernel.org/doc/html/latest/filesystems/fuse.html, linux/fuse.h.
LOOKUP, FORGET, GETATTR, OPEN, STATFS, INIT = 1, 2, 3, 14, 17, 26
INTERRUPT, DESTROY, BATCH_FORGET = 36, 38, 42
UNANSWERED = (FORGET, OPEN, INTERRUPT, DESTROY, BATCH_FORGET)
ENOSYS = 38
ROOT, FILE = 1, 2
MODES = {ROOT: 0o40755, FILE: 0o100644}


def _call(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def _attributes(node):
    size_and_times = [0] * 8
    return struct.pack("6Q10I", node, *size_and_times, MODES[node], 1, 0, 0, 0, 4096, 0)


def _answer(kind, node):
    """The bytes of an answer; None: there is no such call here."""
    if kind == INIT:
        return struct.pack("4I2H2I2H8I", 7, 31, 0, 0, 1, 1, 4096, 1, 0, 0, *[0] * 8)
    if kind == LOOKUP:
        return struct.pack("4Q2I", FILE, 0, 0, 0, 0, 0) + _attributes(FILE)
    if kind == GETATTR:
        return struct.pack("Q2I", 0, 0, 0) + _attributes(node)
    if kind == STATFS:
        return struct.pack("5Q10I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0, *[0] * 6)
    return None


class StuckDisk:
    """Mounted at `folder`, which is made, until release()."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.libc = ctypes.CDLL(None, use_errno=True)
        if not os.path.exists("/dev/fuse"):
            self._load()
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0".encode()
        _call(
            self.libc.mount(b"stuck", os.fsencode(self.folder), b"fuse", 0, options),
            f"mount of FUSE at {folder}",
        )
        self.opened = threading.Event()  # Somebody is in it.
        threading.Thread(target=self._serve, daemon=True).start()

    def _load(self):
        with open(MODULE.format(release=os.uname().release), "rb") as module:
            _call(self.libc.syscall(FINIT_MODULE, module.fileno(), b"", 0), "load of FUSE")

    def _serve(self):
        while True:
            try:
                request = os.read(self.device, 1 << 20)
            except OSError:  # It is unmounted.
                return
            kind, unique, node = struct.unpack_from("=IQQ", request, 4)
            if kind == OPEN:
                self.opened.set()
            if kind in UNANSWERED:
                continue
            body = _answer(kind, node)
            error = 0 if body is not None else -ENOSYS
            body = body or b""
            os.write(self.device, struct.pack("IiQ", 16 + len(body), error, unique) + body)

    def release(self):
        """Those that are in it get an error, and end."""
        self.libc.umount2(os.fsencode(self.folder), MNT_FORCE)
