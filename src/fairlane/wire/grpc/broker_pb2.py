"""The messages of ``broker.proto``."""

from __future__ import annotations

from typing import Any, Final

from fairlane.wire.grpc.descriptors import descriptor_of, message_class

DESCRIPTOR: Final = descriptor_of("broker")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - classes that are made at run time
    return message_class("broker", name)
