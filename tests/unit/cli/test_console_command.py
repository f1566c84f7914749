"""``tidelog console``: options that would expose a cluster are refused before anything listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tidelog.cli import commands
from tidelog.cli.console import _clusters
from tidelog.cli.shared_options import Connection
from tidelog.console.config_file import ConfigFile


@pytest.fixture
def login_file(tmp_path: Path) -> Path:
    file = tmp_path / "console.toml"
    file.write_text("[login]\n")
    return file


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert commands.run(["console", *arguments]) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    return said


def test_changes_beyond_loopback_need_logins(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--listen", "0.0.0.0:0", "--allow-changes")
    assert "--allow-changes requires logins" in said


def test_logins_beyond_loopback_need_tls(capsys: pytest.CaptureFixture[str], login_file: Path) -> None:
    said = refusal(capsys, "--listen", "0.0.0.0:0", "--config", str(login_file))
    assert "logins on non-loopback addresses require TLS" in said


def test_assistants_beyond_loopback_need_logins(capsys: pytest.CaptureFixture[str]) -> None:
    assert "require logins on non-loopback addresses" in refusal(capsys, "--listen", "0.0.0.0:0", "--mcp")
    assert "require logins on non-loopback addresses" in refusal(capsys, "--mcp", "--behind-tls")


@pytest.mark.parametrize(
    ("redirect", "arguments", "said"),
    [
        ("", ["--listen", "0.0.0.0:0", "--behind-tls"], "login.oidc.redirect_url is missing"),
        ("", ["--behind-tls"], "login.oidc.redirect_url is missing"),
        ("https://console.example/login/oidc", [], "uses https, but TLS is not enabled"),
        (
            "https://console.example/login/oidc",
            ["--behind-tls"],
            "add --allowed-host console.example",
        ),
    ],
)
def test_a_provider_has_to_find_the_way_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, redirect: str, arguments: list[str], said: str
) -> None:
    file = tmp_path / "console.toml"
    file.write_text(
        "[login.oidc]\nissuer = 'https://login.example'\nclient_id = 'console'\n"
        + (f"redirect_url = '{redirect}'\n" if redirect else "")
    )
    assert said in refusal(capsys, "--config", str(file), *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "8080"], "--listen '8080' is not of the form HOST:PORT"),
        (["--cluster", "10.0.0.1:9092"], "is not of the form NAME=HOST:PORT"),
        (["--cluster", "a=h:1", "--cluster", "a=h:2"], "two clusters are named 'a'"),
        (["--cluster", "a/b=h:1"], "contains a slash"),
        (["--tls-cert", "c.pem"], "--tls-cert and --tls-key must be used together"),
        (
            ["--cluster", "a=h:1", "--cluster", "b=h:2", "--schema-registry", "http://r:1"],
            "works with one cluster only",
        ),
        (["--read-only", "--allow-changes"], "are mutually exclusive"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert said in refusal(capsys, *arguments)


def test_a_file_that_is_wrong_and_a_port_that_is_taken_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "wrong.toml").write_text("typo = 1")
    assert "wrong.toml" in refusal(capsys, "--config", str(tmp_path / "wrong.toml"), code=1)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(capsys, "--listen", place, "--data-dir", str(tmp_path / "data"), code=1)
    assert f"cannot listen on --listen {place}: address already in use" in said


def test_the_address_of_a_schema_registry_is_checked_and_not_repeated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for address in (
        "r:8081",
        "ftp://user:hunter2@r",
        "http://",
        "http://user:hunter2@r:x",
        "http://r/?hunter2",
    ):
        said = refusal(capsys, "--schema-registry", address, code=1)
        assert "--schema-registry: url must have the form" in said
        assert "hunter2" not in said
    file = tmp_path / "console.toml"
    file.write_text("[clusters.a]\nbootstrap = 'h:1'\n[clusters.a.registry]\nurl = 'http://r'\n")
    said = refusal(capsys, "--config", str(file), "--schema-registry", "http://r")
    assert "both set a registry" in said


def test_a_named_cluster_has_its_own_brokers_and_the_rest_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "prod.properties"
    file.write_text("bootstrap.servers=prod.example:9092\nsecurity.protocol=SSL\n")
    named = ["local=127.0.0.1:9092", "test=test.example:1"]
    local, test = _clusters(Connection(None, file), named, ConfigFile())
    assert (local.name, local.bootstrap) == ("local", "127.0.0.1:9092")
    assert (test.name, test.bootstrap) == ("test", "test.example:1")
    assert local.options["security.protocol"] == "SSL"
    (alone,) = _clusters(Connection(None, file), None, ConfigFile())
    assert (alone.name, alone.bootstrap) == ("default", "prod.example:9092")


def test_brokers_that_are_given_are_a_cluster_beside_those_with_names() -> None:
    found = _clusters(Connection("127.0.0.1:9092"), ["test=test.example:1"], ConfigFile())
    assert [(each.name, each.bootstrap) for each in found] == [
        ("test", "test.example:1"),
        ("default", "127.0.0.1:9092"),
    ]
