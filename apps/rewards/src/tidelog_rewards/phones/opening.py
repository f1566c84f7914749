"""Opens dead letters whose records were sealed because they may hold phone numbers."""

from __future__ import annotations

from pathlib import Path

from tidelog.spark.dead_letters.letter import Opener
from tidelog_rewards.phones.phone_keys import read_keys
from tidelog_rewards.phones.phone_tokens import PhoneTokens


def opener(keys: Path) -> Opener:
    """An opener with the keys of a file; raises ``PhoneKeysError``."""
    # Seals do not depend on the country of a number.
    return PhoneTokens(read_keys(keys), "CN")
