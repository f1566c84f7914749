"""``tidelog tokens``: create, list, renew and end delegation tokens.

The password of a token is shown once, by ``create``, on stdout or in a file; the other commands name tokens
by their ids and show no secret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.connect import client_options, with_admin
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import examples, is_terminal, print_json, print_table, printable, remark, time_text
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.cli.tokens.login_file import check_login_file, write_login_file
from tidelog.cli.values import parse_duration_ms
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.delegation_tokens import DelegationToken
from tidelog.security.principal import parse_principal

app = typer.Typer()

TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help="The token id.")]


@app.command(
    "create",
    epilog=examples(
        "tidelog tokens create --to spark.properties",
        "tidelog tokens create --renewer User:scheduler --max-life P3D",
        "tidelog tokens create --owner User:alice --json",
    ),
)
@grouped
def create_token(
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="User:NAME",
            help="The token's owner; default: you. Other owners require permission.",
        ),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer",
            metavar="User:NAME",
            help="A principal that may also renew and expire the token; may be repeated.",
        ),
    ] = None,
    max_life: Annotated[
        str | None,
        typer.Option(
            "--max-life",
            metavar="DURATION",
            help="The maximum lifetime, such as P7D or PT12H; default: set by the broker.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write a properties file that authenticates with the token, instead of showing it.",
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Make a token, by which programs log in as you for a time. Its password is shown now and never again."""
    life_ms = None if max_life is None else _duration_ms(max_life, "--max-life")
    whose = None if owner is None else _principal(owner, "--owner")
    renewers = [_principal(each, "--renewer") for each in renewer or ()]
    options = client_options(connection)
    if to is not None:
        check_login_file(to, options)
    token = with_admin(
        connection,
        lambda admin: admin.create_delegation_token(owner=whose, renewers=renewers, max_lifetime_ms=life_ms),
    )
    if to is not None:
        write_login_file(to, token, options)
    if json:
        print_json(_as_json(token) | ({"password": token.password} if to is None else {"file": str(to)}))
        return
    shown = ("file", str(to)) if to is not None else ("password", token.password)
    for name, value in (("token", token.token_id), shown, *_lines(token)):
        # No table: it would break a password in two on a narrow terminal.
        text = printable(str(value))
        print(f"{name:<10}{text}" if is_terminal() else f"{name}\t{text}")
    if to is None and is_terminal():
        remark(
            "Authenticate with SCRAM, the token id as user name, this password and tokenauth=true. "
            "Keep the password safe."
        )


@app.command("list", epilog=examples("tidelog tokens list", "tidelog tokens list --owner User:alice --json"))
@grouped
def list_tokens(
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="User:NAME", help="Only tokens of this owner; may be repeated."),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List the tokens that you may know of: yours, those you may renew, and others' where rules allow it."""
    owners = [_principal(each, "--owner") for each in owner] if owner else None
    tokens = with_admin(connection, lambda admin: admin.describe_delegation_tokens(owners))
    tokens.sort(key=lambda token: (token.owner, token.issued_ms, token.token_id))
    if json:
        print_json([_as_json(token) for token in tokens])
        return
    if not tokens and is_terminal():
        remark("No tokens visible to you; run `tidelog tokens create` to create one.")
        return
    rows = [
        (
            token.token_id,
            token.owner,
            token.requester,
            token.renewers,
            time_text(token.issued_ms),
            time_text(token.expires_ms),
            time_text(token.max_ms),
        )
        for token in tokens
    ]
    print_table(
        ("token", "owner", "requester", "renewers", "issued", "expires", "latest"),
        rows,
        optional=("issued", "requester", "renewers"),
    )


@app.command("renew", epilog=examples("tidelog tokens renew TOKEN", "tidelog tokens renew TOKEN --for P2D"))
@grouped
def renew_token(
    token: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="The renewal period, such as P1D or PT12H; default: set by the broker.",
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Let a token end later; never later than its longest life."""
    period_ms = None if period is None else _duration_ms(period, "--for")

    async def renew(admin: AsyncAdmin) -> int:
        found = await _existing(admin, token)
        return await admin.renew_delegation_token(found.hmac, period_ms=period_ms)

    _tell_end(token, with_admin(connection, renew), json=json)


@app.command(
    "expire", epilog=examples("tidelog tokens expire TOKEN", "tidelog tokens expire TOKEN --in PT10M")
)
@grouped
def expire_token(
    token: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="DURATION", help="The time until expiry, such as PT10M; default: immediately."
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Let a token end, at once or soon; who has logged in by it stays until his session ends."""
    period_ms = None if period is None else _duration_ms(period, "--in")

    async def expire(admin: AsyncAdmin) -> int:
        found = await _existing(admin, token)
        return await admin.expire_delegation_token(found.hmac, period_ms=period_ms)

    _tell_end(token, with_admin(connection, expire), json=json)


async def _existing(admin: AsyncAdmin, token_id: str) -> DelegationToken:
    for each in await admin.describe_delegation_tokens():
        if each.token_id == token_id:
            return each
    raise Failure(
        f"token {token_id} does not exist or is not visible to you: run `tidelog tokens list` to see "
        "your tokens"
    )


def _tell_end(token_id: str, expires_ms: int, *, json: bool) -> None:
    if json:
        print_json({"token": token_id, "expires_ms": expires_ms})
        return
    remark(f"Token {token_id} expires at {time_text(expires_ms)}.")


def _principal(text: str, option: str) -> str:
    try:
        return str(parse_principal(text))
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from None


def _duration_ms(text: str, option: str) -> int:
    duration_ms = parse_duration_ms(text, option)
    if duration_ms <= 0:
        raise WrongUsage(f"invalid {option} {text!r}: write P1D, PT12H, PT10M or milliseconds")
    return duration_ms


def _lines(token: DelegationToken) -> list[tuple[str, str]]:
    return [
        ("owner", token.owner),
        ("renewers", ",".join(token.renewers) or "-"),
        ("expires", time_text(token.expires_ms)),
        ("latest", time_text(token.max_ms)),
    ]


def _as_json(token: DelegationToken) -> dict[str, object]:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }
