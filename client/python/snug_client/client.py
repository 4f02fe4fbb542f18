"""Client: the calls of the daemon's API, one method each."""

from __future__ import annotations

import json
import os
import pathlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

import grpc
from snug.v1 import artifact_pb2, job_pb2, metrics_pb2, service_pb2, service_pb2_grpc

from snug_client.download import fetch
from snug_client.errors import JobFailed, SnugError, from_rpc
from snug_client.spec import to_spec
from snug_client.words import word_of

ENDED = frozenset(
    {job_pb2.Job.STATE_SUCCEEDED, job_pb2.Job.STATE_FAILED, job_pb2.Job.STATE_CANCELLED}
)

_MAX_MESSAGE_BYTES = 16 << 20  # As the command line: a page of jobs is below 3 MiB.
_RECONNECT_S = 600.0  # An upgrade of the daemon, with a person in it.
_SERVICE_SOCKET = "/run/snug/snug.sock"
_RETRY_S = 0.5  # Between two attempts to reach it.
_AWAY_S = 30.0  # Of a download, for which the daemon is away or is called too often.
_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]

_Path = Union[str, "os.PathLike[str]"]


def default_server() -> str:
    """SNUG_SERVER, else the socket that a daemon of this user listens on by default; where there is
    none, and the Debian package's service listens, the service's."""
    if os.environ.get("SNUG_SERVER"):
        return os.environ["SNUG_SERVER"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = f"{runtime}/snug" if runtime else f"/tmp/snug-{os.geteuid()}"
    own = f"{folder}/snug.sock"
    of_service = os.geteuid() == 0 or not os.path.exists(own) and os.path.exists(_SERVICE_SOCKET)
    return f"unix:{_SERVICE_SOCKET if of_service else own}"


def state_of(job: job_pb2.Job) -> str:
    """The state's name: "RUNNING"."""
    return word_of(job_pb2.Job.State.DESCRIPTOR, job.state)


class Client:
    """A connection to a daemon. Every method raises SnugError when the call is refused.

    JOB arguments are a job's id, an unambiguous beginning of it, or its name.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        tls_ca: _Path | None = None,
        tls_cert: _Path | None = None,
        tls_key: _Path | None = None,
    ):
        """`server`: unix:PATH or https://HOST:PORT; default: as the command line.

        With https: `token`, else SNUG_TOKEN, or the client's own certificate and its key where the
        server asks for them; `tls_ca`, else SNUG_TLS_CA, is whose certificates the server may have.
        The last three are files in PEM.
        """
        server = server or default_server()
        if server.startswith("https://"):
            files = (tls_ca or os.environ.get("SNUG_TLS_CA"), tls_key, tls_cert)
            token = token or os.environ.get("SNUG_TOKEN")
            self._channel = _tls_channel(server, token, *map(_read, files))
        elif server.startswith("unix:"):
            self._channel = grpc.insecure_channel(server, _OPTIONS)
        else:
            raise SnugError(
                f"server must be unix:PATH or https://HOST:PORT, not {server!r}",
                code="INVALID_ARGUMENT",
            )
        self._stub = service_pb2_grpc.FineTuningStub(self._channel)

    def close(self) -> None:
        """Jobs go on."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, request: Any) -> Any:
        try:
            return getattr(self._stub, method)(request)
        except grpc.RpcError as error:
            raise from_rpc(error) from error

    def submit(
        self, job: Mapping[str, Any] | job_pb2.JobSpec | None = None, **keys: Any
    ) -> job_pb2.Job:
        """Hands in a job: a job file's keys, as a mapping or as keyword arguments. It is durable
        when this returns."""
        request = service_pb2.CreateJobRequest(spec=_spec(job, keys), request_id=str(uuid.uuid4()))
        return self._call("CreateJob", request)

    def plan(
        self, job: Mapping[str, Any] | job_pb2.JobSpec | None = None, **keys: Any
    ) -> service_pb2.PlanJobResponse:
        """Predicts what a job would need; runs nothing."""
        return self._call("PlanJob", service_pb2.PlanJobRequest(spec=_spec(job, keys)))

    def get(self, job: str) -> job_pb2.Job:
        """One job, as it is now."""
        return self._call("GetJob", service_pb2.GetJobRequest(id=job))

    def list(self, *, all: bool = False, labels: Mapping[str, str] = {}) -> Iterator[job_pb2.Job]:
        """Jobs that have not ended, newest first; with `all`, every job. Pages as it goes."""
        request = service_pb2.ListJobsRequest(all=all, labels=labels)
        return self._pages("ListJobs", request, "jobs")

    def watch(self, job: str, *, progress: bool = False) -> Iterator[job_pb2.Job]:
        """Snapshots of a job until it has ended, one for each change. Goes on where the daemon
        restarts. `progress`: draws a bar as well (needs tqdm)."""
        if not progress:
            yield from self._snapshots(job)
            return
        from snug_client.progress import Bar

        bar = Bar(job)
        try:
            for snapshot in self._snapshots(job):
                bar.show(snapshot)
                yield snapshot
        finally:
            bar.close()

    def wait(self, job: str, *, progress: bool = False) -> job_pb2.Job:
        """The job once it has succeeded. Raises JobFailed when it has failed or was cancelled."""
        for last in self.watch(job, progress=progress):
            pass
        if last.state != job_pb2.Job.STATE_SUCCEEDED:
            raise JobFailed(last)
        return last

    def _snapshots(self, job: str) -> Iterator[job_pb2.Job]:
        give_up, heard, ended = None, False, False
        while not ended:
            stream = self._stub.WatchJob(service_pb2.WatchJobRequest(id=job))
            try:
                for snapshot in stream:
                    give_up, heard, job = None, True, snapshot.name or snapshot.id
                    yield snapshot
                    # The stream's own end is awaited: a call that is cancelled while the
                    # interpreter exits may hold grpcio's locks for ever.
                    ended = snapshot.state in ENDED
            except grpc.RpcError as error:
                # The daemon restarts, or ends a stream to bound its length; the job goes on.
                if ended:
                    return
                if not heard or error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise from_rpc(error) from error
                give_up = give_up or time.monotonic() + _RECONNECT_S
                if time.monotonic() > give_up:
                    raise from_rpc(error) from error
                time.sleep(_RETRY_S)
            finally:
                stream.cancel()

    def metrics(self, job: str) -> Iterator[dict[str, Any]]:
        """The lines of its metrics.jsonl so far: one for each step and each evaluation, in
        the order of their steps, from the first step over all attempts."""
        request = service_pb2.GetJobLogsRequest(id=job, metrics=True)
        rest = b""
        try:
            for chunk in self._stub.GetJobLogs(request):
                # What is behind the last end of a line is still being written.
                *lines, rest = (rest + chunk.text).split(b"\n")
                yield from map(json.loads, lines)
        except grpc.RpcError as error:
            raise from_rpc(error) from error

    def metric_history(
        self,
        job: str,
        metrics: Sequence[str] = (),
        *,
        after_step: int = 0,
        max_points: int = 0,
    ) -> metrics_pb2.GetMetricHistoryResponse:
        """Those metrics (default: all) as series over steps, each of at most `max_points` points
        (default: 1000), which stand for stretches of steps where there are more."""
        request = metrics_pb2.GetMetricHistoryRequest(
            id=job, metrics=metrics, after_step=after_step, max_points=max_points
        )
        return self._call("GetMetricHistory", request)

    def cancel(self, job: str, *, keep: bool = False) -> job_pb2.Job:
        """Stops it. With `keep` a running one exports what there is, for `download`."""
        return self._call("CancelJob", service_pb2.CancelJobRequest(id=job, keep=keep))

    def pause(self, job: str) -> job_pb2.Job:
        """Stops it for now: a running one saves a checkpoint and gives back its device."""
        return self._call("PauseJob", service_pb2.PauseJobRequest(id=job))

    def resume(self, job: str) -> job_pb2.Job:
        """Puts a paused job back to its place in the queue."""
        return self._call("ResumeJob", service_pb2.ResumeJobRequest(id=job))

    def checkpoints(self, job: str) -> Iterator[artifact_pb2.Checkpoint]:
        """Those that are there, newest first."""
        return self._pages(
            "ListCheckpoints", artifact_pb2.ListCheckpointsRequest(id=job), "checkpoints"
        )

    def artifacts(
        self, job: str, *, checkpoint: int | None = None
    ) -> Iterator[artifact_pb2.Artifact]:
        """The files of its output, or of the checkpoint of a step, with their hashes."""
        request = artifact_pb2.ListArtifactsRequest(id=job, checkpoint_step=checkpoint)
        return self._pages("ListArtifacts", request, "artifacts")

    def download(
        self, job: str, directory: str | os.PathLike[str], *, checkpoint: int | None = None
    ) -> Sequence[pathlib.Path]:
        """Copies what it made, or the checkpoint of a step, to a folder that must be empty or not
        exist: all of it or nothing. Called again, it goes on where it broke off. Each file is
        compared with the daemon's hash of it. Gives the files' paths."""
        target = pathlib.Path(directory).absolute()
        if target.exists() and any(target.iterdir()):
            raise SnugError(f"{target} is not empty", code="ALREADY_EXISTS")
        try:
            return fetch(list(self.artifacts(job, checkpoint=checkpoint)), target, self._chunks)
        except grpc.RpcError as error:
            raise from_rpc(error) from error

    def _chunks(
        self, artifact: artifact_pb2.Artifact, offset: int
    ) -> Iterator[artifact_pb2.FileChunk]:
        give_up = None
        while True:
            request = artifact_pb2.DownloadJobRequest(id=artifact.name, offset=offset)
            try:
                for chunk in self._stub.DownloadJob(request):
                    give_up = None
                    offset += len(chunk.content)
                    yield chunk
                return
            except grpc.RpcError as error:
                give_up = give_up or time.monotonic() + _AWAY_S
                if error.code() not in _PASSING or time.monotonic() > give_up:
                    raise
                time.sleep(_RETRY_S)

    def _pages(self, method: str, request: Any, field: str) -> Iterator[Any]:
        while True:
            page = self._call(method, request)
            yield from getattr(page, field)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _read(path: _Path | None) -> bytes | None:
    return pathlib.Path(path).read_bytes() if path else None


def _tls_channel(
    server: str, token: str | None, ca: bytes | None, key: bytes | None, cert: bytes | None
) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    if token:
        call = grpc.access_token_call_credentials(token.strip())
        credentials = grpc.composite_channel_credentials(credentials, call)
    target = server.removeprefix("https://").removesuffix("/")
    return grpc.secure_channel(target, credentials, _OPTIONS)


def _spec(
    job: Mapping[str, Any] | job_pb2.JobSpec | None, keys: Mapping[str, Any]
) -> job_pb2.JobSpec:
    if isinstance(job, job_pb2.JobSpec):
        if keys:
            raise TypeError("a JobSpec takes no further keys")
        return job
    return to_spec({**(job or {}), **keys})
