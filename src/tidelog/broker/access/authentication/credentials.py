"""The SCRAM credentials of users, as the metadata have them now: a change is in force for the next login.

They are in the configs of users (``/config/users/<name>``), one entry for each mechanism, as Kafka writes
them. ``salt_secret`` is the secret by which salts are made up for names that no user has: it is kept with
the credentials, so that all brokers make up the same, also after a restart.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Iterator

from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
from tidelog.metadata.feed import Feed, ImageDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import MetadataStore, NodeExists, NoNode, ensure_path, parent_of
from tidelog.metadata.znodes import znodes
from tidelog.security.sasl.fake_credentials import CredentialShapes
from tidelog.security.sasl.scram import ScramLogin, user_login
from tidelog.security.sasl.scram_credential import ScramCredential, ScramMechanism

_SECRET_BYTES = 32
_USERS_AT_ONCE = 50


def credential_of(image: MetadataImage, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
    """A user's credential; ``None`` if there is none, or none that can be read."""
    text = image.user_configs.get(user, {}).get(mechanism.label)
    if text is None:
        return None
    try:
        return ScramCredential.parse(text)
    except ValueError:
        return None


def has_scram_users(image: MetadataImage) -> bool:
    """Whether anybody can log in by SCRAM."""
    return any(each.label in config for config in image.user_configs.values() for each in ScramMechanism)


class UserCredentials:
    """Looks credentials up for logins."""

    def __init__(self, feed: Feed, tokens: DelegationTokens) -> None:
        self._image = feed.image
        self._tokens = tokens
        self.shapes = CredentialShapes()
        """What the credentials of the users look like."""
        for user in self._image.user_configs:
            self._note_shape(user)
        feed.subscribe(self._on_change)

    def user(self, mechanism: ScramMechanism, name: str) -> ScramLogin | None:
        """The login of a user."""
        credential = credential_of(self._image, mechanism, name)
        return None if credential is None else user_login(name, credential)

    def token(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> ScramLogin | Callable[[], ScramLogin] | None:
        """The login by a delegation token."""
        return self._tokens.login(mechanism, token_id, salt)

    def _note_shape(self, user: str) -> None:
        found = ((each, credential_of(self._image, each, user)) for each in ScramMechanism)
        self.shapes.put(user, {each: credential for each, credential in found if credential is not None})

    def _on_change(self, delta: ImageDelta) -> Iterator[None]:
        for number, user in enumerate(delta.user_configs, 1):
            self._note_shape(user)
            if not number % _USERS_AT_ONCE:
                yield


async def salt_secret(store: MetadataStore) -> bytes:
    """The secret by which salts are made up; created when it is first needed."""
    path = znodes.SCRAM_SALT_SECRET
    while True:
        try:
            raw, _ = await store.get(path)
            secret = base64.b64decode(raw, validate=True)
            if len(secret) == _SECRET_BYTES:
                return secret
            await store.set(path, _new_secret())
        except binascii.Error:
            await store.set(path, _new_secret())
        except NoNode:
            await ensure_path(store, parent_of(path))
            try:
                await store.create(path, _new_secret())
            except NodeExists:
                continue


def _new_secret() -> bytes:
    return base64.b64encode(secrets.token_bytes(_SECRET_BYTES))
