"""Names that no user has: what a client sees of them must not differ from what it sees of users."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.security.sasl.fake_credentials import CredentialShape, CredentialShapes, fake_credential
from tidelog.security.sasl.scram_credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SECRET = b"s" * 32
DRAWN = random.Random(7)
NAMES = [f"somebody-{number}" for number in range(2000)]


def credential(salt: bytes, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(salt, b"stored", b"server", iterations)


def kafkas_salt() -> bytes:
    """As Kafka's tools make them: a number of 130 bits in base 36."""
    number, digits = DRAWN.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.encode()


def shapes_of(users: Mapping[str, Mapping[ScramMechanism, ScramCredential]]) -> CredentialShapes:
    shapes = CredentialShapes()
    for name, credentials in users.items():
        shapes.put(name, credentials)
    return shapes


def seen(shapes: CredentialShapes, name: str, mechanism: ScramMechanism = SHA_256) -> ScramCredential:
    return fake_credential(mechanism, name, shapes.shape_for(mechanism, name, SECRET), SECRET)


def test_fakes_have_the_lengths_and_iterations_of_the_users_in_proportion() -> None:
    users = {
        f"user-{number}": {
            SHA_256: credential(DRAWN.randbytes(16), 4096)
            if number % 4
            else credential(DRAWN.randbytes(64), 16384)
        }
        for number in range(40)
    }
    found = Counter((len(each.salt), each.iterations) for each in map(seen_by(shapes_of(users)), NAMES))
    assert found.keys() == {(16, 4096), (64, 16384)}
    assert 0.7 < found[16, 4096] / len(NAMES) < 0.8


def seen_by(
    shapes: CredentialShapes, mechanism: ScramMechanism = SHA_256
) -> Callable[[str], ScramCredential]:
    return lambda name: seen(shapes, name, mechanism)


def test_fakes_have_the_iterations_of_all_users_however_many_different_ones_there_are() -> None:
    iterations = range(4096, 4096 + 300)
    users = {f"user-{each}": {SHA_256: credential(DRAWN.randbytes(26), each)} for each in iterations}
    shapes = shapes_of(users)
    found = Counter(each.iterations for each in map(seen_by(shapes), NAMES))
    assert found.keys() <= set(iterations)
    # Of 300 that are equally frequent, two thousand draws leave out a few.
    assert len(found) > 280
    assert max(found.values()) < 40


def test_fakes_look_as_if_kafkas_tools_had_made_them_where_those_made_the_users() -> None:
    shapes = shapes_of({f"user-{number}": {SHA_256: credential(kafkas_salt())} for number in range(20)})
    fakes = [seen(shapes, name).salt for name in NAMES]
    real = [kafkas_salt() for _ in NAMES]
    for salts in (fakes, real):
        assert {len(each) for each in salts} <= set(range(20, 27))
        # A number below 2^130 that has 26 digits begins with 1.
        assert {each[:1] for each in salts if len(each) == 26} == {b"1"}
        assert 0.35 < sum(len(each) == 26 for each in salts) / len(NAMES) < 0.47
    assert len(set(fakes)) == len(NAMES)


@pytest.mark.parametrize(
    "alphabet", [b"0123456789abcdef", b"abcdefghijklmnopqrstuvwxyz0123456789", b"!~ aZ0"]
)
def test_fakes_of_a_salt_that_is_text_are_text(alphabet: bytes) -> None:
    salt = bytes(DRAWN.choice(alphabet) for _ in range(40))
    shapes = shapes_of({"user": {SHA_256: credential(salt)}})
    for name in NAMES[:100]:
        fake = seen(shapes, name).salt
        assert len(fake) == 40
        assert fake.isascii()
        assert CredentialShape.of(credential(fake)) == CredentialShape.of(credential(salt))


def test_a_salt_may_be_longer_than_any_digest() -> None:
    shapes = shapes_of({"user": {SHA_256: credential(DRAWN.randbytes(1000))}})
    assert len(seen(shapes, "somebody").salt) == 1000


def test_all_brokers_give_the_same_whichever_order_they_learned_of_users_in() -> None:
    users = {
        f"user-{number}": {SHA_256: credential(DRAWN.randbytes(16 + number % 5), 4096 + number % 3)}
        for number in range(30)
    }
    one, another = shapes_of(users), shapes_of(dict(reversed(users.items())))
    another.put("more", {SHA_512: credential(b"salt")})
    another.put("more", {})
    for name in NAMES[:300]:
        assert seen(one, name) == seen(another, name)
        assert seen(one, name) != fake_credential(
            SHA_256, name, one.shape_for(SHA_256, name, b"x" * 32), b"x" * 32
        )


def test_a_new_user_changes_only_so_many_fakes_as_the_proportions() -> None:
    users = {f"user-{number}": {SHA_256: credential(DRAWN.randbytes(16))} for number in range(50)}
    shapes = shapes_of(users)
    before = {name: seen(shapes, name) for name in NAMES}
    shapes.put("new", {SHA_256: credential(DRAWN.randbytes(26), 8192)})
    changed = {name: seen(shapes, name) for name in NAMES if seen(shapes, name) != before[name]}
    assert 0 < len(changed) < len(NAMES) * 3 / 51
    for name, after in changed.items():
        assert (len(after.salt), after.iterations) == (26, 8192)
        assert after.salt[:16] != before[name].salt, "as after a change of the password"


def test_users_of_one_mechanism_cannot_be_found_by_asking_for_the_other() -> None:
    """What both mechanisms show together occurs as often among fakes as among users."""
    users: dict[str, dict[ScramMechanism, ScramCredential]] = {}
    for number in range(30):
        salt = DRAWN.randbytes(16)
        both = {SHA_256: credential(salt, 4096), SHA_512: credential(salt, 4096)}
        users[f"both-{number}"] = both
        users[f"old-{number}"] = {SHA_256: credential(salt, 10000)}
    shapes = shapes_of(users)

    def pair(name: str) -> tuple[int, int]:
        real = users.get(name, {})
        first, second = (
            (real.get(each) or seen(shapes, name, each)).iterations for each in (SHA_256, SHA_512)
        )
        return first, second

    assert set(map(pair, users)) == set(map(pair, NAMES)) == {(4096, 4096), (10000, 4096)}
    fakes = Counter(map(pair, NAMES))
    assert 0.45 < fakes[4096, 4096] / len(NAMES) < 0.55
    assert seen(shapes, "somebody", SHA_256).salt != seen(shapes, "somebody", SHA_512).salt


def test_without_users_all_names_look_like_one_that_tidelog_made() -> None:
    own = CredentialShape.of(ScramCredential.of_password(SHA_256, "secret"))
    assert {CredentialShape.of(each) for each in map(seen_by(CredentialShapes()), NAMES[:50])} == {own}


@given(st.binary(min_size=1, max_size=80), st.integers(1, 20000))
def test_every_salt_has_a_shape_and_fakes_of_it(salt: bytes, iterations: int) -> None:
    shape = CredentialShape.of(credential(salt, iterations))
    fake = fake_credential(SHA_512, "somebody", shape, SECRET)
    assert fake.iterations == iterations
    assert len(fake.salt) == (shape.salt_bytes or len(fake.salt))
    assert not fake.salt.translate(None, shape.alphabet)
