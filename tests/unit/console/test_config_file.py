"""The console's TOML file: what it means, and that mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.console.config_file import read_config_file
from tidelog.console.settings import Grant, MaskRule, Role
from tidelog.errors import ConfigError


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
        ("[clusters.a]\nbootstrap = 'x:1'\ncolour = 'pink'", "clusters.a.colour is one of"),
        ("[login]\nmechanism = 'PLAIN'", "login.mechanism is"),
        ("[login]\nsession_hours = 0", "login.session_hours"),
        ("[[roles]]\nuser = 'a'\nrole = 'admin'", r"roles need a \[login\]"),
        ("[login]\n[[roles]]\nuser = 'a'\nrole = 'king'", "'king' is no role"),
        ("[[masks]]\ntopics = ['x']", "a mask names fields"),
        ("typo = 1", "typo"),
        ("= 1", "--config"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "console.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_config_file(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: no such file"):
        read_config_file(tmp_path / "none.toml")
