"""Protobuf files that everybody has: registries do not list them among a schema's references."""

from __future__ import annotations

import importlib
import re

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

# google/type comes with googleapis-common-protos, where that is installed.
_GOOGLE = re.compile(r"google/(?:protobuf|type)/[a-z_]{1,40}\.proto")
_DECIMAL = "confluent/type/decimal.proto"


def well_known_file(name: str) -> FileDescriptorProto:
    """The file of this name; an empty one where it is not known.

    Most imports that no reference stands for hold options only, which decoding does not use. A type that is
    missed is found to be missing when the schema is put together.
    """
    made = FileDescriptorProto(name=name, syntax="proto3")
    if name == _DECIMAL:
        made.package = "confluent.type"
        decimal = made.message_type.add(name="Decimal")
        for number, (field, type_) in enumerate(
            (
                ("value", FieldDescriptorProto.TYPE_BYTES),
                ("precision", FieldDescriptorProto.TYPE_UINT32),
                ("scale", FieldDescriptorProto.TYPE_INT32),
            ),
            start=1,
        ):
            decimal.field.add(
                name=field, number=number, type=type_, label=FieldDescriptorProto.LABEL_OPTIONAL
            )
        return made
    if _GOOGLE.fullmatch(name):
        try:
            module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            return made
        module.DESCRIPTOR.CopyToProto(made)
    return made
