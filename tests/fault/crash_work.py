"""What an operator and a user of uploads do beside the jobs of tests/fault/crash.py, and what must
hold of it after each start."""

import hashlib
import os
import sqlite3
import subprocess

AUDIT_BYTES = 32 << 20  # Of audit.log, which then becomes audit.log.1 (server/api/audit.h).
PATIENCE_S = 20.0


class Lost(Exception):
    """Something that must hold does not."""


def fill_audit_log(state):
    """As large as it gets, nearly: the next line is one of a new file. A file of holes."""
    path = state / "audit.log"
    path.touch(mode=0o600)
    os.truncate(path, AUDIT_BYTES - 1)


def restore(daemon, setting):
    """Puts the store's own copy in its place with `snugd --restore`, killed at the failpoint, and
    then again without one. What was there before is there afterwards."""
    database, copy = daemon.state / "snug.db", daemon.folder / "copy.db"
    copy.unlink(missing_ok=True)
    connection = sqlite3.connect(database)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.close()
    command = [os.environ["SNUG_FAILING_DAEMON"], "--state-dir", daemon.state]
    command += ["--socket", daemon.socket, "--device", daemon.device, *daemon.flags]
    command += ["--restore", copy]
    for point in (setting, ""):
        hits = str(daemon.folder / "hits")
        environment = {**os.environ, "SNUG_FAILPOINT": point, "SNUG_FAILPOINT_LOG": hits}
        with open(daemon.folder / "snugd.log", "ab") as out:
            done = subprocess.run(
                list(map(str, command)), check=False, env=environment, stdout=out, stderr=out
            )
    if done.returncode != 0:
        raise Lost(f"snugd --restore ends with {done.returncode} after {setting}")
    for old in daemon.state.glob("snug.db.replaced-*"):
        old.unlink()


class Files:
    """Uploads, their deletions, and copies of the store, one after another."""

    def __init__(self, api, folder):
        self.api, self.folder, self.made = api, folder, 0
        self.kept, self.unsure = {}, set()  # By SHA-256; those that may or may not be there.

    def stub(self, channel, method, reply):
        """A call of a stream, of either side."""
        kind = getattr(channel, "stream_unary" if method == "UploadFile" else "unary_stream")
        return kind(
            f"/snug.v1.FineTuning/{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=reply.FromString,
        )

    def upload(self, channel):
        """Sends a small file; it is there once that is acknowledged."""
        content = f"row {self.made}\n".encode() * 50
        self.made += 1
        sha256 = hashlib.sha256(content).hexdigest()
        self.unsure.add(sha256)
        first = self.api.UploadFileRequest()
        first.header.filename = "rows.jsonl"
        first.header.sha256 = sha256
        rest = self.api.UploadFileRequest(content=content, last=True)
        file = self.api.File
        made = self.stub(channel, "UploadFile", file)(iter([first, rest]), timeout=PATIENCE_S)
        self.kept[sha256] = made.id
        self.unsure.discard(sha256)

    def delete(self, call):
        """Takes one away again."""
        if self.kept:
            sha256, name = self.kept.popitem()
            self.unsure.add(sha256)
            call("DeleteFile", self.api.DeleteFileRequest(file=name), "File")
            self.unsure.discard(sha256)

    def back_up(self, channel, service):
        """A copy of the store, whole."""
        chunk = service.FileChunk
        chunks = self.stub(channel, "BackupStore", chunk)(
            service.BackupStoreRequest(), timeout=PATIENCE_S
        )
        path = self.folder / "backup.db"
        path.write_bytes(b"".join(part.content for part in chunks))
        connection = sqlite3.connect(path)
        (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        connection.close()
        if said != "ok":
            raise Lost(f"a backup is damaged: {said}")

    def compare(self, listed, state):
        """Files that were acknowledged are there, deleted ones are not; no copy is left behind."""
        there = {file.sha256 for file in listed.files}
        if set(self.kept) - there:
            raise Lost(f"lost: uploads {set(self.kept) - there}")
        if there - set(self.kept) - self.unsure:
            raise Lost(f"deleted files are there: {there - set(self.kept) - self.unsure}")
        self.kept.update({file.sha256: file.id for file in listed.files})
        self.unsure.clear()
        if left := list(state.glob("snug.db.backup-*")):
            raise Lost(f"copies of the store are left behind: {left}")
