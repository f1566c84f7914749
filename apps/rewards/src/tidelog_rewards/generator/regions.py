"""Countries of the app's users: their share, their local time, their telephone numbers and addresses.

The app is Chinese and so are most of its users. Numbers are valid ones of each country's mobile ranges
(a test asks ``phonenumbers``); those of :func:`invalid_phone` are not, and say why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

_CHINESE_PREFIXES = tuple(
    f"+86{prefix}" for prefix in (*range(130, 140), 150, 151, 152, 153, *range(155, 160), *range(180, 190))
)


@dataclass(frozen=True, slots=True)
class Region:
    """One country: its share of the users, its number prefixes and the digits after them, its networks."""

    code: str
    share: float
    utc_offset_minutes: int
    phone_prefixes: tuple[str, ...]
    phone_digits: int
    networks: tuple[int, ...]

    def phone(self, random: Random) -> str:
        """A valid mobile number in E.164."""
        prefix = self.phone_prefixes[int(random.random() * len(self.phone_prefixes))]
        return f"{prefix}{int(random.random() * 10**self.phone_digits):0{self.phone_digits}d}"

    def network(self, random: Random) -> str:
        """The first three numbers of an address, ``a.b.c``."""
        bits = random.getrandbits(48)
        first = self.networks[(bits >> 32) % len(self.networks)]
        return f"{first}.{(bits >> 16 & 0xFFFF) % 254 + 1}.{(bits & 0xFFFF) % 254 + 1}"

    def address(self, random: Random) -> str:
        """An address of this country."""
        return f"{self.network(random)}.{int(random.random() * 253) + 1}"


REGIONS = (
    Region("CN", 0.86, 480, _CHINESE_PREFIXES, 8, (36, 58, 101, 112, 114, 123, 180, 183, 221, 222)),
    Region("HK", 0.02, 480, ("+85296", "+85261"), 6, (14, 42, 119)),
    Region("TW", 0.02, 480, ("+8869",), 8, (1, 61)),
    Region("SG", 0.01, 480, ("+6581",), 6, (116, 175)),
    Region("MY", 0.02, 480, ("+6012",), 7, (60, 115)),
    Region("VN", 0.01, 420, ("+8498",), 7, (27, 113)),
    Region("TH", 0.01, 420, ("+668",), 8, (49, 171)),
    Region("ID", 0.01, 420, ("+62812",), 7, (36, 114)),
    Region("IN", 0.01, 330, ("+9198",), 8, (103, 106)),
    Region("KR", 0.01, 540, ("+82102", "+82103"), 7, (121, 175)),
    Region("GB", 0.01, 0, ("+447400",), 6, (81, 86)),
    Region("US", 0.01, -300, ("+1415555", "+1917555"), 4, (24, 73)),
)
CHINA = REGIONS[0]

_BY_LOCAL_HOUR = (
    *(0.35, 0.18, 0.10, 0.07, 0.08, 0.20, 0.60, 1.15, 1.45, 1.20, 1.05, 1.15),
    *(1.60, 1.40, 1.05, 1.00, 1.05, 1.25, 1.60, 1.70, 1.85, 1.90, 1.55, 0.85),
)
_MEAN = sum(_BY_LOCAL_HOUR) / 24


def activity(region: Region, time_ms: int) -> float:
    """How busy people are at a time, 1.0 being the mean of a day; lunch and evening are peaks."""
    hours = (time_ms / 3_600_000 + region.utc_offset_minutes / 60) % 24
    hour = math.floor(hours)
    here, there = _BY_LOCAL_HOUR[hour], _BY_LOCAL_HOUR[(hour + 1) % 24]
    return (here + (there - here) * (hours - hour)) / _MEAN


def invalid_phone(random: Random) -> tuple[str, str]:
    """A number that nobody can have, and why."""
    digits = f"{int(random.random() * 10**8):08d}"
    choices = (
        (f"+86138{digits[:5]}", "too short"),
        (f"+86138{digits}{digits[:3]}", "too long"),
        (f"+86120{digits}", "no operator has this prefix"),
        (f"+999{digits}", "no country has this code"),
        (f"phone{digits[:3]}", "not a number"),
    )
    return choices[int(random.random() * len(choices))]
