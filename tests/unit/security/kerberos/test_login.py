from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.security.kerberos.login import KerberosLogin, kerberos_login, service_name


def test_a_keytab_or_a_cache_of_tickets_proves_who_one_is() -> None:
    keytab = {"useKeyTab": "true", "storeKey": "true", "keyTab": "FILE:/k", "principal": "kafka/h@R"}
    assert kerberos_login(keytab, "line") == KerberosLogin("kafka/h@R", "/k")
    cache = {"useTicketCache": "TRUE", "renewTGT": "true", "ticketCache": "FILE:/c"}
    assert kerberos_login(cache, "line") == KerberosLogin(ticket_cache="FILE:/c")
    assert kerberos_login({"useTicketCache": "true"}, "line") == KerberosLogin()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "no way to log in"),
        ({"useKeyTab": "false", "principal": "a@R"}, "no way to log in"),
        ({"useKeyTab": "true", "principal": "a@R"}, "without a keytab"),
        ({"useKeyTab": "true", "keyTab": "/k"}, "which principal"),
        ({"keyTab": "/k", "principal": "a@R"}, "add useKeyTab=true"),
        ({"useKeyTab": "true", "useTicketCache": "true"}, "both"),
    ],
)
def test_a_line_that_proves_nothing_is_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        kerberos_login(options, "line")


def test_the_service_has_one_name() -> None:
    assert service_name({}, None, "line") is None
    assert service_name({"serviceName": "kafka"}, None, "line") == "kafka"
    assert service_name({"serviceName": "kafka"}, "kafka", "line") == "kafka"
    with pytest.raises(ConfigError, match="serviceName other"):
        service_name({"serviceName": "other"}, "kafka", "line")
