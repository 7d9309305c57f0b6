"""The gRPC interface: health, reflection, and the port it listens on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fairlane import errors
from fairlane.server.interfaces.grpc_server import SERVICES, GrpcInterface
from fairlane.server.settings import ServerSettings, check, load
from tests.unit.server.grpc_client import called, refused, stub
from tests.unit.server.local_server import opened, run


def test_health_is_told_without_a_key() -> None:
    """The server and each service are well; of others nothing is known."""

    async def main() -> None:
        async with called(requires_auth=True) as caller:
            health = stub(health_pb2_grpc.HealthStub, caller.channel)
            for name in ("", *SERVICES):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            error = await refused(health.Check(health_pb2.HealthCheckRequest(service="none")))
            assert error.code() == grpc.StatusCode.NOT_FOUND

    run(main())


async def reflected(channel: grpc.aio.Channel, **request: str) -> Any:
    """Ask the reflection service one thing."""
    call = stub(reflection_pb2_grpc.ServerReflectionStub, channel).ServerReflectionInfo()
    asked: Any = reflection_pb2.ServerReflectionRequest
    await call.write(asked(**request))
    await call.done_writing()
    return await call.read()


def test_a_client_that_knows_nothing_can_call() -> None:
    """As grpcurl does: list the services, ask for their files, build the messages, call."""

    async def main() -> None:
        async with called() as caller:
            await caller.enqueue(b"a", b"b")
            listed = await reflected(caller.channel, list_services="")
            names = {service.name for service in listed.list_services_response.service}
            assert names >= {*SERVICES, "grpc.health.v1.Health"}
            found = await reflected(caller.channel, file_containing_symbol="fairlane.v1.Admin")
            pool = DescriptorPool()
            files = [
                descriptor_pb2.FileDescriptorProto.FromString(data)
                for data in found.file_descriptor_response.file_descriptor_proto
            ]
            missing = {name for file in files for name in file.dependency} - {file.name for file in files}
            for name in missing:
                more = await reflected(caller.channel, file_by_filename=name)
                data = more.file_descriptor_response.file_descriptor_proto[0]
                files.insert(0, descriptor_pb2.FileDescriptorProto.FromString(data))
            for file in sorted(files, key=lambda file: len(file.dependency)):
                pool.Add(file)
            method = pool.FindServiceByName("fairlane.v1.Admin").FindMethodByName("GetStats")
            request: Any = GetMessageClass(method.input_type)()
            request.queue = "orders"
            data = await caller.raw("/fairlane.v1.Admin/GetStats", request.SerializeToString())
            answer: Any = GetMessageClass(method.output_type).FromString(data)
            assert answer.waiting == 2

    run(main())


def test_a_port_that_is_taken_is_refused() -> None:
    """Two servers never share a port without knowing."""

    async def main() -> None:
        async with opened() as server:
            one, other = GrpcInterface(server.context), GrpcInterface(server.context)
            port = one.listen("127.0.0.1:0")
            await one.start()
            with pytest.raises(errors.InvalidArgument, match=str(port)):
                other.listen(f"127.0.0.1:{port}")
            await one.stop()
            await other.stop()

    run(main())


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    """Settings say what is wrong before anything is opened."""
    with pytest.raises(errors.InvalidArgument, match="grpc_port must be"):
        check(ServerSettings(grpc_port=port))


def test_a_port_comes_from_everywhere_and_by_default_there_is_none() -> None:
    """Nobody who does without gRPC needs grpcio."""
    assert load(None, {}, {}).grpc_port is None
    assert load("grpc_port = 1", {}, {}).grpc_port == 1
    assert load("grpc_port = 1", {"FAIRLANE_GRPC_PORT": "2"}, {}).grpc_port == 2
    assert load(None, {"FAIRLANE_GRPC_PORT": "2"}, {"grpc_port": "3"}).grpc_port == 3


def test_without_grpcio_it_is_told_what_to_install() -> None:
    """The error names the packages that gRPC needs."""
    script = "import sys; sys.modules['grpc'] = None; import fairlane.server.interfaces.grpc_server"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "install fairlane[grpc]" in result.stderr
