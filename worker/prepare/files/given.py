"""Files that the daemon has opened and handed on: by their paths, whatever is there by now. All
others are opened where they are, as long as they are files: what else lies there could keep one
waiting."""

import errno
import io
import os
import stat

DESCRIPTORS = {}  # By path.
FOLDERS = set()  # All of whose files are given; each ends in one separator.


def take(descriptors):
    """`descriptors`: {path: number} of files that are open in this process."""
    DESCRIPTORS.update(descriptors)


def take_folder(folder, descriptors):
    """`descriptors`: {path within the folder: number} of its files that are open in this process.
    It has no others then, whatever is there."""
    FOLDERS.add(os.path.join(folder, ""))
    take({os.path.join(folder, name): number for name, number in descriptors.items()})


def exists(path):
    """Whether it can be opened, as far as its name tells."""
    return path in DESCRIPTORS or (not _is_in_given_folder(path) and os.path.exists(path))


def names_in(folder):
    """Names of what lies in a folder; none where there is no such folder."""
    if _is_in_given_folder(folder):
        return [os.path.basename(path) for path in DESCRIPTORS if os.path.dirname(path) == folder]
    return os.listdir(folder) if os.path.isdir(folder) else []


def _is_in_given_folder(path):
    return path.startswith(tuple(FOLDERS))


def read(path):
    """The bytes of a file, or its OSError."""
    with open_file(path, io.DEFAULT_BUFFER_SIZE) as file:
        return file.read()


def open_file(path, buffer_bytes):
    """As open(path, "rb") gives it, or its OSError."""
    if path in DESCRIPTORS:
        return io.BufferedReader(_Given(DESCRIPTORS[path], path), buffer_bytes)
    if _is_in_given_folder(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is no file", path)
    return open(number, "rb", buffering=buffer_bytes)


def open_text(path):
    """As open(path, encoding="utf-8") gives it, or its OSError."""
    return io.TextIOWrapper(open_file(path, io.DEFAULT_BUFFER_SIZE), encoding="utf-8")


class _Given(io.RawIOBase):
    """A descriptor that others read as well: its offset is nobody's."""

    def __init__(self, number, path):
        self._number, self._at, self.name = number, 0, path
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "it is no file", path)

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
