"""How the addresses of a Cassandra cluster are written."""

from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.spark.cassandra_options import ContactPoints


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("db", (("db", 9042),)),
        ("db:19042, 10.0.0.2", (("db", 19042), ("10.0.0.2", 9042))),
        ("[::1]:19042,[fe80::1]", (("::1", 19042), ("fe80::1", 9042))),
    ],
)
def test_hosts_have_the_usual_port_unless_they_say_another(
    text: str, addresses: tuple[tuple[str, int], ...]
) -> None:
    points = ContactPoints.parse(text)
    assert points.addresses == addresses
    assert ContactPoints.parse(str(points)) == points


@pytest.mark.parametrize("text", ["", " , ", ":9042", "db:port", "[::1]9042", "db:0", "db:65536"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="contact point"):
        ContactPoints.parse(text)
