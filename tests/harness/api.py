"""Calls of snug.v1.FineTuning over gRPC, by their names: with messages that protoc makes of the
schema, or with bytes that are none."""

import functools
import pathlib
import subprocess
import tempfile

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from tests.harness.binaries import ROOT

SERVICE = "snug.v1.FineTuning"
DETAILS = "grpc-status-details-bin"


@functools.cache
def methods():
    """Descriptors of the service's methods, by their names."""
    with tempfile.NamedTemporaryFile() as file:
        line = ["protoc", f"-I{ROOT}/proto", "--include_imports"]
        line += [f"--descriptor_set_out={file.name}", "snug/v1/service.proto"]
        subprocess.run(line, check=True)
        content = pathlib.Path(file.name).read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.Add(each)
    return {method.name: method for method in pool.FindServiceByName(SERVICE).methods}


def request(method, **fields):
    """The bytes of a request, its fields given as JSON has them."""
    kind = message_factory.GetMessageClass(methods()[method].input_type)
    return json_format.ParseDict(fields, kind()).SerializeToString()


def answer(method, content):
    """An answer as JSON has it, fields by their names in the schema."""
    kind = message_factory.GetMessageClass(methods()[method].output_type)
    return json_format.MessageToDict(kind.FromString(content), preserving_proto_field_name=True)


def dial(socket):
    """A connection of its own to a daemon's unix socket."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    return grpc.insecure_channel(f"unix:{socket}", options=options)


def raw(channel, method):
    """What calls the method with bytes and gives bytes."""
    of = methods()[method]
    kind = "stream" if of.client_streaming else "unary"
    kind += "_stream" if of.server_streaming else "_unary"
    return getattr(channel, kind)(f"/{SERVICE}/{method}")


def call(channel, method, timeout=60, **fields):
    """The answer of a call that has one, or the grpc.RpcError."""
    return answer(method, raw(channel, method)(request(method, **fields), timeout=timeout))


def follow(channel, method, timeout=600, **fields):
    """The stream of a call that answers with one; each message as answer() gives it."""
    for content in raw(channel, method)(request(method, **fields), timeout=timeout):
        yield answer(method, content)


def refusal(channel, method, content, timeout=60):
    """The status code and the error's details, bytes, of a call with these bytes; of an OK call
    (OK, b"")."""
    of = methods()[method]
    try:
        ask = iter([content]) if of.client_streaming else content
        answered = raw(channel, method)(ask, timeout=timeout)
        if of.server_streaming:
            for _ in answered:
                pass
        return grpc.StatusCode.OK, b""
    except grpc.RpcError as error:
        trailing = dict(error.trailing_metadata() or ())
        return error.code(), trailing.get(DETAILS, b"")


def spec_of(daemon, script, **more):
    """A JobSpec for a FakeDaemon, whose worker follows the script."""
    paths = {"model": str(daemon.jobs / "model"), "dataset": str(daemon.jobs / "train.jsonl")}
    return {"display_name": script, "method": "METHOD_LORA", **paths, **more}
