from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from tidelog.cli.cluster.secure import SecureCluster
from tidelog.config.broker_config import BrokerConfig
from tidelog.properties import read_properties
from tidelog.security.tls.context import client_context, server_context
from tidelog.security.tls.principal_mapping import PrincipalMapping
from tidelog.security.tls.settings import read_settings

Run = Callable[..., tuple[int, str, str]]


def test_init_makes_files_that_broker_and_clients_take(tidelog: Run, tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    code, out, err = tidelog(
        "certs", "init", directory, "--host", "broker1.test", "--client", "alice", "--client", "bob"
    )
    assert code == 0
    assert {Path(line).name for line in out.splitlines()} == {each.name for each in directory.iterdir()}
    assert "tidelog start" in err
    config, warnings = BrokerConfig.load(directory / "server.properties")
    assert not warnings
    assert config.advertised_listeners[0].host == "broker1.test"
    options = config.for_listener("SSL")
    server = server_context(read_settings(options), "required")
    assert server.key is not None
    assert {"DNS:broker1.test", "DNS:localhost", "IP:127.0.0.1"} <= server.key.certificate.alternative_names
    alice = read_properties(directory / "alice.properties")
    assert alice["bootstrap.servers"] == "broker1.test:9093"
    del alice["bootstrap.servers"]
    client = client_context(
        read_settings(BrokerConfig({**alice, "security.protocol": ""})), check_hostname=True
    )
    assert client.key is not None
    name = client.key.certificate.subject
    assert PrincipalMapping(options.str("ssl.principal.mapping.rules")).name_for(name) == "alice"
    verified = subprocess.run(
        ["openssl", "verify", "-CAfile", str(directory / "ca.pem"), str(directory / "bob.pem")],
        capture_output=True,
        check=True,
    )
    assert b"OK" in verified.stdout


def test_private_keys_are_for_their_owners_eyes(tidelog: Run, tmp_path: Path) -> None:
    assert tidelog("certs", "init", tmp_path)[0] == 0
    for path in tmp_path.iterdir():
        private = "PRIVATE KEY" in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or not private, path


def test_what_is_there_is_not_overwritten_unasked(tidelog: Run, tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("precious")
    code, _, err = tidelog("certs", "init", tmp_path)
    assert code == 1
    assert "already contains server.pem" in err
    assert "--force" in err
    assert (tmp_path / "server.pem").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1
    assert tidelog("certs", "init", tmp_path, "--force")[0] == 0
    assert "PRIVATE KEY" in (tmp_path / "server.pem").read_text()


@pytest.mark.parametrize("name", ["", "../x", "a b", "server", "ca"])
def test_names_that_are_no_files_are_refused(tidelog: Run, tmp_path: Path, name: str) -> None:
    assert tidelog("certs", "init", tmp_path, "--client", name)[0] == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", [("--host", ""), ("--host", "bücher.example"), ("--days", "99999999")])
def test_values_that_no_certificate_can_have_are_refused(
    tidelog: Run, tmp_path: Path, option: tuple[str, str]
) -> None:
    code, _, err = tidelog("certs", "init", tmp_path, *option)
    assert (code, option[0] in err) == (2, True)
    assert not list(tmp_path.iterdir())


def test_long_names_of_machines_and_hosts_are_no_hindrance(
    tidelog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, host = "m" * 63, f"{'h' * 60}.{'d' * 60}.test"
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", machine, "", "", "")))
    code, _, err = tidelog("certs", "init", tmp_path / "tls", "--host", host)
    assert code == 0, err
    authority = x509.load_pem_x509_certificate((tmp_path / "tls" / "ca.pem").read_bytes())
    name = f"Tidelog development authority of {machine}"
    assert authority.subject.rfc4514_string() == f"CN={name[:64]}"
    config, _ = BrokerConfig.load(tmp_path / "tls" / "server.properties")
    server = server_context(read_settings(config.for_listener("SSL")), "required")
    assert server.key is not None
    assert f"DNS:{host}" in server.key.certificate.alternative_names
    SecureCluster(tmp_path / "security").broker_options()


def test_a_client_whose_name_would_be_cut_is_refused(tidelog: Run, tmp_path: Path) -> None:
    assert tidelog("certs", "init", tmp_path / "tls", "--client", "c" * 64)[0] == 0
    code, _, err = tidelog("certs", "init", tmp_path / "other", "--client", "c" * 65)
    assert code == 2
    assert "is too long: use at most 64 characters" in err
    assert not (tmp_path / "other").exists()
