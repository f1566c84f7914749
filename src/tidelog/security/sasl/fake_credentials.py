"""SCRAM credentials for names that no user has, so that a login does not show which names exist.

A client that begins a login receives a salt and a number of iterations. For a name without a credential both
are made up here. They follow from the name and from a secret that all brokers of a cluster share and keep, so
that asking again, or asking another broker, gives the same. They look like those of this cluster: each name
gets the shape of the credentials of one of its users, drawn in proportion. When users come or go, only as
many names get another shape as the proportions change, and such a name gets a new salt with it, which looks
like a changed password.

A user who has a credential for one mechanism only is drawn with that: other names, too, look as if they had
one for that mechanism only. Delegation tokens all have one shape; their salts, real or not, come from here.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from tidelog.security.sasl.scram_credential import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
)

_ALPHABETS = (
    b"0123456789abcdef",
    b"0123456789ABCDEF",
    b"0123456789abcdefghijklmnopqrstuvwxyz",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    b"+/0123456789=ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    bytes(range(0x20, 0x7F)),
    bytes(range(256)),
)
"""Of which salts are made, the smallest first."""
# Kafka's tools write a number of 130 bits in base 36 as text.
_BASE_36 = _ALPHABETS[2]
_KAFKA_BITS = 130
_KAFKA_BYTES = range(20, 27)
_GROUPS = 64
_MAX_CHOICES = 64
"""In each group: altogether more shapes than the users of a cluster have."""


class CredentialShape(NamedTuple):
    """The part of a credential that is visible before a login succeeds, except the salt's value."""

    iterations: int
    salt_bytes: int
    """0 for a salt as Kafka's tools make them, whose length varies."""
    alphabet: bytes = _ALPHABETS[-1]

    @classmethod
    def of(cls, credential: ScramCredential) -> CredentialShape:
        """The shape of a credential."""
        salt = credential.salt
        if (
            len(salt) in _KAFKA_BYTES
            and not salt.translate(None, _BASE_36)
            and not salt.startswith(b"0")
            and int(salt, 36) < 1 << _KAFKA_BITS
        ):
            return cls(credential.iterations, 0, _BASE_36)
        alphabet = next(each for each in _ALPHABETS if not salt.translate(None, each))
        return cls(credential.iterations, len(salt), alphabet)


TOKEN_SHAPE = CredentialShape(4096, SALT_BYTES)
"""That of every delegation token."""
_DEFAULT_SHAPE = CredentialShape(DEFAULT_ITERATIONS, SALT_BYTES)

UserShape = tuple[CredentialShape | None, ...]
"""The shapes of a user's credentials, one for each mechanism in the order of the enumeration."""
_INDEXES = {mechanism: index for index, mechanism in enumerate(ScramMechanism)}
_NO_SHAPE: UserShape = (None,) * len(_INDEXES)

T = TypeVar("T")


class _Choice(NamedTuple, Generic[T]):
    """Something that may be drawn."""

    one: T
    written: bytes
    weight: int


class _Proportions(Generic[T]):
    """How often something occurs, to draw from.

    Choices are in groups, by a hash: first a group is drawn, then one of it, so that many choices do not make
    a draw slow.
    """

    def __init__(self, default: T) -> None:
        self._default = default
        self._counts: Counter[T] = Counter()
        self._groups: tuple[_Choice[tuple[_Choice[T], ...]], ...] | None = None

    def add(self, one: T, count: int) -> None:
        """So many more of them; fewer, if it is negative."""
        self._counts[one] += count
        if not self._counts[one]:
            del self._counts[one]
        self._groups = None

    def draw(self, secret: bytes, name: bytes) -> T:
        """One of them for a name, each as probable as it is frequent."""
        if self._groups is None:
            self._groups = _grouped(self._counts)
        if not self._groups:
            return self._default
        return _drawn(_drawn(self._groups, secret, name), secret, name)


def _grouped(counts: Mapping[T, int]) -> tuple[_Choice[tuple[_Choice[T], ...]], ...]:
    """Groups of choices, alike on all brokers, whichever order they learned of users in."""
    groups: defaultdict[int, list[_Choice[T]]] = defaultdict(list)
    for one, count in counts.items():
        written = repr(one).encode()
        groups[hashlib.sha256(written).digest()[0] % _GROUPS].append(_Choice(one, written, count))
    found: list[_Choice[tuple[_Choice[T], ...]]] = []
    for group, choices in groups.items():
        choices.sort(key=lambda each: (-each.weight, each.written))
        kept = tuple(choices[:_MAX_CHOICES])
        found.append(_Choice(kept, b"group\0%d" % group, sum(each.weight for each in kept)))
    return tuple(found)


def _drawn(choices: tuple[_Choice[T], ...], secret: bytes, name: bytes) -> T:
    """One of them by weighted rendezvous hashing."""

    def distance(choice: _Choice[T]) -> float:
        mixed = hmac.digest(secret, b"draw\0" + name + b"\0" + choice.written, "sha256")
        return -math.log((int.from_bytes(mixed[:8], "big") + 1) / (1 << 64)) / choice.weight

    return min(choices, key=distance).one


class CredentialShapes:
    """The shapes of all credentials of a cluster's users."""

    def __init__(self) -> None:
        self._users: dict[str, UserShape] = {}
        self._shared: dict[UserShape, UserShape] = {}
        self._by_user: _Proportions[UserShape] = _Proportions(_NO_SHAPE)
        self._by_mechanism: dict[ScramMechanism, _Proportions[CredentialShape]] = {
            mechanism: _Proportions(_DEFAULT_SHAPE) for mechanism in ScramMechanism
        }

    def put(self, user: str, credentials: Mapping[ScramMechanism, ScramCredential]) -> None:
        """Replace what is known of a user; one without credentials is forgotten."""
        found = (credentials.get(mechanism) for mechanism in ScramMechanism)
        shape: UserShape = tuple(None if each is None else CredentialShape.of(each) for each in found)
        self._count(self._users.pop(user, _NO_SHAPE), -1)
        if shape != _NO_SHAPE:
            self._users[user] = self._shared.setdefault(shape, shape)
        self._count(shape, 1)

    def _count(self, shape: UserShape, count: int) -> None:
        if shape == _NO_SHAPE:
            return
        self._by_user.add(shape, count)
        for mechanism, each in zip(ScramMechanism, shape, strict=True):
            if each is not None:
                self._by_mechanism[mechanism].add(each, count)

    def shape_for(self, mechanism: ScramMechanism, name: str, secret: bytes) -> CredentialShape:
        """The shape of a credential for a name that has none for this mechanism."""
        asked = name.encode()
        # All of it for every name, so that it takes as long for those that exist.
        drawn = self._by_user.draw(secret, asked)
        instead = self._by_mechanism[mechanism].draw(secret, mechanism.label.encode() + b"\0" + asked)
        return self._users.get(name, drawn)[_INDEXES[mechanism]] or instead


def fake_credential(
    mechanism: ScramMechanism, name: str, shape: CredentialShape, secret: bytes
) -> ScramCredential:
    """A credential by which no client can log in, always the same for a name and a shape."""
    asked = f"{mechanism.label}\0{shape!r}\0{name}".encode()
    keys = hmac.digest(secret, b"keys\0" + asked, mechanism.digest)
    stream = hashlib.shake_256(hmac.digest(secret, b"salt\0" + asked, "sha256"))
    return ScramCredential(_salt(shape, stream.digest), keys, keys, shape.iterations)


def _salt(shape: CredentialShape, stream: Callable[[int], bytes]) -> bytes:
    """A salt of a shape from a stream of bytes, of which as many are taken as it needs."""
    if not shape.salt_bytes:
        number = int.from_bytes(stream(32), "big") % (1 << _KAFKA_BITS)
        digits = bytearray()
        while number or not digits:
            number, digit = divmod(number, 36)
            digits.append(_BASE_36[digit])
        return bytes(reversed(digits))
    if len(shape.alphabet) == 256:
        return stream(shape.salt_bytes)
    # Eight bytes for each character, so that all of them are as good as equally probable.
    drawn = stream(8 * shape.salt_bytes)
    chosen = (int.from_bytes(drawn[at : at + 8], "big") for at in range(0, len(drawn), 8))
    return bytes(shape.alphabet[each % len(shape.alphabet)] for each in chosen)
