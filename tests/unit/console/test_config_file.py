"""The console's TOML file: what it means, and that mistakes are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.console.config_file import ConfigFile, read_config_file
from tidelog.console.settings import Grant, MaskRule, McpSettings, OidcSettings, RegistrySettings, Role, Way
from tidelog.errors import ConfigError

REGISTRY = "[clusters.a]\nbootstrap = 'x:1'\n[clusters.a.registry]\n"


def test_a_registry(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    file = tmp_path / "console.toml"
    file.write_text(
        f"{REGISTRY}url = 'https://r:8081/api/'\nuser = 'u'\npassword = 'hunter2'\nca_file = 'ca.pem'"
    )
    (cluster,) = read_config_file(file).clusters
    assert cluster.registry == RegistrySettings("https://r:8081/api/", "u", "hunter2", ca=tmp_path / "ca.pem")
    assert "hunter2" not in repr(cluster)
    file.write_text(f"{REGISTRY}url = 'http://me:p%40ss@r:8081'")
    (cluster,) = read_config_file(file).clusters
    assert cluster.registry == RegistrySettings("http://r:8081", "me", "p@ss")


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "prod.properties").write_text("security.protocol=SASL_SSL\nsasl.password=secret\n")
    file = tmp_path / "console.toml"
    file.write_text(
        """
        [clusters.prod]
        bootstrap = "10.0.0.1:9092"
        client_config = "prod.properties"
        colour = "red"
        [login]
        session_hours = 1
        [[roles]]
        user = "alice"
        role = "operator"
        topics = ["orders-*"]
        [[masks]]
        topics = ["ml_*"]
        fields = ["phone"]
        shown_to = "admin"
        """
    )
    found = read_config_file(file)
    (cluster,) = found.clusters
    assert (cluster.name, cluster.bootstrap, cluster.colour) == ("prod", "10.0.0.1:9092", "red")
    assert cluster.options["security.protocol"] == "SASL_SSL"
    assert "secret" not in repr(cluster)
    assert found.login is not None
    assert found.login.session_hours == 1
    assert found.grants == (Grant("alice", Role.OPERATOR, topics=("orders-*",)),)
    assert found.masks == (MaskRule(("ml_*",), ("phone",), shown_to=Role.ADMIN),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[clusters.a]", "bootstrap"),
        ("[clusters.a]\nbootstrap = 'x:1'\ncolour = 'pink'", "clusters.a.colour must be one of"),
        ("[login]\nmechanism = 'PLAIN'", "login.mechanism must be"),
        ("[login]\nsession_hours = 0", "login.session_hours"),
        ("[[roles]]\nuser = 'a'\nrole = 'admin'", r"roles require a \[login\]"),
        ("[login]\n[[roles]]\nuser = 'a'\nrole = 'king'", "invalid role 'king'"),
        ("[[masks]]\ntopics = ['x']", "a mask needs fields"),
        (REGISTRY, "url"),
        (f"{REGISTRY}url = 'r:1'", "clusters.a.registry.url must have the form"),
        (f"{REGISTRY}url = 'http://r'\npassword = 'p'", "clusters.a.registry.password requires"),
        (f"{REGISTRY}url = 'http://r'\nuser = 'u'\ntoken = 't'", "are both set"),
        (f"{REGISTRY}url = 'http://u:p@r'\ntoken = 't'", "also set"),
        (f"{REGISTRY}url = 'http://r'\nca_file = 'x.pem'", "that starts with https"),
        (f"{REGISTRY}url = 'https://r'\nca_file = 'x.pem'", "x.pem is not a file"),
        (f"{REGISTRY}url = 'http://r'\ntoken = 'ä'", "not allowed in an HTTP header"),
        ("typo = 1", "typo"),
        ("= 1", "--config"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "console.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_config_file(file)


ISSUER = "issuer = 'https://login.example/realm'\nclient_id = 'console'\n"
OIDC = f"[login.oidc]\n{ISSUER}"


def read(tmp_path: Path, text: str) -> ConfigFile:
    file = tmp_path / "console.toml"
    file.write_text(text)
    return read_config_file(file)


def test_a_provider_with_all_that_can_be_said_of_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cr3t\n")
    (tmp_path / "ca.pem").write_text("")
    found = read(
        tmp_path,
        OIDC
        + """
        client_secret_file = "secret"
        name = "Example"
        scopes = ["openid", "groups"]
        user_claim = "preferred_username"
        groups_claim = "realm_access.roles"
        algorithms = ["ES256"]
        redirect_url = "https://console.example/login/oidc"
        ca_file = "ca.pem"
        clock_skew_s = 5
        [[roles]]
        group = "kafka-admins"
        role = "admin"
        [[roles]]
        user = "alice"
        role = "viewer"
        [mcp]
        audience = "https://console.example/mcp"
        token_days = 90
        """,
    )
    assert found.login is not None
    assert found.login.scram is False
    assert found.login.oidc == OidcSettings(
        "https://login.example/realm",
        "console",
        "s3cr3t",
        "Example",
        ("openid", "groups"),
        "preferred_username",
        "realm_access.roles",
        ("ES256",),
        "https://console.example/login/oidc",
        tmp_path / "ca.pem",
        5,
    )
    assert "s3cr3t" not in repr(found)
    assert found.grants == (
        Grant("", Role.ADMIN, group="kafka-admins", way=Way.OIDC),
        Grant("alice", Role.VIEWER),
    )
    assert found.mcp == McpSettings(False, "https://console.example/mcp", 90)


def test_who_names_a_cluster_or_a_mechanism_beside_a_provider_wants_both(tmp_path: Path) -> None:
    for text in ("cluster = 'main'", "mechanism = 'SCRAM-SHA-256'"):
        login = read(tmp_path, f"[login]\n{text}\n{OIDC}").login
        assert login is not None
        assert (login.scram, login.oidc is not None) == (True, True)


def test_a_secret_may_be_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{OIDC}client_secret_env = 'CONSOLE_TEST_SECRET'"
    monkeypatch.setenv("CONSOLE_TEST_SECRET", "from outside")
    login = read(tmp_path, text).login
    assert login is not None
    assert login.oidc is not None
    assert login.oidc.client_secret == "from outside"
    monkeypatch.delenv("CONSOLE_TEST_SECRET")
    with pytest.raises(ConfigError, match=r"login.oidc.client_secret_env is an empty secret"):
        read(tmp_path, text)


def test_the_file_of_the_documentation_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/console.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "production.properties").write_text("")
    (tmp_path / "oidc.secret").write_text("secret")
    (tmp_path / "registry-ca.pem").write_text("")
    found = read(tmp_path, text)
    assert found.clusters[0].registry is not None
    assert found.login is not None
    assert (found.login.scram, found.login.oidc is not None) == (True, True)
    assert [each.user or each.group for each in found.grants] == ["alice", "kafka-admins"]
    assert found.mcp == McpSettings()


BOTH = f"[login]\ncluster = 'main'\n{OIDC}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[login.oidc]\nissuer = 'https://a'", "client_id"),
        (
            "[login.oidc]\nissuer = 'http://login.example'\nclient_id = 'c'",
            "issuer 'http://login.example' must start with https",
        ),
        ("[login.oidc]\nissuer = 'login.example'\nclient_id = 'c'", "is not a valid URL"),
        ("[login.oidc]\nissuer = 'https://u:p@login.example'\nclient_id = 'c'", "is not a valid URL"),
        ("[login.oidc]\nissuer = 'https://[::1'\nclient_id = 'c'", "is not a valid URL"),
        ("[login.oidc]\nissuer = 'https://login.example?a=b'\nclient_id = 'c'", "a query or a fragment"),
        ("[login.oidc]\nissuer = 'https://login.example'\nclient_id = ' '", "login.oidc.client_id is empty"),
        (f"{OIDC}redirect_url = 'https://console.example/'", "redirect_url must end with /login/oidc"),
        (
            f"{OIDC}redirect_url = 'http://console.example/login/oidc'",
            "redirect_url .* must start with https",
        ),
        (f"{OIDC}scopes = ['profile']", 'must include "openid"'),
        (f"{OIDC}algorithms = ['none']", "algorithms: none is not a public-key algorithm"),
        (f"{OIDC}algorithms = ['RS256', 'HS256']", "algorithms: HS256 is not a public-key algorithm"),
        (f"{OIDC}algorithms = []", "algorithms: none at all"),
        (f"{OIDC}clock_skew_s = 3600", "clock_skew_s must be between"),
        (f"{OIDC}ca_file = 'nowhere.pem'", "ca_file .*nowhere.pem is not a file"),
        (f"{OIDC}client_secret = 'a'\nclient_secret_env = 'B'", "sets client_secret and client_secret_env"),
        (f"{OIDC}client_secret = ''", "client_secret is an empty secret"),
        (f"{OIDC}client_secret_file = 'nowhere'", "cannot read login.oidc.client_secret_file"),
        (f"{OIDC}[[roles]]\nrole = 'admin'", "either a user or a group"),
        (f"{OIDC}[[roles]]\nuser = 'a'\ngroup = 'b'\nrole = 'admin'", "either a user or a group"),
        (f"{OIDC}[[roles]]\ngroup = ''\nrole = 'admin'", "a group entry needs a name"),
        (f"{OIDC}[[roles]]\nuser = 'a'\nlogin = 'scram'\nrole = 'admin'", "login scram is not configured"),
        ("[login]\n[[roles]]\nuser = 'a'\nlogin = 'oidc'\nrole = 'admin'", "login oidc is not configured"),
        ("[login]\n[[roles]]\nuser = 'a'\nlogin = 'ldap'\nrole = 'admin'", "login must be scram or oidc"),
        ("[login]\n[[roles]]\ngroup = 'a'\nrole = 'admin'", r"requires \[login.oidc\]"),
        (f"{BOTH}[[roles]]\nuser = 'a'\nrole = 'admin'", "'a' is ambiguous"),
        ("[mcp]\ntoken_days = 0", "mcp.token_days must be above 0"),
        ("[login]\n[mcp]\naudience = 'x'", r"configure it in \[login.oidc\]"),
        (f"{OIDC}[mcp]\naudience = 'console'", "a separate audience"),
    ],
)
def test_mistakes_about_providers_and_assistants_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read --config .*: no such file"):
        read_config_file(tmp_path / "none.toml")
