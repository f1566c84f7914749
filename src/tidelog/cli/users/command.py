"""``tidelog users``: list, add and remove users who log in by SCRAM, and change their passwords."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.connect import with_admin
from tidelog.cli.failure import Failure, WrongUsage, report_failures
from tidelog.cli.output import Changes, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.cli.users.passwords import read_password
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.scram_users import ScramDeletion, ScramUpsertion, ScramUser
from tidelog.errors import ErrorCode
from tidelog.security.sasl.scram_credential import BY_LABEL, DEFAULT_ITERATIONS, ScramMechanism

app = typer.Typer()

User = Annotated[str, typer.Argument(metavar="USER", help="The user name.")]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from stdin, as one line.")
]
PasswordEnv = Annotated[
    str | None,
    typer.Option("--password-env", metavar="NAME", help="Read the password from this environment variable."),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", min=4096, max=16384, help="The number of hash iterations: more make guessing slower."
    ),
]


@app.command("list", epilog=examples("tidelog users list", "tidelog users list --json"))
@grouped
def list_users(
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List the users who log in by SCRAM, and how."""
    users = with_admin(connection, lambda admin: admin.describe_user_scram_credentials())
    users.sort(key=lambda user: user.name)
    if json:
        print_json([_as_json(user) for user in users])
        return
    if not users and is_terminal():
        remark("No SCRAM users yet; run `tidelog users add NAME` to add one.")
        return
    rows = [(user.name, one.mechanism, one.iterations) for user in users for one in user.credentials]
    print_table(("user", "mechanism", "iterations"), rows, right=("iterations",))


@app.command(
    "add",
    epilog=examples("tidelog users add alice", "pass show alice | tidelog users add alice --password-stdin"),
)
@grouped
def add_user(
    user: User,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", metavar="SCRAM-…", help="The SCRAM mechanism; may be repeated."),
    ] = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    password_stdin: PasswordStdin = False,
    password_env: PasswordEnv = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Make a user who logs in by SCRAM; SCRAM-SHA-512 unless said otherwise."""
    chosen = _mechanisms(mechanism) or [ScramMechanism.SHA_512.label]

    async def make(admin: AsyncAdmin) -> None:
        known = await _known(admin, user)
        taken = [each for each in chosen if known is not None and each in _labels(known)]
        if taken:
            raise Failure(
                f"user {user} already has {', '.join(taken)}: run `tidelog users passwd {user}` to "
                "change the password"
            )
        password = read_password(user, from_stdin=password_stdin, variable=password_env)
        await _set(admin, user, password, chosen, iterations)

    with Changes(json=json, quiet=True) as done:
        with_admin(connection, make)
        done.add(f"User {user} can authenticate with {', '.join(chosen)}.", user=user, mechanisms=chosen)


@app.command("passwd", epilog=examples("tidelog users passwd alice"))
@grouped
def change_password(
    user: User,
    iterations: Iterations = DEFAULT_ITERATIONS,
    password_stdin: PasswordStdin = False,
    password_env: PasswordEnv = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Change a user's password, for all mechanisms that the user has."""

    async def change(admin: AsyncAdmin) -> list[str]:
        mechanisms = _labels(await _existing(admin, user))
        password = read_password(user, from_stdin=password_stdin, variable=password_env)
        await _set(admin, user, password, mechanisms, iterations)
        return mechanisms

    with Changes(json=json, quiet=True) as done:
        mechanisms = with_admin(connection, change)
        done.add(
            f"User {user} has a new password; open connections are not affected.",
            user=user,
            mechanisms=mechanisms,
        )


@app.command("remove", epilog=examples("tidelog users remove alice"))
@grouped
def remove_user(
    user: User,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", metavar="SCRAM-…", help="Only this mechanism; may be repeated."),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Let a user log in no more; connections that are open stay open."""
    chosen = _mechanisms(mechanism)

    async def remove(admin: AsyncAdmin) -> list[str]:
        known = await _existing(admin, user)
        lacking = [each for each in chosen if each not in _labels(known)]
        if lacking:
            raise Failure(f"user {user} does not have {', '.join(lacking)}, only {', '.join(_labels(known))}")
        mechanisms = chosen or _labels(known)
        results = await admin.alter_user_scram_credentials([ScramDeletion(user, each) for each in mechanisms])
        report_failures([each.error for each in results if each.error is not None])
        return mechanisms

    with Changes(json=json, quiet=True) as done:
        removed = with_admin(connection, remove)
        done.add(
            f"User {user} can log in no more{' by ' + ', '.join(chosen) if chosen else ''}.",
            user=user,
            mechanisms=removed,
        )


async def _set(admin: AsyncAdmin, user: str, password: str, mechanisms: list[str], iterations: int) -> None:
    results = await admin.alter_user_scram_credentials(
        [ScramUpsertion(user, password, each, iterations) for each in mechanisms]
    )
    report_failures([each.error for each in results if each.error is not None])


async def _known(admin: AsyncAdmin, user: str) -> ScramUser | None:
    (found,) = await admin.describe_user_scram_credentials([user])
    if found.error is not None and found.error.code is ErrorCode.RESOURCE_NOT_FOUND:
        return None
    found.raise_for_error()
    return found


async def _existing(admin: AsyncAdmin, user: str) -> ScramUser:
    found = await _known(admin, user)
    if found is None:
        raise Failure(
            f"SCRAM user {user} does not exist: run `tidelog users list` to see the users, or "
            f"`tidelog users add {user}` to add it"
        )
    return found


def _mechanisms(texts: list[str] | None) -> list[str]:
    chosen = [text.upper() for text in texts or ()]
    for label in chosen:
        if label not in BY_LABEL:
            raise WrongUsage(f"invalid --mechanism {label}: choose from {', '.join(BY_LABEL)}")
    return list(dict.fromkeys(chosen))


def _labels(user: ScramUser) -> list[str]:
    return [each.mechanism for each in user.credentials]


def _as_json(user: ScramUser) -> dict[str, object]:
    return {
        "user": user.name,
        "credentials": [
            {"mechanism": each.mechanism, "iterations": each.iterations} for each in user.credentials
        ],
    }
