"""Compiles a message's schema into a function that writes one version of it.

Called by ``wire/codec`` once per (class, version). Every writer has the shape
``write(message, out: bytearray) -> None``. A value that the version has no place for is dropped when
Kafka's specification calls the field ignorable; otherwise it is refused, because the peer would silently
get something else than what was said.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.schema import Field, Message, defaults_of
from tidelog.wire.source import MAX_STRING_BYTES, STRUCT_CODES, Source, is_fixed
from tidelog.wire.varint import ONE_BYTE, uvarint

Writer = Callable[[Any, bytearray], None]

_writers: dict[tuple[type[Message], int, bool], Writer] = {}


def writer_of(message: type[Message], version: int, flexible: bool) -> Writer:
    """The writer for one version of a message or of a structure nested in it."""
    key = (message, version, flexible)
    found = _writers.get(key)
    if found is None:
        found = _writers[key] = _WriterSource(message, version, flexible).build()
    return found


def refuse_value(owner: str, name: str, version: int) -> KafkaError:
    """What to raise for a value that the version cannot carry."""
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, f"{owner}.{name} has a value that version {version} cannot carry"
    )


def refuse_length(owner: str, name: str) -> KafkaError:
    """What to raise for a string that no version can carry."""
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{owner}.{name} is longer than {MAX_STRING_BYTES} bytes")


class _WriterSource:
    """Source of one writer; ``m`` is the message, ``out`` the bytes so far."""

    def __init__(self, message: type[Message], version: int, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.defaults = defaults_of(message)
        self.source = Source("def write(m, out):")
        self.source.names.update(
            uvarint=uvarint,
            ONE_BYTE=ONE_BYTE,
            refuse_value=refuse_value,
            refuse_length=refuse_length,
            pack=struct.pack,
        )
        present = [field for field in message.FIELDS if field.present_in(version)]
        self.plain = [field for field in present if not field.tagged_in(version)]
        tagged = [field for field in present if field.tagged_in(version)]
        self.tagged = sorted(tagged, key=lambda field: field.tag or 0)

    def build(self) -> Writer:
        self._refuse_what_has_no_place()
        self._plain_fields()
        if self.tagged:
            self._tagged_section()
        elif self.flexible:
            self.source.add("out.append(0)")
        else:
            self.source.add("return")
        return self.source.function("write", f"writer of {self.message.__name__} v{self.version}")

    def _refuse(self, field: Field) -> str:
        return f"raise refuse_value({self.message.__name__!r}, {field.name!r}, {self.version})"

    def _refuse_what_has_no_place(self) -> None:
        for field in self.message.FIELDS:
            if field.present_in(self.version) or field.ignorable:
                continue
            default = self.source.bind(self.defaults[field.name])
            self.source.add(f"if m.{field.name} != {default}:", f"    {self._refuse(field)}")

    def _plain_fields(self) -> None:
        index = 0
        while index < len(self.plain):
            run = index
            while run < len(self.plain) and is_fixed(self.plain[run]):
                run += 1
            if run > index:
                fields = self.plain[index:run]
                layout, _ = self.source.bind_struct([STRUCT_CODES[str(field.type)] for field in fields])
                values = ", ".join(f"m.{field.name}" for field in fields)
                self.source.add(f"out += {layout}.pack({values})")
                index = run
            else:
                field = self.plain[index]
                self.source.add(f"v = m.{field.name}")
                self._value(field)
                index += 1

    def _value(self, field: Field) -> None:
        """Code that writes ``v``, a value of any type."""
        if field.nullable_in(self.version):
            self.source.add("if v is None:", f"    out += {self._null(field)!r}", "else:")
            self.source.depth += 1
            self._present_value(field)
            self.source.depth -= 1
            return
        if field.nullable_since is not None:
            self.source.add("if v is None:", f"    {self._refuse(field)}")
        self._present_value(field)

    def _null(self, field: Field) -> bytes:
        if not field.array and not isinstance(field.type, str):
            return b"\x00" if field.tagged_in(self.version) else b"\xff"
        if self.flexible:
            return b"\x00"
        return b"\xff\xff" if field.type == "string" and not field.array else b"\xff\xff\xff\xff"

    def _present_value(self, field: Field) -> None:
        if field.array:
            self._array(field)
        elif not isinstance(field.type, str):
            write = self.source.bind(writer_of(field.type, self.version, self.flexible))
            if field.nullable_in(self.version):
                self.source.add("out.append(1)")
            self.source.add(f"{write}(v, out)")
        elif is_fixed(field):
            layout, _ = self.source.bind_struct([STRUCT_CODES[field.type]])
            self.source.add(f"out += {layout}.pack(v)")
        else:
            self._blob(field)

    def _length(self, code: str) -> None:
        """Code that writes ``n`` as a length or count."""
        if self.flexible:
            self.source.add("out += ONE_BYTE[n + 1] if n < 127 else uvarint(n + 1)")
        else:
            layout, _ = self.source.bind_struct([code])
            self.source.add(f"out += {layout}.pack(n)")

    def _blob(self, field: Field) -> None:
        if field.type == "string":
            self.source.add(
                "v = v.encode()",
                "n = len(v)",
                f"if n > {MAX_STRING_BYTES}:",
                f"    raise refuse_length({self.message.__name__!r}, {field.name!r})",
            )
        else:
            self.source.add("n = len(v)")
        self._length("h" if field.type == "string" else "i")
        self.source.add("out += v")

    def _array(self, field: Field) -> None:
        self.source.add("n = len(v)")
        self._length("i")
        if isinstance(field.type, str) and field.type in STRUCT_CODES and field.type != "uuid":
            self.source.add(f"out += pack(f'>{{n}}{STRUCT_CODES[field.type]}', *v)")
            return
        self.source.add("for v in v:")
        self.source.depth += 1
        self._present_value(Field(field.name, field.type))
        self.source.depth -= 1

    def _tagged_section(self) -> None:
        """Code that writes the tagged fields which differ from their defaults, in order of their tags."""
        add = self.source.add
        add("section = bytearray()", "count = 0", "whole = out")
        for field in self.tagged:
            default = self.source.bind(self.defaults[field.name])
            add(f"v = m.{field.name}", f"if v != {default}:")
            self.source.depth += 1
            add("out = bytearray()")
            self._value(field)
            add(f"section += {uvarint(field.tag or 0)!r}", "section += uvarint(len(out))", "section += out")
            add("count += 1")
            self.source.depth -= 1
        add("whole += uvarint(count)", "whole += section")
