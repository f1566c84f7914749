"""The text of a .proto file as a descriptor, which Protobuf's own library takes.

proto-schema-parser reads the text; types stay the names that they are, as the library finds them by
Protobuf's own rules. Registries of all makers send the text; the other way, ``?format=serialized``, is known
to some of them only. What decoding does not need is left out: services, options, defaults, extensions.
"""

from __future__ import annotations

from typing import Any, NoReturn

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from proto_schema_parser import Parser, ast

from tidelog.console.records.decoding.problem import DecodeProblem

_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in [
        "double",
        "float",
        "int64",
        "uint64",
        "int32",
        "fixed64",
        "fixed32",
        "bool",
        "string",
        "bytes",
        "uint32",
        "sfixed32",
        "sfixed64",
        "sint32",
        "sint64",
    ]
}
_LABELS = {
    ast.FieldCardinality.OPTIONAL: FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: FieldDescriptorProto.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: FieldDescriptorProto.LABEL_REPEATED,
}
_EDITIONS = {"2023": "EDITION_2023", "2024": "EDITION_2024"}


def file_of_text(name: str, text: str) -> FileDescriptorProto:
    """The descriptor of a file of this name; raises ``DecodeProblem``."""
    try:
        parsed = Parser(setup_lexer=_strict, setup_parser=_strict).parse(text)
        return _File(name, parsed).made
    except DecodeProblem:
        raise
    except Exception as error:  # whatever a parser of another's making may raise on nonsense
        raise DecodeProblem(f"invalid Protobuf schema ({type(error).__name__})") from None


class _File:
    """One file."""

    def __init__(self, name: str, parsed: ast.File) -> None:
        self.made = FileDescriptorProto(name=name)
        self._is_proto3 = parsed.syntax == "proto3"
        if parsed.edition is not None:
            if parsed.edition not in _EDITIONS:
                raise DecodeProblem("the schema uses an unsupported Protobuf edition")
            self.made.syntax = "editions"
            self.made.edition = Edition.Value(_EDITIONS[parsed.edition])
        elif self._is_proto3:
            self.made.syntax = "proto3"
        for element in parsed.file_elements:
            match element:
                case ast.Package(name=package):
                    self.made.package = package
                case ast.Import(name=imported, public=public):
                    if public:
                        self.made.public_dependency.append(len(self.made.dependency))
                    self.made.dependency.append(imported)
                case ast.Message():
                    self._message(element.name, element.elements, self.made.message_type.add())
                case ast.Enum():
                    _enum(element, self.made.enum_type.add())

    def _message(self, name: str, elements: list[Any], made: DescriptorProto) -> None:
        made.name = name
        optional: list[FieldDescriptorProto] = []
        maps: list[ast.MapField] = []
        for element in elements:
            match element:
                case ast.Field():
                    field = self._field(element, made)
                    if self._is_proto3 and element.cardinality is ast.FieldCardinality.OPTIONAL:
                        optional.append(field)
                case ast.Group():
                    self._group(element, made)
                case ast.MapField():
                    field = made.field.add(name=element.name, number=element.number)
                    field.label = FieldDescriptorProto.LABEL_REPEATED
                    field.type_name = f"{name}.{_entry_name(element.name)}"
                    field.type = FieldDescriptorProto.TYPE_MESSAGE
                    maps.append(element)
                case ast.OneOf():
                    made.oneof_decl.add(name=element.name)
                    place = len(made.oneof_decl) - 1
                    for each in element.elements:
                        if isinstance(each, ast.Field):
                            self._field(each, made).oneof_index = place
                        elif isinstance(each, ast.Group):
                            self._group(each, made).oneof_index = place
                case ast.Message():
                    self._message(element.name, element.elements, made.nested_type.add())
                case ast.Enum():
                    _enum(element, made.enum_type.add())
                case ast.ExtensionRange():
                    for text in element.ranges:
                        first, _, last = text.partition(" to ")
                        end = 1 << 29 if last.strip() == "max" else int(last or first) + 1
                        made.extension_range.add(start=int(first), end=end)
                case ast.Option(name="message_set_wire_format"):
                    made.options.message_set_wire_format = True
        for map_ in maps:
            # After the messages that were written, whose numbers are in the data.
            self._map_entry(map_, made.nested_type.add())
        for field in optional:
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")

    def _field(self, given: ast.Field, made: DescriptorProto) -> FieldDescriptorProto:
        field = made.field.add(name=given.name, number=given.number)
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        if given.cardinality is not None:
            field.label = _LABELS[given.cardinality]
        _set_type(field, given.type)
        for option in given.options:
            # Whether numbers stand together is seen in the data; readers take both.
            if option.name == "features.message_encoding" and "DELIMITED" in str(option.value):
                field.options.features.message_encoding = FeatureSet.DELIMITED
        return field

    def _group(self, given: ast.Group, made: DescriptorProto) -> FieldDescriptorProto:
        field = made.field.add(name=given.name.lower(), number=given.number)
        field.label = _LABELS[given.cardinality or ast.FieldCardinality.OPTIONAL]
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = given.name
        self._message(given.name, given.elements, made.nested_type.add())
        return field

    @staticmethod
    def _map_entry(given: ast.MapField, made: DescriptorProto) -> None:
        made.name = _entry_name(given.name)
        made.options.map_entry = True
        for number, (name, type_) in enumerate(
            (("key", given.key_type), ("value", given.value_type)), start=1
        ):
            field = made.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            _set_type(field, type_)


def _enum(given: ast.Enum, made: EnumDescriptorProto) -> None:
    made.name = given.name
    for element in given.elements:
        if isinstance(element, ast.EnumValue):
            made.value.add(name=element.name, number=element.number)
        elif isinstance(element, ast.Option) and element.name == "allow_alias":
            made.options.allow_alias = True


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = name


def _entry_name(field: str) -> str:
    """As protoc names the message that an entry of a map is."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


class _Strict(ErrorListener):
    """Refuses what the parser would mend and print."""

    def syntaxError(
        self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any
    ) -> NoReturn:
        raise DecodeProblem(f"invalid Protobuf schema (line {line})")


def _strict(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Strict())
