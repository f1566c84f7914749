"""The first user of a new cluster, from an option or the environment, so that no broker need start open.

``tidelog.bootstrap.user`` or ``TIDELOG_BOOTSTRAP_USER``: ``NAME:PASSWORD`` or ``NAME:PASSWORD:MECHANISM``.
Made when nobody has a SCRAM credential yet, and never again: a user who has been removed does not come back
with the next restart. The text is never shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.broker.access.authentication.credentials import has_scram_users
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.metadata.dynamic_config import Edit
from tidelog.metadata.image import MetadataImage
from tidelog.security.sasl.scram_credential import BY_LABEL, ScramCredential, ScramMechanism

logger = logging.getLogger(__name__)

OPTION = "tidelog.bootstrap.user"
VARIABLE = "TIDELOG_BOOTSTRAP_USER"


@dataclass(frozen=True, slots=True)
class BootstrapUser:
    """Who is to be there."""

    name: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SHA_256


class UserAdmin(Protocol):
    """Changes users."""

    async def change_user_config(self, name: str, edit: Edit) -> None:
        """Replace the SCRAM credentials and quotas of a user with the result of ``edit``."""


def bootstrap_user(config: BrokerConfig, environment: Mapping[str, str]) -> BootstrapUser | None:
    """Whom the option asks for, or else the environment; raises ``ConfigError``."""
    source, text = OPTION, config.optional_str(OPTION)
    if not text:
        source, text = VARIABLE, environment.get(VARIABLE)
    if not text:
        return None
    name, _, rest = text.partition(":")
    password, _, label = rest.rpartition(":")
    if label.upper() not in BY_LABEL or not password:
        # A password may hold colons; what is behind the last one is then a part of it.
        password, label = rest, ScramMechanism.SHA_256.label
    if not name or not password:
        raise ConfigError(
            f"{source} must be NAME:PASSWORD or NAME:PASSWORD:MECHANISM ({', '.join(BY_LABEL)})"
        )
    return BootstrapUser(name, password, BY_LABEL[label.upper()])


async def create_bootstrap_user(user: BootstrapUser, image: MetadataImage, admin: UserAdmin) -> None:
    """Make the user, if nobody could log in otherwise."""
    if has_scram_users(image):
        if user.name not in image.user_configs:
            logger.warning(
                "The user %s of %s is not made: there are other users already, of whom one can make it",
                user.name,
                OPTION,
            )
        return
    credential = await asyncio.to_thread(ScramCredential.of_password, user.mechanism, user.password)

    def edit(entries: Mapping[str, str]) -> Mapping[str, str]:
        # Another broker of the cluster may have been faster.
        return {user.mechanism.label: credential.encode(), **entries}

    await admin.change_user_config(user.name, edit)
    logger.info("Made the first user, %s, who logs in by %s", user.name, user.mechanism.label)
