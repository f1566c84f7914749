from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ConfigError
from tidelog.security.password_encoder import CIPHERS, KEY_FACTORIES, KEY_LENGTHS, PasswordEncoder

# Made by org.apache.kafka.security.EncryptingPasswordEncoder of Kafka 3.9.
KAFKAS_CBC = (
    "initializationVector:7hq+4Pj3FhgElCY2MJkEIQ==,keyLength:128,salt:Rb9UbtuFMCpKIQkDqXyp1rbtz2qFPXhFQJe"
    "TTPOgIxBI9+eM88UKIoAB1KXkuUTtB0d3F51nZnGZg334sShoNF5X4yO6YXksNv3oSSzgD2zzbYJlsElfd5RZJfN/JzfXFphyxPV"
    "yi5uAAxc1u7KrOYRZ67//1k8+cpaoqZEhJgI5SSMJLJiZgWnmVQRpTXug54Ra7j50+qvo6xij9jw+2qx6vZx4j4pZa5tkqf80B8r"
    "2yvASR8MJUChrv4H3sIvH/vVnkzVNzrUeqmJcmlWX/xMk3slk4lRHXEvZg/H9V31MVHb6TLtQZODDrcHWZqA5kPIL1W0Ap55m9cm"
    "/edxtRQ==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4"
    "096,passwordLength:13,encryptedPassword:u/lgG3NyvWeuDZAm+JAziQ=="
)
KAFKAS_GCM = (
    "initializationVector:iyL5pVH8YM2/9nCE,keyLength:128,salt:QB2llrJ4BEj32fIq+dUJUkVlj7MwQKi9FgTNYo6qX5Y"
    "JtfmfAoLdcoRrVrX4Z4mUiH0ZaeQxzuM/ULbXYHwdN3A4wBjKzPi2FGOjaTJq4qzpwt3wVskSZu+Z7IK1ynLZTIIMge/0jm9fKH9"
    "+KN2PjR0IptgeyIdrai10B9742JYE4FE5cAY5oLggfxq80rPWfF2/7RUdd3ozTL/WpvtFpvZ35lr1EbU+DpaXqtZalQs7fLnJzpt"
    "s8YUCGHp1oDmRw1BTc4t7gaEWInQyJQ0fbjlAxE4xtpreT4YYCTfLJn8d1eupoSg1/w/ihe6tip14J9VcdBJy96WidHgEF7Sg8g="
    "=,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength"
    ":128,iterations:4096,passwordLength:13,encryptedPassword:wMi0s86NvPVNdsUCucI2+/AKGuyZSdez46y4E2Dk"
)


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("factory", KEY_FACTORIES)
@pytest.mark.parametrize("bits", KEY_LENGTHS)
def test_what_was_encoded_is_decoded_whatever_the_algorithms_are_now(
    cipher: str, factory: str, bits: int
) -> None:
    encoded = PasswordEncoder("a secret", factory, cipher, bits, 1000).encode("pä55 wörd, with: signs")
    assert "55" not in encoded.split("encryptedPassword")[0]
    assert PasswordEncoder("a secret").decode(encoded) == "pä55 wörd, with: signs"


@given(st.text(max_size=200))
def test_any_text_comes_back(password: str) -> None:
    encoder = PasswordEncoder("key", iterations=1)
    assert encoder.decode(encoder.encode(password)) == password


def test_the_same_password_is_another_text_each_time() -> None:
    encoder = PasswordEncoder("key", iterations=1)
    assert encoder.encode("x") != encoder.encode("x")


@pytest.mark.parametrize("cipher", CIPHERS)
def test_another_secret_reads_nothing(cipher: str) -> None:
    encoded = PasswordEncoder("one", cipher=cipher, iterations=1).encode("hidden")
    with pytest.raises(ConfigError, match=r"password\.encoder\.old\.secret") as error:
        PasswordEncoder("two").decode(encoded)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "hidden",
        lambda text: text.replace("salt", "pepper"),
        lambda text: text.replace("iterations:1,", "iterations:99999999999,"),
        lambda text: text.replace("AES/CBC", "DES/CBC"),
        lambda text: text.replace("keyLength:128", "keyLength:8"),
        lambda text: text.replace("passwordLength:6", "passwordLength:7"),
        lambda text: text.replace("initializationVector:", "initializationVector:%"),
    ],
)
def test_what_is_no_encoded_password_is_refused(change: object) -> None:
    assert callable(change)
    encoder = PasswordEncoder("one", iterations=1)
    with pytest.raises(ConfigError):
        encoder.decode(change(encoder.encode("hidden")))


@pytest.mark.parametrize("encoded", [KAFKAS_CBC, KAFKAS_GCM])
def test_what_kafka_has_encoded_is_read(encoded: str) -> None:
    assert PasswordEncoder("a sécret").decode(encoded) == "pä55, word: x"


def test_the_secret_is_not_shown() -> None:
    assert "hush" not in repr(PasswordEncoder("hush"))
