"""Filters of records, written as Python expressions: ``value.price > 100 and key.startswith("o-")``.

The text is parsed by Python's own ``ast`` and turned into functions by an allow list: what is not named here
cannot be said. No code of the expression is ever run by Python, an attribute is a field of a JSON object, and
the only functions are those of the tables below. A field that is not there is None; comparing it with an
order (``<``) is False instead of an error, and so is any operation on values that do not go together.

Names: ``key`` (text, or what it was decoded to), ``value`` (JSON where it is JSON or was decoded to some,
else text, else None), ``text`` (the value as text), ``headers`` (name to text; of several the last),
``header_list``, ``partition``, ``offset``, ``timestamp`` (ms), ``size`` (bytes of key and value). Used in the
filter's process (``filter_worker``), and in the console to refuse a mistake at once.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from tidelog.console.records.raw import RawRecord
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError

LONGEST = 2000
_DEEPEST = 60
_LARGEST_NUMBER = 1 << 256

Compiled = Callable[["Names"], Any]


class FilterError(TidelogError):
    """An expression that is none; the text says what is wrong with it."""


class Names:
    """The values of the names, of one record; made when they are asked for."""

    def __init__(self, record: RawRecord) -> None:
        self._record = record

    @cached_property
    def key(self) -> Any:
        if self._record.key is not self._record.readable_key:
            return self._json(self._record.readable_key)
        return _text(self._record.key)

    @cached_property
    def text(self) -> Any:
        return _text(self._record.readable_value)

    @cached_property
    def value(self) -> Any:
        return self._json(self._record.readable_value)

    @staticmethod
    def _json(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return msgspec.json.decode(data)
        except DECODE_ERRORS:
            return _text(data)

    @cached_property
    def headers(self) -> Any:
        return {name: _text(value) for name, value in self._record.headers}

    @cached_property
    def header_list(self) -> Any:
        return [[name, _text(value)] for name, value in self._record.headers]

    @property
    def partition(self) -> Any:
        return self._record.partition

    @property
    def offset(self) -> Any:
        return self._record.offset

    @property
    def timestamp(self) -> Any:
        return self._record.timestamp_ms

    @property
    def size(self) -> Any:
        return len(self._record.key or b"") + len(self._record.value or b"")


NAMES = ("key", "value", "text", "headers", "header_list", "partition", "offset", "timestamp", "size")


class Filter:
    """One expression, ready to be asked."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise FilterError(f"the filter has {len(text)} characters; the limit is {LONGEST}")
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._condition = _compile(tree.body, 0)
        except SyntaxError as error:
            raise FilterError(f"invalid filter: {error.msg}, at character {error.offset}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise FilterError(f"invalid filter: {error}") from None

    def matches(self, record: RawRecord) -> bool:
        """Whether the expression holds for a record."""
        return bool(self._condition(Names(record)))


def _compile(node: ast.expr, depth: int) -> Compiled:
    if depth > _DEEPEST:
        raise FilterError("the filter is nested too deeply")
    deeper = depth + 1
    match node:
        case ast.Constant(value=constant) if constant is None or isinstance(
            constant, bool | int | float | str
        ):
            return lambda names: constant
        case ast.Name(id=name) if name in NAMES:
            return operator.attrgetter(name)
        case ast.Name(id=name):
            raise FilterError(
                f'unknown field "{name}": use {", ".join(NAMES)}. To search for text, put it in quotes'
            )
        case ast.BoolOp(op=op, values=values):
            return _bool_op(op, [_compile(each, deeper) for each in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compile(operand, deeper)
            return lambda names: not inner(names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compile(operand, deeper)
            return lambda names: _guarded(operator.neg, inner(names))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _binary(_BINARY[type(op)], _compile(left, deeper), _compile(right, deeper))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARISONS for op in ops
        ):
            return _compare(
                _compile(left, deeper),
                [_COMPARISONS[type(op)] for op in ops],
                [_compile(each, deeper) for each in others],
            )
        case ast.Attribute(value=owner, attr=name):
            inner = _compile(owner, deeper)
            return lambda names: _field(inner(names), name)
        case ast.Subscript(value=owner, slice=place) if not isinstance(place, ast.Slice):
            inner, at = _compile(owner, deeper), _compile(place, deeper)
            return lambda names: _item(inner(names), at(names))
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            parts = [_compile(each, deeper) for each in elements]
            return lambda names: [each(names) for each in parts]
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            asked, yes, no = (_compile(each, deeper) for each in (test, body, otherwise))
            return lambda names: yes(names) if asked(names) else no(names)
        case ast.Call(func=called, args=arguments, keywords=[]):
            return _call(called, [_compile(each, deeper) for each in arguments], deeper)
    raise FilterError(f"a filter cannot contain {_what(node)}")


def _bool_op(op: ast.boolop, parts: list[Compiled]) -> Compiled:
    if isinstance(op, ast.And):
        return lambda names: all(each(names) for each in parts)
    return lambda names: any(each(names) for each in parts)


def _binary(operation: Callable[[Any, Any], Any], left: Compiled, right: Compiled) -> Compiled:
    return lambda names: _guarded(operation, left(names), right(names))


def _compare(
    first: Compiled, operations: list[Callable[[Any, Any], Any]], others: list[Compiled]
) -> Compiled:
    def compare(names: Names) -> bool:
        left = first(names)
        for operation, other in zip(operations, others, strict=True):
            right = other(names)
            if not _guarded(operation, left, right):
                return False
            left = right
        return True

    return compare


def _call(called: ast.expr, arguments: list[Compiled], depth: int) -> Compiled:
    match called:
        case ast.Name(id=name) if name in _FUNCTIONS:
            function = _FUNCTIONS[name]
            return lambda names: _guarded(function, *(each(names) for each in arguments))
        case ast.Attribute(value=owner, attr=name) if name in _METHODS:
            inner, method = _compile(owner, depth), _METHODS[name]
            return lambda names: _method(method, inner(names), [each(names) for each in arguments])
        case ast.Attribute(attr=name):
            raise FilterError(f"unknown method .{name}(…): use {', '.join(sorted(_METHODS))}")
        case ast.Name(id=name):
            raise FilterError(f"unknown function {name}(…): use {', '.join(sorted(_FUNCTIONS))}")
    raise FilterError("a filter may call functions only by name")


def _method(method: Callable[..., Any], owner: Any, arguments: list[Any]) -> Any:
    return _guarded(method, owner, *arguments) if isinstance(owner, str) else None


def _guarded(operation: Callable[..., Any], *arguments: Any) -> Any:
    """The result; None where the values do not go together."""
    try:
        return operation(*arguments)
    except (
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        re.error,
        AttributeError,
        RecursionError,  # a value may be nested as deeply as Python goes, and its text deeper
    ):
        return None


def _field(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else None


def _item(owner: Any, place: Any) -> Any:
    if isinstance(owner, dict):
        return owner.get(place) if isinstance(place, str) else None
    if isinstance(owner, list | str) and isinstance(place, int):
        return _guarded(operator.getitem, owner, place)
    return None


def _multiply(left: Any, right: Any) -> Any:
    if isinstance(left, str | list) or isinstance(right, str | list):
        raise TypeError("strings cannot be multiplied")
    return _bounded(left * right)


def _bounded(number: Any) -> Any:
    if isinstance(number, int) and abs(number) > _LARGEST_NUMBER:
        raise OverflowError("a number of hundreds of digits")
    return number


def _contains(left: Any, right: Any) -> bool:
    return bool(operator.contains(right, left))


def _not_contains(left: Any, right: Any) -> bool:
    return not operator.contains(right, left)


def _matches(text: Any, pattern: Any) -> bool:
    return re.search(pattern, text) is not None


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _what(node: ast.expr) -> str:
    words: Mapping[type[ast.AST], str] = {
        ast.Lambda: "a lambda",
        ast.NamedExpr: "an assignment",
        ast.JoinedStr: "an f-string",
        ast.Call: "named arguments",
        ast.Subscript: "slices",
        ast.ListComp: "a comprehension",
        ast.SetComp: "a comprehension",
        ast.DictComp: "a comprehension",
        ast.GeneratorExp: "a comprehension",
        ast.Dict: "a dictionary",
        ast.Await: "await",
        ast.BinOp: "this operator",
        ast.Compare: "this comparison",
        ast.Starred: "a star",
    }
    return words.get(type(node), f"this ({type(node).__name__})")


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: _bounded(left + right),
    ast.Sub: operator.sub,
    ast.Mult: _multiply,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda left, right: None if isinstance(left, str) else left % right,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _contains,
    ast.NotIn: _not_contains,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": len,
    "int": int,
    "float": float,
    "str": str,
    "abs": abs,
    "lower": lambda text: text.lower() if isinstance(text, str) else None,
    "upper": lambda text: text.upper() if isinstance(text, str) else None,
    "matches": _matches,
}
_METHODS: Mapping[str, Callable[..., Any]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "lower": str.lower,
    "upper": str.upper,
    "strip": str.strip,
    "find": str.find,
    "count": str.count,
}
