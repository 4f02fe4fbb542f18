"""Files of the dataset and of the model, and which there are.

The daemon opens them for this process, with the rights of the job's owner: it lists those that it
will open, and each is asked for by its path over a socket (server/data/file_server.h). Whatever
else lies on the disk does not exist then. A program that no daemon has started opens files where
they are.
"""

import errno
import io
import os
import socket
import stat
import sys

CODE_BYTES = 4  # Of an answer: 0, with a descriptor, or an errno.


class OnDisk:
    """Whatever is there."""

    def exists(self, path):
        return os.path.exists(path)

    def is_folder(self, path):
        return os.path.isdir(path)

    def names_below(self, folder):
        if not self.is_folder(folder):
            return
        for here, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = [name for name in folders if not _is_hidden(name)]
            inner = "" if here == folder else os.path.relpath(here, folder)
            yield from (os.path.join(inner, name) for name in names if not _is_hidden(name))

    def open(self, path):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


class Served:
    """What a daemon lists, each path ended by a zero byte, and opens."""

    def __init__(self, server, listing):
        """Numbers of descriptors: a socket of its own, and a file."""
        self._server = socket.socket(fileno=server)
        with open(listing, "rb") as file:
            listed = map(os.fsdecode, file.read().split(b"\0")[:-1])
        self._listed = {os.path.normpath(path): path for path in listed}
        self._folders = set()
        for path in self._listed:
            while (path := os.path.dirname(path)) not in self._folders:
                self._folders.add(path)

    def exists(self, path):
        return os.path.normpath(path) in self._listed

    def is_folder(self, path):
        return os.path.normpath(path) in self._folders

    def names_below(self, folder):
        top = os.path.join(os.path.normpath(folder), "")
        inner = (path[len(top) :] for path in self._listed if path.startswith(top))
        return (path for path in inner if not any(map(_is_hidden, path.split(os.sep))))

    def open(self, path):
        """Several processes may ask at once: each answer has a socket of its own."""
        listed = self._listed.get(os.path.normpath(path))
        if listed is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with mine:
            with theirs:
                socket.send_fds(self._server, [os.fsencode(listed)], [theirs.fileno()])
            code, numbers, _, _ = socket.recv_fds(mine, CODE_BYTES, 1)
        if numbers:
            return numbers[0]
        # A daemon that has gone says nothing.
        code = int.from_bytes(code, sys.byteorder) if len(code) == CODE_BYTES else errno.EIO
        raise OSError(code, os.strerror(code), path)


def _raise(error):
    raise error


def _is_hidden(name):
    return name.startswith(".")


_files = OnDisk()


def add_options(parser):
    """Of a program that a daemon starts."""
    parser.add_argument("--file-server", type=int)
    parser.add_argument("--file-list", type=int)


def serve(options):
    """Files come from the daemon from now on, where these options name its descriptors."""
    global _files
    if options.file_server is not None:
        _files = Served(options.file_server, options.file_list)


def exists(path):
    """Whether there is such a file, as far as its name tells."""
    return _files.exists(path)


def is_folder(path):
    return _files.is_folder(path)


def names_below(folder):
    """Paths from the folder of all files below it that are not hidden, in no order; none where
    there is no such folder."""
    return _files.names_below(folder)


def read(path):
    """The bytes of a file, or its OSError."""
    with open_file(path, io.DEFAULT_BUFFER_SIZE) as file:
        return file.read()


def open_file(path, buffer_bytes):
    """As open(path, "rb") gives it, or its OSError."""
    return io.BufferedReader(_File(_files.open(path), path), buffer_bytes)


def open_text(path):
    """As open(path, encoding="utf-8") gives it, or its OSError."""
    return io.TextIOWrapper(open_file(path, io.DEFAULT_BUFFER_SIZE), encoding="utf-8")


class _File(io.RawIOBase):
    """A descriptor that others may read as well: its offset is nobody's."""

    def __init__(self, number, path):
        self._number, self._at, self.name = number, 0, path
        if not stat.S_ISREG(os.fstat(number).st_mode):
            self.close()
            raise OSError(errno.EINVAL, "it is no file", path)

    def close(self):
        if not self.closed:
            os.close(self._number)
        super().close()

    def readable(self):
        return True

    def seekable(self):
        return True

    def readinto(self, buffer):
        read = os.preadv(self._number, [buffer], self._at)
        self._at += read
        return read

    def seek(self, offset, whence=os.SEEK_SET):
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        if start is None:
            start = os.fstat(self._number).st_size
        if start + offset < 0:
            raise OSError(errno.EINVAL, "before its beginning", self.name)
        self._at = start + offset
        return self._at

    def tell(self):
        return self._at
