# SPDX-License-Identifier: Apache-2.0
"""The protocol's messages, made from `protocol.binpb` when this module is read.

The file is the FileDescriptorSet of the files of proto/oxbow/v1 that the package speaks (tools/python_protocol.py
writes and checks it). Code that protoc generates works with few versions of protobuf; descriptors work with all.
The descriptors have a pool of their own, so no other package's messages get in the way.
"""
from __future__ import annotations

import os
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

REVISION = 1  # As kProtocolRevision in src/rpc/protocol_revision.h says what it means.
MESSAGE_BYTES_MAX = 16 << 20  # Every oxbow service has this limit, in both directions.
# gRPC obeys http_proxy and its relatives by default, which are for the world outside; services of a run are not there.
_HTTP_PROXY = os.environ.get("OXBOW_HTTP_PROXY", "") not in ("", "0", "false")
CHANNEL_OPTIONS: list[tuple[str, Any]] = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                                          ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
                                          ("grpc.enable_http_proxy", int(_HTTP_PROXY))]


def _health_file() -> descriptor_pb2.FileDescriptorProto:
    """grpc/health/v1/health.proto, as far as Check needs it; the enum is an int32 on the wire."""
    file = descriptor_pb2.FileDescriptorProto(name="grpc/health/v1/health.proto",
                                              package="grpc.health.v1", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for message, name, kind in (("HealthCheckRequest", "service", field.TYPE_STRING),
                                ("HealthCheckResponse", "status", field.TYPE_INT32)):
        file.message_type.add(name=message).field.add(name=name, number=1, type=kind,
                                                      label=field.LABEL_OPTIONAL)
    return file


def _pool() -> descriptor_pool.DescriptorPool:
    data = resources.files(__package__).joinpath("protocol.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in [*descriptor_pb2.FileDescriptorSet.FromString(data).file, _health_file()]:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()


def message(name: str) -> Any:
    """The class of a message, by its full name: `oxbow.v1.ScoreRequest`."""
    descriptor = _POOL.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and later
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_POOL).GetPrototype(descriptor)
