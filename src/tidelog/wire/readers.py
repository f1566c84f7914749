"""Compiles a message's schema into a function that reads one version of it.

Called by ``wire/codec`` once per (class, version). Every reader has the shape
``read(buf: bytes, pos: int) -> (message, pos)`` and trusts nothing: a length or count is checked against
the bytes that remain before anything is allocated for it. Running off the end surfaces as ``IndexError``
or ``struct.error``, which ``codec.decode`` turns into :class:`WireError`.

For large messages there is a second shape of each reader, a generator that yields every few elements of an
array, so that others can run in between: ``read(view, pos, left)``. It reads from a memoryview, whose strings
and bytes it copies, and counts the elements of arrays against ``left[0]``. Structures that hold no array are
read at once in this shape too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from tidelog.errors import WireError
from tidelog.wire.schema import Field, Message
from tidelog.wire.source import MAX_STRING_BYTES, STRUCT_CODES, Source, is_fixed
from tidelog.wire.varint import read_tag_count, read_uvarint, skip_tags

Reader = Callable[[bytes, int], tuple[Message, int]]
SlicedReader = Callable[[memoryview, int, list[int]], Generator[None, None, tuple[Message, int]]]

ELEMENTS_PER_SLICE = 64
_NUMBERS_PER_SLICE = 8192

_readers: dict[tuple[type[Message], int, bool, bool], Callable[..., Any]] = {}


def reader_of(message: type[Message], version: int, flexible: bool) -> Reader:
    """The reader for one version of a message or of a structure nested in it."""
    return _reader(message, version, flexible, sliced=False)


def sliced_reader_of(message: type[Message], version: int, flexible: bool) -> SlicedReader:
    """The reader in slices for one version of a whole message."""
    read = _reader(message, version, flexible, sliced=True)
    return read if holds_arrays(message, version) else _as_generator(read)


def _reader(message: type[Message], version: int, flexible: bool, *, sliced: bool) -> Callable[..., Any]:
    key = (message, version, flexible, sliced)
    found = _readers.get(key)
    if found is None:
        found = _readers[key] = _ReaderSource(message, version, flexible, sliced=sliced).build()
    return found


def _as_generator(read: Callable[..., tuple[Message, int]]) -> SlicedReader:
    def generate(buf: memoryview, pos: int, left: list[int]) -> Generator[None, None, tuple[Message, int]]:
        yield
        return read(buf, pos, left)

    return generate


def holds_arrays(message: type[Message], version: int) -> bool:
    """Whether this version of a message can be of any length, but for its strings and bytes."""
    return any(
        field.array or (not isinstance(field.type, str) and holds_arrays(field.type, version))
        for field in message.FIELDS
        if field.present_in(version)
    )


def smallest_size(field: Field, version: int, flexible: bool) -> int:
    """Fewest bytes that one value of the field can take, an array's elements each on their own."""
    if isinstance(field.type, str):
        if field.type in STRUCT_CODES:
            return struct.calcsize(">" + STRUCT_CODES[field.type])
        if flexible:
            return 1
        return 2 if field.type == "string" else 4
    return _smallest_struct(field.type, version, flexible)


def _smallest_struct(message: type[Message], version: int, flexible: bool) -> int:
    size = 1 if flexible else 0
    for field in message.FIELDS:
        if not field.present_in(version) or field.tagged_in(version):
            continue
        if field.array:
            size += 1 if flexible else 4
        elif not isinstance(field.type, str) and field.nullable_in(version):
            size += 1
        else:
            size += smallest_size(field, version, flexible)
    return size


def refuse_null(owner: str, name: str) -> WireError:
    """What to raise for a null that the version does not allow."""
    return WireError(f"{owner}.{name} is null or has a negative length")


def refuse_count() -> WireError:
    """What to raise for a message with more elements than anybody needs."""
    return WireError("its request lists more things than this broker takes in one")


def refuse_size(owner: str, name: str, size: int) -> WireError:
    """What to raise for a length or count that the remaining bytes cannot hold."""
    return WireError(f"{owner}.{name} claims {size}, more than its message holds or the protocol allows")


class _ReaderSource:
    """Source of one reader; fields become local variables ``f0``, ``f1`` … in wire order."""

    def __init__(self, message: type[Message], version: int, flexible: bool, *, sliced: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.sliced = sliced
        self.source = Source("def read(buf, pos, left):" if sliced else "def read(buf, pos):")
        self.source.names.update(
            read_tag_count=read_tag_count,
            read_uvarint=read_uvarint,
            skip_tags=skip_tags,
            refuse_null=refuse_null,
            refuse_size=refuse_size,
            refuse_count=refuse_count,
            unpack_from=struct.unpack_from,
            WireError=WireError,
            Message=message,
        )
        present = [field for field in message.FIELDS if field.present_in(version)]
        self.plain = [field for field in present if not field.tagged_in(version)]
        self.tagged = [field for field in present if field.tagged_in(version)]

    def build(self) -> Reader:
        self._plain_fields()
        if self.tagged:
            self._tagged_section()
        elif self.flexible:
            self.source.add("if buf[pos]:", "    pos = skip_tags(buf, pos)", "else:", "    pos += 1")
        given = ", ".join(f"{field.name}=f{i}" for i, field in enumerate(self.plain))
        if self.tagged:
            given = f"{given}, **tagged" if given else "**tagged"
        self.source.add(f"return Message({given}), pos")
        return self.source.function("read", f"reader of {self.message.__name__} v{self.version}")

    def _plain_fields(self) -> None:
        index = 0
        while index < len(self.plain):
            run = index
            while run < len(self.plain) and is_fixed(self.plain[run]):
                run += 1
            if run > index:
                codes = [STRUCT_CODES[str(field.type)] for field in self.plain[index:run]]
                layout, size = self.source.bind_struct(codes)
                targets = "".join(f"f{i}, " for i in range(index, run))
                self.source.add(f"({targets}) = {layout}.unpack_from(buf, pos)", f"pos += {size}")
                index = run
            else:
                self._value(self.plain[index], f"f{index}")
                index += 1

    def _value(self, field: Field, target: str) -> None:
        """Code that reads one value of any type into a local variable."""
        if field.array:
            self._array(field, target)
        elif not isinstance(field.type, str):
            self._struct(field, target)
        elif is_fixed(field):
            layout, size = self.source.bind_struct([STRUCT_CODES[field.type]])
            self.source.add(f"({target},) = {layout}.unpack_from(buf, pos)", f"pos += {size}")
        else:
            self._blob(field, target, nullable=field.nullable_in(self.version))

    def _length(self, code: str) -> None:
        """Code that reads a length or count into ``n``; null is -1."""
        if self.flexible:
            self.source.add(
                "n = buf[pos] - 1",
                "pos += 1",
                "if n > 126:",
                "    n, pos = read_uvarint(buf, pos - 1)",
                "    n -= 1",
            )
        else:
            layout, size = self.source.bind_struct([code])
            self.source.add(f"(n,) = {layout}.unpack_from(buf, pos)", f"pos += {size}")

    def _refuse_null(self, field: Field) -> str:
        return f"raise refuse_null({self.message.__name__!r}, {field.name!r})"

    def _refuse_size(self, field: Field) -> str:
        return f"raise refuse_size({self.message.__name__!r}, {field.name!r}, n)"

    def _null_check(self, field: Field, target: str, nullable: bool) -> None:
        """Code that deals with a negative ``n``; what follows is the body of its ``else``."""
        if nullable:
            # Kafka takes every negative length for null where null is allowed.
            self.source.add("if n < 0:", f"    {target} = None", "else:")
        else:
            self.source.add("if n < 0:", f"    {self._refuse_null(field)}", "else:")
        self.source.depth += 1

    def _blob(self, field: Field, target: str, nullable: bool) -> None:
        self._length("h" if field.type == "string" else "i")
        self._null_check(field, target, nullable)
        too_long = "end > len(buf)"
        if field.type == "string" and self.flexible:
            too_long += f" or n > {MAX_STRING_BYTES}"
        value = "buf[pos:end].decode()" if field.type == "string" else "buf[pos:end]"
        if self.sliced:
            value = "str(buf[pos:end], 'utf-8')" if field.type == "string" else "bytes(buf[pos:end])"
        self.source.add(
            "end = pos + n",
            f"if {too_long}:",
            f"    {self._refuse_size(field)}",
            f"{target} = {value}",
            "pos = end",
        )
        self.source.depth -= 1

    def _struct(self, field: Field, target: str) -> None:
        assert not isinstance(field.type, str)
        read = self.source.bind(_reader(field.type, self.version, self.flexible, sliced=self.sliced)) + (
            "(buf, pos, left)" if self.sliced else "(buf, pos)"
        )
        if self.sliced and holds_arrays(field.type, self.version):
            read = f"yield from {read}"
        if not field.nullable_in(self.version):
            self.source.add(f"{target}, pos = {read}")
            return
        # Of tagged structures a varint tells whether they are null, of others a signed byte.
        null = "== 0" if field.tagged_in(self.version) else "> 127"
        self.source.add(
            "pos += 1",
            f"if buf[pos - 1] {null}:",
            f"    {target} = None",
            "else:",
            f"    {target}, pos = {read}",
        )

    def _array(self, field: Field, target: str) -> None:
        self._length("i")
        self._null_check(field, target, nullable=field.nullable_in(self.version))
        least = smallest_size(field, self.version, self.flexible)
        self.source.add(f"if n * {max(least, 1)} > len(buf) - pos:", f"    {self._refuse_size(field)}")
        if self.sliced:
            self.source.add("left[0] -= n", "if left[0] < 0:", "    raise refuse_count()")
        if isinstance(field.type, str) and field.type in STRUCT_CODES and field.type != "uuid":
            self._numbers(field.type, least, target)
        else:
            self.source.add(f"{target} = []", "for count in range(n):")
            self.source.depth += 1
            element = Field(field.name, field.type)
            self._value(element, "item")
            self.source.add(f"{target}.append(item)")
            if self.sliced:
                self.source.add(f"if not count % {ELEMENTS_PER_SLICE}:", "    yield")
            self.source.depth -= 1
        self.source.depth -= 1

    def _numbers(self, type: str, size: int, target: str) -> None:
        code = STRUCT_CODES[type]
        if not self.sliced:
            self.source.add(f"{target} = list(unpack_from(f'>{{n}}{code}', buf, pos))", f"pos += n * {size}")
            return
        self.source.add(
            f"{target} = []",
            "while n > 0:",
            f"    some = min(n, {_NUMBERS_PER_SLICE})",
            f"    {target} += unpack_from(f'>{{some}}{code}', buf, pos)",
            f"    pos += some * {size}",
            "    n -= some",
            "    yield",
        )

    def _tagged_section(self) -> None:
        """Code that collects known tags into ``tagged`` and steps over the others."""
        add = self.source.add
        add("tagged = {}", "count, pos = read_tag_count(buf, pos)", "for _ in range(count):")
        self.source.depth += 1
        add("tag, pos = read_uvarint(buf, pos)", "size, pos = read_uvarint(buf, pos)", "stop = pos + size")
        add("if stop > len(buf):", "    raise WireError('a tagged field is longer than its message')")
        keyword = "if"
        for field in self.tagged:
            add(f"{keyword} tag == {field.tag}:")
            self.source.depth += 1
            self._value(field, "value")
            add(f"tagged[{field.name!r}] = value")
            self.source.depth -= 1
            keyword = "elif"
        add("else:", "    pos = stop")
        add("if pos != stop:", "    raise WireError('a tagged field is not as long as it says')")
        self.source.depth -= 1
