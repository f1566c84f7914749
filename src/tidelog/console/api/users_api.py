"""Users who log in to a cluster by SCRAM; they need a right on the whole of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from tidelog.client.admin.scram_users import ScramDeletion, ScramUpsertion
from tidelog.console.api.endpoint import Call, Nothing, changes, reads, require_whole_cluster
from tidelog.console.api.shapes import Done, TypedName, raise_errors, require_typed
from tidelog.console.refusal import Refusal, not_found, sentence
from tidelog.console.settings import Role


class UserRow(msgspec.Struct, frozen=True):
    """A SCRAM user."""

    name: str
    mechanisms: list[str]
    problem: str | None


class UserRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A SCRAM user to add, or whose password changes."""

    name: str
    password: str
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"


@reads("/clusters/{cluster}/users", "SCRAM users, without their passwords.", Nothing)
async def users(call: Call, asked: Nothing) -> list[UserRow]:
    """By name."""
    require_whole_cluster(call)
    found = await call.cluster.admin.describe_user_scram_credentials()
    return [
        UserRow(
            each.name,
            [f"{info.mechanism} ({info.iterations})" for info in each.credentials],
            None if each.error is None else sentence(each.error),
        )
        for each in sorted(found, key=lambda each: each.name)
    ]


@changes(
    "PUT",
    "/clusters/{cluster}/users",
    "Add a SCRAM user, or change the password.",
    UserRequest,
    action="set user",
    role=Role.ADMIN,
)
async def set_user(call: Call, asked: UserRequest) -> Done:
    """Brokers get what is made of the password, never the password."""
    if not asked.name or not asked.password:
        raise Refusal("specify a user name and a password")
    call.details |= {"user": asked.name, "mechanism": asked.mechanism}
    change = ScramUpsertion(asked.name, asked.password, asked.mechanism)
    raise_errors(await call.cluster.admin.alter_user_scram_credentials([change]))
    return Done()


@changes(
    "DELETE",
    "/clusters/{cluster}/users/{id}",
    "Remove a SCRAM user.",
    TypedName,
    action="remove user",
    role=Role.ADMIN,
)
async def remove_user(call: Call, asked: TypedName) -> Done:
    """With all his passwords; the name has to be typed again."""
    name = call.path["id"]
    require_typed(asked.name, name, "the user's whole name", "to remove the user")
    found = await call.cluster.admin.describe_user_scram_credentials([name])
    mechanisms = [info.mechanism for each in found for info in each.credentials]
    if not mechanisms:
        raise not_found(f"SCRAM user {name} does not exist")
    gone = [ScramDeletion(name, each) for each in mechanisms]
    raise_errors(await call.cluster.admin.alter_user_scram_credentials(gone))
    return Done()


ENDPOINTS = (
    users,
    set_user,
    remove_user,
)
