"""In which formats somebody wants to see keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["auto", "text", "json", "hex", "avro", "protobuf", "jsonschema", "msgpack", "cbor"]

TITLES = {
    "avro": "Avro",
    "protobuf": "Protobuf",
    "jsonschema": "JSON Schema",
    "msgpack": "MsgPack",
    "cbor": "CBOR",
}
OF_REGISTRY = ("avro", "protobuf", "jsonschema")
AS_BYTES = ("text", "json", "hex")
"""Chosen ways to show the bytes as they are: nothing is decoded."""


@dataclass(frozen=True, slots=True)
class Choice:
    """``auto``: as the bytes say themselves."""

    key: Format = "auto"
    value: Format = "auto"


AUTOMATIC = Choice()
UNDECODED = Choice("hex", "hex")
