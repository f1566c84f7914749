"""The changes that are made to a module's functions, one at a time.

A mutant swaps a comparison, an operator or a constant, drops one condition of several, negates a condition,
or leaves out a statement. Only code inside functions is changed: what a module does once, when it is
imported, has been done when a mutant is put in place.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# What these print or count decides nothing.
_UNTOUCHED_CALLS = frozenset({"debug", "info", "warning", "error", "exception", "log"})

_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


class Mutant(NamedTuple):
    """One change in one function."""

    path: Path
    function: str
    """Qualified, as in ``__qualname__``."""
    first_line: int
    """Of the function, decorators included, as its code object has it."""
    line: int
    before: str
    after: str
    code: CodeType
    """The changed function."""

    @property
    def name(self) -> str:
        """What names it as long as nothing near it changes; without its line."""
        return f"{self.path.name}::{self.function}: {self.before} -> {self.after}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All of a module."""
    source = path.read_text("utf-8")
    tree = ast.parse(source, str(path))
    for name, function in _functions(tree, ""):
        for change in _changes(function):
            code = _code_of(compile(copy.deepcopy(tree), str(path), "exec"), _first_line(function))
            if code is not None:
                yield Mutant(
                    path, name, _first_line(function), change.line, change.before, change.after, code
                )


class _Change(NamedTuple):
    line: int
    before: str
    after: str


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods; those inside functions belong to these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, _Functions):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, (ast.If, ast.Try)):
            yield from _functions(child, prefix)


def _code_of(code: CodeType, first_line: int) -> CodeType | None:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            is_class_body = "__module__" in const.co_names and const.co_argcount == 0
            if const.co_firstlineno == first_line and not is_class_body:
                return const
            found = _code_of(const, first_line)
            if found is not None:
                return found
    return None


def _changes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Change]:
    """Makes one change after the other; each is undone when the next one is asked for."""
    for statement in function.body:
        for node in _without_annotations(statement):
            yield from _in_place(node)
    for owner in [function, *(each for part in function.body for each in ast.walk(part))]:
        for body in ("body", "orelse", "finalbody"):
            statements = getattr(owner, body, None)
            if isinstance(statements, list):
                yield from _without_statements(statements)


def _without_annotations(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _without_annotations(child)


def _in_place(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                other = _COMPARISONS[type(op)]
                yield from _set(node, ops, at, other())
        case ast.BoolOp(op=op, values=values):
            yield from _attribute(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())
            # A single condition that is left needs one beside it that changes nothing.
            neutral = ast.copy_location(ast.Constant(isinstance(op, ast.And)), node)
            for at in range(len(values)):
                kept = [*values[:at], *values[at + 1 :]]
                yield from _attribute(node, "values", kept if len(kept) > 1 else [neutral, *kept])
        case ast.UnaryOp(op=ast.Not()):
            yield from _attribute(node, "op", ast.UAdd(), shown=ast.unparse(node.operand), wrap=True)
        case ast.BinOp(op=op) if type(op) in _OPERATORS and not _is_text(node):
            yield from _attribute(node, "op", _OPERATORS[type(op)]())
        case ast.AugAssign(op=op) if type(op) in _OPERATORS:
            yield from _attribute(node, "op", _OPERATORS[type(op)]())
        case ast.Constant(value=bool(value)):
            yield from _attribute(node, "value", not value)
        case ast.Constant(value=int(value)):
            yield from _attribute(node, "value", value + 1)
        case ast.Name(id=name) if name in _NAMES:
            yield from _attribute(node, "id", _NAMES[name])
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            before = ast.unparse(test)
            node.test = negated
            yield _Change(test.lineno, f"if {before}", f"if not ({before})")
            node.test = test


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(each, (ast.JoinedStr, ast.List)) for each in (node.left, node.right))


def _attribute(
    node: ast.AST, name: str, value: object, *, shown: str | None = None, wrap: bool = False
) -> Iterator[_Change]:
    before, old = ast.unparse(node), getattr(node, name)
    if wrap:
        # ``not x`` becomes ``not not x``: its truth, as a bool.
        operand = node.operand  # type: ignore[attr-defined]
        node.operand = ast.copy_location(ast.UnaryOp(ast.Not(), operand), operand)  # type: ignore[attr-defined]
        yield _Change(node.lineno, before, shown or "")  # type: ignore[attr-defined]
        node.operand = operand  # type: ignore[attr-defined]
        return
    setattr(node, name, value)
    after = ast.unparse(node)
    yield _Change(node.lineno, before, after)  # type: ignore[attr-defined]
    setattr(node, name, old)


def _set(node: ast.Compare, ops: list[ast.cmpop], at: int, value: ast.cmpop) -> Iterator[_Change]:
    before, old = ast.unparse(node), ops[at]
    ops[at] = value
    yield _Change(node.lineno, before, ast.unparse(node))
    ops[at] = old


def _without_statements(statements: list[ast.stmt]) -> Iterator[_Change]:
    for at, statement in enumerate(statements):
        if not _may_go(statement):
            continue
        statements[at] = ast.copy_location(ast.Pass(), statement)
        yield _Change(statement.lineno, ast.unparse(statement).splitlines()[0], "pass")
        statements[at] = statement


def _may_go(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name not in _UNTOUCHED_CALLS
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Return(value=None) | ast.Continue() | ast.Break():
            return True
        case ast.If():
            return False
    return False
