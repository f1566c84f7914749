from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.rigs.tls_files import TlsFiles

from tidelog.broker.network.tls_listeners import TlsListeners
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.errors import ConfigError

SECURE = Listener("OUTSIDE", "localhost", 9093, "SASL_SSL")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def opened(listener: Listener, **options: str) -> TlsListeners:
    raw = {name.replace("_", "."): value for name, value in options.items()}
    raw["listener.security.protocol.map"] = (
        f"PLAINTEXT:PLAINTEXT,{listener.name}:{listener.security_protocol}"
    )

    async def main() -> TlsListeners:
        return TlsListeners(BrokerConfig(raw), [listener])

    return asyncio.run(main())


def test_who_logs_in_is_asked_for_a_certificate_only_by_his_listener(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    store = str(files.server)
    general = opened(SECURE, ssl_keystore_location=store, ssl_client_auth="required").by_name["OUTSIDE"]
    assert general.client_auth == "none"
    assert general.current.context.verify_mode is ssl.CERT_NONE
    assert "set listener.name.outside.ssl.client.auth" in caplog.text
    own = opened(
        SECURE,
        ssl_keystore_location=store,
        ssl_truststore_location=str(files.trust),
        **{"listener.name.outside.ssl.client.auth": "required"},
    ).by_name["OUTSIDE"]
    assert own.current.context.verify_mode is ssl.CERT_REQUIRED
    plain = opened(
        SECURE._replace(security_protocol="SSL"), ssl_keystore_location=store, ssl_client_auth="requested"
    )
    assert plain.by_name["OUTSIDE"].client_auth == "requested"


def test_listeners_without_tls_need_nothing() -> None:
    assert not opened(SECURE._replace(security_protocol="PLAINTEXT")).by_name


def test_options_of_the_listener_stand_over_the_general_ones(files: TlsFiles, tmp_path: Path) -> None:
    own = files.pair("own.pem", files.authority.issue("own"))
    listener = opened(
        SECURE,
        ssl_keystore_location=str(files.server),
        **{"listener.name.outside.ssl.keystore.location": str(own)},
    ).by_name["OUTSIDE"]
    assert listener.current.key is not None
    assert listener.current.key.certificate.subject == "CN=own"
    with pytest.raises(
        ConfigError, match=r"^listener\.name\.outside\.ssl\.keystore\.location: there is no file"
    ):
        opened(SECURE, **{"listener.name.outside.ssl.keystore.location": str(tmp_path / "missing")})


def test_a_certificate_that_is_about_to_expire_is_told_of(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    soon = files.pair("soon.pem", files.authority.issue("soon", days=3))
    listener = opened(SECURE, ssl_keystore_location=str(soon)).by_name["OUTSIDE"]
    assert "The certificate of OUTSIDE expires in 3.0 days" in caplog.text
    assert listener.trust_expires_at_s is None
