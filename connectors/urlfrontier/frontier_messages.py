"""The messages of URL Frontier, made from the .proto file beside this module when they are first needed."""

from __future__ import annotations

import tempfile
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from opicflow.schemas.errors import UserError

SERVICE = "urlfrontier.URLFrontier"
_PROTO = "urlfrontier.proto"


class FrontierRefused(UserError, RuntimeError):
    """A URL Frontier cannot be reached, or has other crawls or queues. The message is one line."""


@cache
def message_class(name: str) -> Any:
    """Return the class of a message, such as `URLItem`."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"urlfrontier.{name}"))


@cache
def _pool() -> Any:
    try:
        from grpc_tools import protoc
    except ImportError:
        raise FrontierRefused(
            "urlfrontier: the package grpcio-tools is missing: pip install 'opicflow[urlfrontier]'"
        ) from None
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    with as_file(files(__package__) / _PROTO) as proto, tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        if protoc.main(["protoc", f"-I{proto.parent}", f"--descriptor_set_out={out}", proto.name]):
            raise RuntimeError(f"{proto}: protoc does not take it")
        found = FileDescriptorSet.FromString(out.read_bytes())
    pool = DescriptorPool()
    for file in found.file:
        pool.Add(file)
    return pool
