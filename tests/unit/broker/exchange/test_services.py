"""Handlers name the services they use, and none of them gets the whole broker."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.exchange.exchange import handler_of
from tidelog.broker.exchange.services import Services, bind
from tidelog.broker.served import SERVED, SERVED_IN_CLUSTERS
from tidelog.wire.api import API_TABLE, ApiKey

HANDLED = [key for key in (*SERVED, *SERVED_IN_CLUSTERS) if key not in (ApiKey.PRODUCE, ApiKey.FETCH)]


def offered() -> dict[str, str]:
    """The services by name, and their types as they are written."""
    found = dict(Services.__annotations__)
    for name, member in vars(Services).items():
        if isinstance(member, property) and member.fget is not None:
            found[name] = inspect.get_annotations(member.fget)["return"]
    return found


@pytest.mark.parametrize("key", HANDLED, ids=lambda key: key.name)
def test_a_handler_asks_for_services_that_there_are_by_their_types(key: ApiKey) -> None:
    parameters = list(inspect.signature(handler_of(API_TABLE[key]).handle).parameters.values())
    assert [each.name for each in parameters[:2]] == ["context", "request"]
    there = offered()
    for service in parameters[2:]:
        assert service.name in there, f"{service.name} is no service"
        assert service.annotation == there[service.name]


def test_services_are_bound_in_the_order_of_the_parameters() -> None:
    def handle(context: object, request: object, image: object, admin: object) -> tuple[object, ...]:
        return context, request, image, admin

    bound = bind(handle, SimpleNamespace(admin="admin", image="image", config="config"))
    assert bound("context", "request") == ("context", "request", "image", "admin")


def test_a_handler_that_asks_for_what_is_not_there_cannot_be_bound() -> None:
    def handle(context: object, request: object, broker: object) -> None:
        raise AssertionError

    nothing: Any = SimpleNamespace()
    with pytest.raises(AttributeError, match="broker"):
        bind(handle, nothing)


def test_a_handler_without_services_is_not_wrapped() -> None:
    def handle(context: object, request: object) -> None:
        raise AssertionError

    assert bind(handle, SimpleNamespace()) is handle
