"""The keyword arguments that type checkers see are the options that the clients take."""

from __future__ import annotations

import pytest
from scripts import generate_option_types as generator

from tidelog import AdminOptions, ConsumerOptions, ProducerOptions
from tidelog.client.options.client_config import ADMIN, CONSUMER, PRODUCER, ClientConfig, ClientKind
from tidelog.errors import ConfigError


@pytest.mark.parametrize("typed", generator.DICTS, ids=lambda each: each.name)
def test_the_committed_module_is_what_the_option_tables_say(typed: generator.Typed) -> None:
    assert typed.target.read_text(encoding="utf-8") == generator.render(typed), generator.REMEDY


@pytest.mark.parametrize(
    ("options", "kind"),
    [(ProducerOptions, PRODUCER), (ConsumerOptions, CONSUMER), (AdminOptions, ADMIN)],
    ids=lambda each: getattr(each, "name", ""),
)
def test_every_option_is_a_keyword_and_every_keyword_an_option(options: type, kind: ClientKind) -> None:
    keywords = {name.replace("_", ".") for name in options.__annotations__}
    assert keywords == set(kind.options)


@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER, ADMIN], ids=lambda each: each.name)
def test_the_words_that_types_allow_are_the_words_that_the_client_takes(kind: ClientKind) -> None:
    checked = 0
    for option in kind.options.values():
        for choice in option.check.choices if option.check is not None else ():
            assert option.parse(choice) == choice
            checked += 1
    assert checked
    with pytest.raises(ConfigError, match=r"client\.dns\.lookup"):
        ClientConfig.parse(kind, {"bootstrap.servers": "a:1", "client.dns.lookup": "none"})


def test_an_option_that_takes_objects_needs_a_type_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(generator.OBJECTS, "partitioner.class")
    with pytest.raises(generator.GenerationError, match=r"partitioner\.class takes objects"):
        generator.render(generator.DICTS[0])
