"""What a client learns of the service from the service alone, as grpcurl does, and that those who
only ask for that take nothing from the others.
"""

import json
import time
import unittest

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from tests.harness.fake_daemon import FakeDaemon

REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
METHOD = f"/{REFLECTION}/ServerReflectionInfo"
# Requests of grpc/reflection/v1alpha/reflection.proto, which the Python client does not bring:
# list_services is field 7, file_containing_symbol field 4, both are strings.
LIST_SERVICES = b"\x3a\x01*"


def file_with(symbol):
    """Asks for the file that declares the symbol."""
    return bytes([0x22, len(symbol)]) + symbol.encode()


def response_type():
    """ServerReflectionResponse, as far as it is read here."""
    file = descriptor_pb2.FileDescriptorProto(name="reflection.proto", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, label, kind, called, of in fields:
            made.field.add(name=called, number=number, label=label, type=kind, type_name=of)

    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    text, raw, nested = field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE
    message("Service", (1, one, text, "name", None))
    message("Services", (1, many, nested, "service", "Service"))
    message("Files", (1, many, raw, "file", None))
    message(
        "Response",
        (4, one, nested, "files", "Files"),
        (6, one, nested, "services", "Services"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Response"))


class ReflectionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = FakeDaemon()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.channel = grpc.insecure_channel(f"unix:{self.daemon.socket}")
        self.addCleanup(self.channel.close)
        self.reflect = self.channel.stream_stream(METHOD)

    def ask(self, request):
        """The service's answer to one question."""
        answer = next(iter(self.reflect(iter([request]), timeout=60)))
        return response_type().FromString(answer)

    def files_of(self, symbol):
        """Descriptors of all that the symbol's file needs, by their names."""
        found, wanted = {}, []
        for content in self.ask(file_with(symbol)).files.file:
            file = descriptor_pb2.FileDescriptorProto.FromString(content)
            found[file.name] = file
            wanted += file.dependency
        while missing := [name for name in wanted if name not in found]:
            # file_by_filename is field 3.
            request = bytes([0x1A, len(missing[0])]) + missing[0].encode()
            for content in self.ask(request).files.file:
                file = descriptor_pb2.FileDescriptorProto.FromString(content)
                found[file.name] = file
                wanted += file.dependency
        return found

    def test_it_lists_its_services(self):
        names = {service.name for service in self.ask(LIST_SERVICES).services.service}
        self.assertEqual(names, {"snug.v1.FineTuning", "grpc.health.v1.Health", REFLECTION})

    def test_a_client_that_knows_nothing_can_call_a_method(self):
        files = self.files_of("snug.v1.FineTuning")
        pool = descriptor_pool.DescriptorPool()

        def add(name):
            for needed in files[name].dependency:
                add(needed)
            pool.Add(files[name])

        add("snug/v1/service.proto")
        service = pool.FindServiceByName("snug.v1.FineTuning")
        method = service.FindMethodByName("GetServerInfo")
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        call = self.channel.unary_unary(
            "/snug.v1.FineTuning/GetServerInfo",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        info = json.loads(json_format.MessageToJson(call(request(), timeout=60)))
        self.assertEqual([device["name"] for device in info["devices"]], ["cpu:0"])

    def test_streams_that_stay_open_take_few_threads_and_nothing_from_others(self):
        def threads():
            status = f"/proc/{self.daemon.process.pid}/status"
            with open(status, encoding="utf-8") as lines:
                return next(int(line.split()[1]) for line in lines if line.startswith("Threads"))

        before = threads()
        held = [self.reflect(endless(), timeout=120) for _ in range(90)]
        refused = 0
        for stream in held:
            try:
                next(stream)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                refused += 1
        self.assertGreater(refused, 60)
        self.assertLessEqual(threads(), before + 20)
        self.assertEqual(self.daemon.json("devices")["devices"][0]["name"], "cpu:0")
        health = self.channel.unary_unary("/grpc.health.v1.Health/Check")
        self.assertEqual(health(b"", timeout=60), b"\x08\x01")  # SERVING
        for stream in held:
            stream.cancel()


def endless():
    """One question, and no end of the questions."""
    yield LIST_SERVICES
    while True:
        time.sleep(1)


if __name__ == "__main__":
    unittest.main()
