"""A properties file by which a program logs in with a token, made of the one that the command itself uses.

Everything but the login is taken over (TLS, brokers, …); the login becomes SCRAM with ``tokenauth``, in the
form that Java's clients, Kafka's tools and Tidelog's clients read. Only its owner may read the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidelog.cli.failure import Failure
from tidelog.client.admin.delegation_tokens import DelegationToken

_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_DEFAULT_MECHANISM = "SCRAM-SHA-512"
_OURS = frozenset({"client.id", "security.protocol"})
_LOGIN = "sasl."


def check_login_file(path: Path, options: Mapping[str, object]) -> None:
    """Refuse, before a token is made, what no token could log in with or be written to."""
    if not str(options.get("security.protocol", "")).upper().startswith("SASL"):
        raise Failure(
            "--to writes credentials for the listener that this command uses, which has no "
            "authentication: set security.protocol=SASL_SSL in --command-config"
        )
    if path.exists():
        raise Failure(f"{path} already exists: choose another name, or remove it")
    if not path.absolute().parent.is_dir():
        raise Failure(f"directory {path.absolute().parent} does not exist: create it first")


def write_login_file(path: Path, token: DelegationToken, options: Mapping[str, object]) -> None:
    """Write it; nobody else may read it at any time."""
    mechanism = str(options.get("sasl.mechanism", "")).upper()
    kept = {
        name: str(value)
        for name, value in options.items()
        if not name.startswith(_LOGIN) and name not in _OURS
    }
    entries = {
        "security.protocol": str(options["security.protocol"]).upper(),
        "sasl.mechanism": mechanism if mechanism.startswith("SCRAM-") else _DEFAULT_MECHANISM,
        "sasl.jaas.config": (
            f'{_MODULE} required username="{token.token_id}" password="{token.password}" tokenauth=true;'
        ),
        **kept,
    }
    text = "".join(f"{name}={_escaped(value)}\n" for name, value in entries.items())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _escaped(value: str) -> str:
    """As Java's properties want it; text over several lines (certificates) goes on one."""
    return value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
