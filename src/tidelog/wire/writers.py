"""Compiles a message's schema into a function that writes one version of it.

Called by ``wire/codec`` once per (class, version). Every writer has the shape
``write(message, out: bytearray) -> None``. A value that the version has no place for is dropped when
Kafka's specification calls the field ignorable; otherwise it is refused, because the peer would silently
get something else than what was said.

As with readers there is a second shape for large messages, a generator that yields every few elements, or
after many bytes; it only ever appends, so that what is written may be taken out of ``out`` in between. And a
message whose long array is already there as bytes is written around it: ``writers_around`` gives what stands
before the array's count and what stands behind its elements.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.readers import ELEMENTS_PER_SLICE, holds_arrays
from tidelog.wire.schema import Field, Message, defaults_of
from tidelog.wire.source import MAX_STRING_BYTES, STRUCT_CODES, Source, is_fixed
from tidelog.wire.varint import ONE_BYTE, uvarint

Writer = Callable[[Any, bytearray], None]
SlicedWriter = Callable[[Any, bytearray], Generator[None, None, None]]

_NUMBERS_PER_SLICE = 8192
_BYTES_PER_SLICE = 256 * 1024

_writers: dict[tuple[type[Message], int, bool, bool], Callable[..., Any]] = {}


def writer_of(message: type[Message], version: int, flexible: bool) -> Writer:
    """The writer for one version of a message or of a structure nested in it."""
    return _writer(message, version, flexible, sliced=False)


def sliced_writer_of(message: type[Message], version: int, flexible: bool) -> SlicedWriter:
    """The writer in slices for one version of a whole message."""
    write = _writer(message, version, flexible, sliced=True)
    return write if holds_arrays(message, version) else _as_generator(write)


def writers_around(message: type[Message], version: int, flexible: bool, array: str) -> tuple[Writer, Writer]:
    """Writers of what stands before ``array`` and of what stands behind it."""
    parts = (_WriterSource(message, version, flexible, around=(array, behind)) for behind in (False, True))
    before, behind = (part.build() for part in parts)
    return before, behind


def _writer(message: type[Message], version: int, flexible: bool, *, sliced: bool) -> Callable[..., Any]:
    key = (message, version, flexible, sliced and holds_arrays(message, version))
    found = _writers.get(key)
    if found is None:
        found = _writers[key] = _WriterSource(message, version, flexible, sliced=key[-1]).build()
    return found


def _as_generator(write: Writer) -> SlicedWriter:
    def generate(message: Any, out: bytearray) -> Generator[None, None, None]:
        yield
        write(message, out)

    return generate


def refuse_value(owner: str, name: str, version: int) -> KafkaError:
    """What to raise for a value that the version cannot carry."""
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, f"{owner}.{name} has a value that version {version} cannot carry"
    )


def refuse_length(owner: str, name: str) -> KafkaError:
    """What to raise for a string that no version can carry."""
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{owner}.{name} is longer than {MAX_STRING_BYTES} bytes")


def shortened(sentence: bytes) -> bytes:
    """Beginning and end of a sentence that is too long for an answer, with a name in it that was sent."""
    beginning, end = sentence[:3000].decode(errors="ignore"), sentence[-1000:].decode(errors="ignore")
    return f"{beginning} … {end}".encode()


class _WriterSource:
    """Source of one writer; ``m`` is the message, ``out`` the bytes so far."""

    def __init__(
        self,
        message: type[Message],
        version: int,
        flexible: bool,
        *,
        sliced: bool = False,
        around: tuple[str, bool] | None = None,
    ) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.sliced = sliced
        self.defaults = defaults_of(message)
        self.source = Source("def write(m, out):")
        self.source.names.update(
            uvarint=uvarint,
            ONE_BYTE=ONE_BYTE,
            refuse_value=refuse_value,
            refuse_length=refuse_length,
            shortened=shortened,
            pack=struct.pack,
        )
        present = [field for field in message.FIELDS if field.present_in(version)]
        self.plain = [field for field in present if not field.tagged_in(version)]
        tagged = [field for field in present if field.tagged_in(version)]
        self.tagged = sorted(tagged, key=lambda field: field.tag or 0)
        self.ends = True
        if around is not None:
            array, behind = around
            at = [field.name for field in self.plain].index(array)
            self.plain = self.plain[at + 1 :] if behind else self.plain[:at]
            self.ends = behind

    def build(self) -> Callable[..., Any]:
        self._refuse_what_has_no_place()
        self._plain_fields()
        if self.ends and self.tagged:
            self._tagged_section()
        elif self.ends and self.flexible:
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
            write = self.source.bind(_writer(field.type, self.version, self.flexible, sliced=self.sliced))
            if field.nullable_in(self.version):
                self.source.add("out.append(1)")
            again = "yield from " if self.sliced and holds_arrays(field.type, self.version) else ""
            self.source.add(f"{again}{write}(v, out)")
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
                "    v = shortened(v)"
                if field.name.endswith("error_message")
                else f"    raise refuse_length({self.message.__name__!r}, {field.name!r})",
            )
            if field.name.endswith("error_message"):
                self.source.add("    n = len(v)")
        else:
            self.source.add("n = len(v)")
        self._length("h" if field.type == "string" else "i")
        self.source.add("out += v")

    def _array(self, field: Field) -> None:
        self.source.add("n = len(v)")
        self._length("i")
        if isinstance(field.type, str) and field.type in STRUCT_CODES and field.type != "uuid":
            self._numbers(STRUCT_CODES[field.type])
            return
        if self.sliced:
            # Elements may be large; and who runs it may take away what is written so far.
            self.source.add("at = len(out)", "for count, v in enumerate(v):")
        else:
            self.source.add("for v in v:")
        self.source.depth += 1
        self._present_value(Field(field.name, field.type))
        if self.sliced:
            self.source.add(
                f"if not count % {ELEMENTS_PER_SLICE} or len(out) - at > {_BYTES_PER_SLICE}:",
                "    yield",
                "    at = len(out)",
            )
        self.source.depth -= 1

    def _numbers(self, code: str) -> None:
        if not self.sliced:
            self.source.add(f"out += pack(f'>{{n}}{code}', *v)")
            return
        self.source.add(
            f"for start in range(0, n, {_NUMBERS_PER_SLICE}):",
            f"    some = v[start : start + {_NUMBERS_PER_SLICE}]",
            f"    out += pack(f'>{{len(some)}}{code}', *some)",
            "    yield",
        )

    def _tagged_section(self) -> None:
        """Code that writes the tagged fields which differ from their defaults, in order of their tags."""
        add = self.source.add
        add("section = bytearray()", "tags = 0", "whole = out")
        for field in self.tagged:
            default = self.source.bind(self.defaults[field.name])
            add(f"v = m.{field.name}", f"if v != {default}:")
            self.source.depth += 1
            add("out = bytearray()")
            self._value(field)
            add(f"section += {uvarint(field.tag or 0)!r}", "section += uvarint(len(out))", "section += out")
            add("tags += 1")
            self.source.depth -= 1
        add("whole += uvarint(tags)", "whole += section")
