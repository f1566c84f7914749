"""The SCRAM credentials of users, as the metadata have them now: a change is in force for the next login.

They stand in the configs of users (``/config/users/<name>``), one entry for each mechanism, as Kafka writes
them. ``salt_secret`` is what salts are made up by for names that nobody has: kept beside them, so that all
brokers, today and after a restart, make up the same.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from tidelog.broker.authentication.delegation_tokens import DelegationTokens
from tidelog.metadata import znodes
from tidelog.metadata.feed import Feed, ImageDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import MetadataStore, NodeExists, NoNode, ensure_path, parent_of
from tidelog.security.sasl.scram import CredentialShape, ScramLogin, user_login
from tidelog.security.sasl.scram_credential import DEFAULT_ITERATIONS, ScramCredential, ScramMechanism

_SECRET_BYTES = 32
_SALT_BYTES = 26
# Enough to know what most of them look like.
_LOOKED_AT = 100


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
        self._shapes: dict[ScramMechanism, CredentialShape] = {}
        feed.subscribe(self._on_change)

    def user(self, mechanism: ScramMechanism, name: str) -> ScramLogin | None:
        """The login of a user."""
        credential = credential_of(self._image, mechanism, name)
        return None if credential is None else user_login(name, credential)

    def token(self, mechanism: ScramMechanism, token_id: str) -> ScramLogin | Callable[[], ScramLogin] | None:
        """The login by a delegation token."""
        return self._tokens.login(mechanism, token_id)

    def shape(self, mechanism: ScramMechanism) -> CredentialShape:
        """What most credentials look like."""
        shape = self._shapes.get(mechanism)
        if shape is None:
            seen = Counter(islice(self._seen(mechanism), _LOOKED_AT))
            default = CredentialShape(DEFAULT_ITERATIONS, _SALT_BYTES)
            shape = self._shapes[mechanism] = seen.most_common(1)[0][0] if seen else default
        return shape

    def _seen(self, mechanism: ScramMechanism) -> Iterator[CredentialShape]:
        for user in self._image.user_configs:
            credential = credential_of(self._image, mechanism, user)
            if credential is not None:
                yield CredentialShape(credential.iterations, len(credential.salt))

    def _on_change(self, delta: ImageDelta) -> None:
        if delta.user_configs:
            self._shapes.clear()


async def salt_secret(store: MetadataStore) -> bytes:
    """What salts are made up by; kept when it is first asked for."""
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
