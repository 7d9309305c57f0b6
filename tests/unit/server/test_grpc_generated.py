"""The ``.proto`` files have every verb, and our reading of them is that of protoc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from fairlane.model.policy import QueuePolicy
from fairlane.verbs.table import VERBS
from fairlane.wire.grpc import descriptors
from fairlane.wire.grpc.descriptors import FILES, descriptor_of, file_of, text_of


def test_the_files_are_current() -> None:
    """Nothing of the table of verbs is missing; run tools/make_proto.py if it is."""
    command = [sys.executable, "tools/make_proto.py", "--check"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_verb_has_a_method() -> None:
    """Each is in the service that its verb names, and beside them there is only the stream of deliveries."""
    services = {name: of for file in FILES for name, of in descriptor_of(file).services_by_name.items()}
    found = {(name, method.name) for name, service in services.items() for method in service.methods}
    assert found == {(verb.service, verb.method) for verb in VERBS.values()} | {("Broker", "Consume")}


def test_every_field_of_a_policy_says_whether_it_is_given() -> None:
    """A create or an update has some fields of a policy, so 0 and "not given" must differ for each single value."""
    policy = descriptor_of("admin").message_types_by_name["QueuePolicy"]
    assert {field.name for field in policy.fields} == set(QueuePolicy.__struct_fields__)
    assert [field.name for field in policy.fields if not field.is_repeated and not field.has_presence] == []


def test_descriptors_are_those_of_protoc(tmp_path: Path) -> None:
    """Every file means to us what it means to the compiler that programs in other languages use."""
    root = Path(descriptors.__file__).parent / "proto"
    names = [f"fairlane/v1/{name}.proto" for name in FILES]
    assert protoc.main(["protoc", f"-I{root}", f"--descriptor_set_out={tmp_path / 'set'}", *names]) == 0
    theirs = FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    assert [plain(file_of(name, text_of(name))) for name in FILES] == [plain(file) for file in theirs]


def plain(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a file without what only one of the two says."""
    for message in file.message_type:
        _strip(message)
    for service in file.service:
        for method in service.method:
            method.client_streaming, method.server_streaming = method.client_streaming, method.server_streaming
    return file


def _strip(message: DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _strip(nested)
