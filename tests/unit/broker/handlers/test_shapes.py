"""What every handler has in common: the three shapes of what it returns, and a refusal in every version."""

from __future__ import annotations

import ast
import importlib
import inspect
from types import ModuleType
from typing import Any, TypeVar

import pytest

from tidelog.broker.responses import refuse_each
from tidelog.broker.served import SERVED, SERVED_IN_CLUSTERS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metrics.request_errors import RequestErrors
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode, encode
from tidelog.wire.schema import Message

HANDLED = [key for key in (*SERVED, *SERVED_IN_CLUSTERS) if key not in (ApiKey.PRODUCE, ApiKey.FETCH)]
# Versions of DescribeLogDirs before 3 have no place for an error without a directory.
WITHOUT_PLACE = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


def module_of(key: ApiKey) -> ModuleType:
    return importlib.import_module(f"tidelog.broker.handlers.{key.name.lower()}")


def alternatives(node: ast.expr) -> list[ast.expr]:
    """The members of a union."""
    if isinstance(node, ast.BinOp):
        return [*alternatives(node.left), *alternatives(node.right)]
    return [node]


def is_response(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id.endswith("Response")


def is_awaited(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and ast.unparse(node.value) in ("Awaitable", "Promise")
        and all(map(is_response, alternatives(node.slice)))
    )


def is_step(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == "Slices"
        and all(is_response(each) or is_awaited(each) for each in alternatives(node.slice))
    )


@pytest.mark.parametrize("key", HANDLED, ids=lambda key: key.name)
def test_a_handler_returns_a_response_an_awaitable_or_a_step_that_ends_in_one_of_these(key: ApiKey) -> None:
    annotation = inspect.signature(module_of(key).handle).return_annotation
    (expression,) = ast.parse(annotation).body
    assert isinstance(expression, ast.Expr)
    for shape in alternatives(expression.value):
        assert is_response(shape) or is_awaited(shape) or is_step(shape), annotation


M = TypeVar("M", bound=Message)


def with_one_of_each(kind: type[M], version: int) -> M:
    """A message whose arrays that the version has hold one element."""
    values: dict[str, Any] = {}
    for field in kind.FIELDS:
        if not field.present_in(version):
            continue
        if isinstance(field.type, str):
            if field.array:
                values[field.name] = ["x" if field.type == "string" else 1]
            continue
        nested = with_one_of_each(field.type, version)
        values[field.name] = [nested] if field.array else nested
    return kind(**values)


DERIVED = [key for key in HANDLED if not hasattr(module_of(key), "refuse")]


@pytest.mark.parametrize("key", DERIVED, ids=lambda key: key.name)
def test_a_derived_refusal_is_an_error_in_every_version_and_nothing_else(key: ApiKey) -> None:
    api = API_TABLE[key]
    for version in range(api.min_version, api.max_version + 1):
        request = with_one_of_each(api.request, version)
        refused = refuse_each(
            api.response, request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        )
        answer, _ = decode(api.response, version, encode(refused, version))
        errors = RequestErrors()
        errors.count_in(api.name, answer, version)
        counted = errors.by_request[api.name]
        expected = "NONE" if (key, version) in WITHOUT_PLACE else "CLUSTER_AUTHORIZATION_FAILED"
        assert set(counted) == {expected}, (version, counted)
