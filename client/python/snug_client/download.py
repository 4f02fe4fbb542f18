"""What a job has made, file by file into a folder: from where an earlier try has ended, and each
compared with the hash that the daemon says."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from collections.abc import Callable, Iterable, Sequence

from snug.v1 import artifact_pb2

from snug_client.errors import SnugError

Read = Callable[[artifact_pb2.Artifact, int], Iterable[artifact_pb2.FileChunk]]

_CHUNK_BYTES = 1 << 20


def fetch(
    artifacts: Sequence[artifact_pb2.Artifact], target: pathlib.Path, read: Read
) -> Sequence[pathlib.Path]:
    """All of them into `target`, which is there whole or not at all: until then they are in a
    folder beside it, which stays when this fails. `read`: a file's chunks from an offset on."""
    names = "\n".join(each.name for each in artifacts)
    partial = target.with_name(f"{target.name}.part-{_hex(names.encode())[:12]}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir(mode=0o700, exist_ok=True)
    _check_ours(partial)
    paths = [_path(partial, each) for each in artifacts]
    for other in partial.rglob("*"):
        if other not in paths and not stat.S_ISDIR(other.lstat().st_mode):
            other.unlink()
    for artifact, path in zip(artifacts, paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch_one(artifact, path, read)
    partial.chmod(0o755)
    partial.replace(target)
    return [target / each.path for each in artifacts]


def _fetch_one(artifact: artifact_pb2.Artifact, path: pathlib.Path, read: Read) -> None:
    there = path.lstat().st_size if path.exists() else 0
    if there > artifact.bytes:
        path.unlink()
        there = 0
    with _append(path) as file:
        if there < artifact.bytes:
            for chunk in read(artifact, there):
                file.write(chunk.content)
    if path.stat().st_size == artifact.bytes and _hash_of(path) == artifact.sha256:
        return
    path.unlink()
    if there > 0:  # What was there was not of this file.
        return _fetch_one(artifact, path, read)
    raise SnugError(f"{artifact.path} is not what the daemon says; try again", code="DATA_LOSS")


def _append(path: pathlib.Path):
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o666), "ab")


def _hash_of(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_ours(partial: pathlib.Path) -> None:
    """A folder that somebody else has made, or may write to, is no place for them."""
    found = partial.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & 0o022:
        raise SnugError(f"{partial} is there, and is not yours alone", code="FAILED_PRECONDITION")


def _path(folder: pathlib.Path, artifact: artifact_pb2.Artifact) -> pathlib.Path:
    path = pathlib.PurePosixPath(artifact.path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        message = f"the daemon sent a path outside of the folder: {artifact.path}"
        raise SnugError(message, code="DATA_LOSS")
    return folder / path
