from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from tests.rigs.tls_files import TlsFiles

from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.security.tls.cipher_suites import OPENSSL_NAMES, TLS_1_3, choose
from tidelog.security.tls.context import TlsContext, client_context, server_context
from tidelog.security.tls.rotation import RotationRules, check_rotation, file_state
from tidelog.security.tls.settings import read_settings


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def server(files: TlsFiles, **options: str) -> TlsContext:
    raw = {
        "ssl.keystore.location": str(files.server),
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    config = BrokerConfig(raw).for_listener("PLAINTEXT")
    return server_context(read_settings(config, config.name_of), "none")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_names_of_ciphers_are_those_that_openssl_has() -> None:
    listed = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL:!aNULL:!eNULL:!PSK:!SRP:!ARIA:!CAMELLIA:!DSS"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    known = {words[0]: words[2] for words in map(str.split, listed.splitlines())}
    assert {name: known[name] for name in OPENSSL_NAMES} == OPENSSL_NAMES
    assert set(known) - set(OPENSSL_NAMES) == set(TLS_1_3)


def test_ciphers_are_taken_by_either_name_and_unknown_ones_are_refused(files: TlsFiles) -> None:
    names = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,ECDHE-ECDSA-AES256-GCM-SHA384"
    context = server(files, ssl_cipher_suites=names).context
    offered = {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert offered == {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"}
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    for name in ("TLS_NULL_WITH_NULL_NULL", "SSL_RSA_WITH_RC4_128_MD5", "HIGH", "x"):
        with pytest.raises(ConfigError, match=rf"^ssl\.cipher\.suites names {name}"):
            server(files, ssl_cipher_suites=name)


def test_suites_of_one_version_switch_the_other_off(files: TlsFiles) -> None:
    only_1_3 = server(files, ssl_cipher_suites=",".join(TLS_1_3)).context
    assert only_1_3.minimum_version is ssl.TLSVersion.TLSv1_3
    some = choose(["TLS_AES_256_GCM_SHA384"], "x")
    assert some is not None
    assert some.refuses("TLS_AES_128_GCM_SHA256")
    assert not some.refuses("TLS_AES_256_GCM_SHA384")
    assert not some.refuses("ECDHE-RSA-AES128-GCM-SHA256")
    with pytest.raises(ConfigError, match="without TLS_AES_256_GCM_SHA384, which cannot be switched off"):
        server(files, ssl_cipher_suites="TLS_AES_128_GCM_SHA256")
    with pytest.raises(ConfigError, match="names no suite of the versions"):
        server(files, ssl_cipher_suites="TLS_AES_256_GCM_SHA384", ssl_enabled_protocols="TLSv1.2")


def test_versions_of_tls_are_chosen_and_broken_ones_left_out(files: TlsFiles) -> None:
    def versions(**options: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
        context = server(files, **options).context
        return context.minimum_version, context.maximum_version

    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    assert versions() == (old, new)
    assert versions(ssl_enabled_protocols="TLSv1.3") == (new, new)
    assert versions(ssl_enabled_protocols="TLSv1.2,TLSv1.1,TLSv1") == (old, old)
    assert versions(ssl_protocol="TLSv1.2") == (old, old)
    assert versions(ssl_protocol="TLS") == (old, new)
    for options, words in (
        ({"ssl_enabled_protocols": "TLSv1"}, "of which all is broken"),
        ({"ssl_enabled_protocols": "TLSv9"}, "names TLSv9"),
        ({"ssl_protocol": "TLSv1.1"}, "set it to TLSv1.3 or TLSv1.2"),
        ({"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": "TLSv1.3"}, "no version of TLS in common"),
    ):
        with pytest.raises(ConfigError, match=words):
            server(files, **options)


def test_nobody_renegotiates(files: TlsFiles) -> None:
    config = BrokerConfig({"ssl.truststore.location": str(files.trust)})
    client = client_context(read_settings(config), check_hostname=True).context
    for context in (server(files).context, client):
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_COMPRESSION
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert client.check_hostname


def test_a_listener_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set ssl\.keystore\.location to a file with both"):
        server_context(read_settings(BrokerConfig()), "none")


def test_a_new_certificate_has_the_name_and_the_hosts_of_the_old_one(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    now = server(files)

    def new(name: str, hosts: tuple[str, ...], days: float = 10) -> TlsContext:
        path = files.pair("new.pem", files.authority.issue(name, hosts, days=days))
        return server(files, ssl_keystore_location=str(path))

    hosts = ("localhost", "127.0.0.1")
    check_rotation(now, new("server", (*hosts, "more.test")), RotationRules())
    with pytest.raises(ConfigError, match="existing=CN=server, new=CN=other"):
        check_rotation(now, new("other", hosts), RotationRules())
    check_rotation(now, new("other", hosts), RotationRules(allow_dn_changes=True))
    with pytest.raises(ConfigError, match="SubjectAltNames do not match"):
        check_rotation(now, new("server", hosts[:1]), RotationRules())
    check_rotation(now, new("server", hosts[:1]), RotationRules(allow_san_changes=True))
    with pytest.raises(ConfigError, match="expired on"):
        check_rotation(now, new("server", hosts, days=-1), RotationRules())
    with pytest.raises(ConfigError, match="Cannot add SSL truststore"):
        check_rotation(now, server(files, ssl_truststore_location=str(files.trust)), RotationRules())


def test_files_are_seen_to_change_through_links_that_are_swapped(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "one")
    TlsFiles(tmp_path / "two")
    link = tmp_path / "data"
    link.symlink_to("one")
    settings = server(files, ssl_keystore_location=str(link / "server.pem")).settings
    before = file_state(settings)
    assert file_state(settings) == before
    swapped = tmp_path / "data.new"
    swapped.symlink_to("two")
    swapped.replace(link)
    assert file_state(settings) != before
