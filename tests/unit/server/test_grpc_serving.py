"""The gRPC interface: health, reflection, and the port it listens on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fairlane import errors
from fairlane.server.interfaces.grpc_health import HealthChecks
from fairlane.server.interfaces.grpc_reads import MessageReads
from fairlane.server.interfaces.grpc_server import SERVICES, GrpcInterface
from fairlane.server.settings import ServerSettings, check, load
from fairlane.wire.grpc import broker_pb2_grpc
from tests.unit.server.grpc_client import called, refused, stub, trailing
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


class SilentContext:
    """The server's end of a call whose client sends its message when the test says so."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.is_reading, self.is_sent = asyncio.Event(), asyncio.Event()
        self._address = address

    def peer(self) -> str:
        return f"ipv4:{self._address}:50000"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def read(self) -> bytes:
        self.is_reading.set()
        await self.is_sent.wait()
        return b""


def test_a_stalled_health_check_delays_none_of_another_address() -> None:
    """A client without an API key takes the turn of its own address only."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            handler: Any = HealthChecks(server.context).handler()
            check = handler.service(SimpleNamespace(method="/grpc.health.v1.Health/Check")).stream_unary
            stalled, other = SilentContext("192.0.2.1"), SilentContext("192.0.2.2")
            tasks = [asyncio.create_task(check(None, context)) for context in (stalled, other)]
            await stalled.is_reading.wait()
            await other.is_reading.wait()
            for context in (stalled, other):
                context.is_sent.set()
            for answer in await asyncio.gather(*tasks):
                assert answer.status == health_pb2.HealthCheckResponse.SERVING

    run(main())


def test_calls_without_a_message_are_bounded() -> None:
    """A caller can't take all calls that the server serves at a time by sending nothing; others are not affected."""

    async def main() -> None:
        reads = MessageReads(calls_max=2, caller_reads_max=1)
        silent = [SilentContext() for _ in range(2)]
        tasks = [asyncio.create_task(reads.read(as_context(context), "ann")) for context in silent]
        await silent[0].is_reading.wait()
        with pytest.raises(errors.TooManyWaiters, match="2 calls of this caller have sent no message"):
            await reads.read(as_context(SilentContext()), "ann")
        sent = SilentContext()
        sent.is_sent.set()
        assert await reads.read(as_context(sent), "bob") == b""
        for context in silent:
            context.is_sent.set()
        assert await asyncio.gather(*tasks) == [b"", b""]
        assert await reads.read(as_context(sent), "ann") == b""

    run(main())


def as_context(context: SilentContext) -> Any:
    """Return a context as what gRPC passes."""
    return context


def test_a_consumer_that_does_not_open_is_ended() -> None:
    """A Consume call without its first message does not last, so it can't take a place for good."""

    async def main() -> None:
        async with opened() as server:
            interface = GrpcInterface(server.context, read_s_max=0.01)
            port = interface.listen("127.0.0.1:0")
            await interface.start()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                error = await refused(stub(broker_pb2_grpc.BrokerStub, channel).Consume().read())
                assert trailing(error)["fairlane-code"] == "wait_timed_out"
            await interface.stop()

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
