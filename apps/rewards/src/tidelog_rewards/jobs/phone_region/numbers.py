"""What a phone number says about its user: country, place, carrier, kind; and of a bad one, why it is bad.

Pure Python over ``phonenumbers`` (Google's numbering plans), without Spark. :func:`look_up` looks at one
number, through caches that live as long as the worker process: of Chinese mobile numbers, whose last four
digits say nothing, by their blocks, of which there are less than a million; of others by the number, because
the same people come back in batch after batch.

What no cache has must be quick as well, for most numbers are seen once. The library takes the name of a place
or carrier from the longest prefix of the number that it has names for, in a language or, where it has none in
that, from a shorter one. So the longest prefix says it all: the library is asked once for each.

The same text always gives the same answer, so a replayed batch gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import phonenumbers
from phonenumbers import (
    NumberParseException,
    PhoneNumber,
    PhoneNumberType,
    ValidationResult,
    carrier,
    geocoder,
)
from phonenumbers.carrierdata import CARRIER_DATA, CARRIER_LONGEST_PREFIX
from phonenumbers.geodata import GEOCODE_DATA, GEOCODE_LONGEST_PREFIX
from phonenumbers.geodata.locale import LOCALE_DATA

CHINESE = "zh"
CACHED_NUMBERS = 1 << 16
"""About 25 MB in each worker."""
LONGEST_CACHED = 64
"""Numbers are shorter, however they are written. Texts of thousands of characters would be gigabytes."""

CHINA = "CN"
_CHINESE_CODE = 86
_CHINESE_MOBILE = re.compile(r"(\+86)?1(?:[345689]\d|7[0-8])\d{8}", re.ASCII)
"""As most texts are. Behind 179 there may be another number: that one is not for here."""
_NATIONAL, _BLOCK = slice(3, None), slice(3, 10)
"""The digits of such a number, in its international form, and those of them that say something."""

_MOBILE = (PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE)
_KINDS = {
    PhoneNumberType.FIXED_LINE: ("fixed_line", "fixed lines"),
    PhoneNumberType.MOBILE: ("mobile", "mobile phones"),
    PhoneNumberType.FIXED_LINE_OR_MOBILE: ("fixed_line_or_mobile", "fixed lines and mobile phones"),
    PhoneNumberType.TOLL_FREE: ("toll_free", "toll-free numbers"),
    PhoneNumberType.PREMIUM_RATE: ("premium_rate", "premium-rate services"),
    PhoneNumberType.SHARED_COST: ("shared_cost", "shared-cost services"),
    PhoneNumberType.VOIP: ("voip", "internet telephony"),
    PhoneNumberType.PERSONAL_NUMBER: ("personal_number", "personal numbers"),
    PhoneNumberType.PAGER: ("pager", "pagers"),
    PhoneNumberType.UAN: ("uan", "company numbers"),
    PhoneNumberType.VOICEMAIL: ("voicemail", "voicemail"),
}
_UNPARSED = {
    NumberParseException.INVALID_COUNTRY_CODE: "unknown country code",
    NumberParseException.NOT_A_NUMBER: "not a phone number",
    NumberParseException.TOO_SHORT_AFTER_IDD: "too short: nothing follows the international prefix",
    NumberParseException.TOO_SHORT_NSN: "too short: hardly anything follows the country code",
    NumberParseException.TOO_LONG: "too long for any country",
}


class PhoneRegion(NamedTuple):
    """What is known about a number; ``reason`` is None exactly where ``valid``."""

    e164: str | None
    """The number in its international form; None where there is no country code to build it with."""
    region: str | None
    """ISO 3166 code of the country, ``001`` for numbers of no country."""
    country: str | None
    country_zh: str | None
    """The same in Chinese, as in the other fields of that ending."""
    place: str | None
    """City and province, as far as the number tells."""
    place_zh: str | None
    carrier: str | None
    """Who issued the number; its owner may have taken it to somebody else since."""
    carrier_zh: str | None
    number_type: str
    valid: bool
    """Whether it can be somebody's mobile phone: in use in its country, and in a mobile range."""
    reason: str | None


Described = tuple[str | None, PhoneRegion]
"""A number in its international form, and what is known about it without that: one object for all numbers of
which the same is known."""
_Names = tuple[str | None, str | None]
"""In a language, and in Chinese."""

_blocks: dict[str, dict[int, PhoneRegion]] = {}
"""By language and block."""
_shared: dict[PhoneRegion, PhoneRegion] = {}
_places: dict[tuple[int, str, str], _Names] = {}
"""By country code, longest prefix and language."""
_carriers: dict[tuple[str, str], _Names] = {}
"""By longest prefix and language."""


def describe(phone: str, default_country: str = CHINA, language: str = "en") -> PhoneRegion:
    """What is known about a number; see :func:`look_up`."""
    e164, told = look_up(phone, default_country, language)
    return PhoneRegion(e164, *told[1:])


def look_up(phone: str, default_country: str = CHINA, language: str = "en") -> Described:
    """Look at one number; never raises for a text.

    ``default_country`` is where it is from if it has no international prefix.
    """
    mobile = _CHINESE_MOBILE.fullmatch(phone)
    if mobile is None:
        return _looked_up(phone, default_country, language)
    if mobile[1] is None:
        if default_country != CHINA:
            return _looked_up(phone, default_country, language)
        phone = f"+{_CHINESE_CODE}{phone}"
    blocks = _blocks.get(language)
    if blocks is None:
        blocks = _blocks[language] = {}
    block = int(phone[_BLOCK])
    known = blocks.get(block)
    if known is None:
        # As the library parses it.
        number = PhoneNumber(country_code=_CHINESE_CODE, national_number=int(phone[_NATIONAL]))
        known = blocks[block] = _without_number(_told(number, language))
    return phone, known


def _looked_up(phone: str, default_country: str, language: str) -> Described:
    look = _by_number if len(phone) <= LONGEST_CACHED else _described
    return look(phone, default_country, language)


def _described(phone: str, default_country: str, language: str) -> Described:
    told = _look_up(phone, default_country, language)
    return told.e164, _without_number(told)


_by_number = lru_cache(CACHED_NUMBERS)(_described)


def _without_number(told: PhoneRegion) -> PhoneRegion:
    alone = PhoneRegion(None, *told[1:])
    return _shared.setdefault(alone, alone)


def _look_up(phone: str, default_country: str, language: str) -> PhoneRegion:
    if not phone.strip():
        return _unknown("empty")
    try:
        number = phonenumbers.parse(phone, default_country)
    except NumberParseException as error:
        return _unknown(_UNPARSED[error.error_type])
    return _told(number, language)


def _told(number: PhoneNumber, language: str) -> PhoneRegion:
    kind = phonenumbers.number_type(number)
    return _in_use(number, kind, language) if kind in _KINDS else _not_in_use(number, language)


def _unknown(reason: str) -> PhoneRegion:
    return PhoneRegion(*(None,) * 8, "unknown", False, reason)


def _in_use(number: PhoneNumber, kind: int, language: str) -> PhoneRegion:
    region = phonenumbers.region_code_for_number(number)
    name, range_name = _KINDS[kind]
    valid = kind in _MOBILE
    e164 = _e164(number)
    place, place_zh = _place(number, e164, language)
    carrier_name, carrier_zh = _carrier(number, e164, language) if valid else (None, None)
    return PhoneRegion(
        e164=e164,
        region=region,
        country=_country(region, language),
        country_zh=_country(region, CHINESE),
        place=place,
        place_zh=place_zh,
        carrier=carrier_name,
        carrier_zh=carrier_zh,
        number_type=name,
        valid=valid,
        reason=None if valid else f"not a mobile number: this range is for {range_name}",
    )


def _place(number: PhoneNumber, e164: str, language: str) -> _Names:
    """Where a number in use is from: a place, or its country."""
    code = number.country_code
    assert code is not None, "phonenumbers.parse has found one, or raised"
    if not _is_told_by_prefix(code):
        return _place_by_library(number, language)
    key = (code, _longest_prefix(e164, GEOCODE_DATA, GEOCODE_LONGEST_PREFIX), language)
    names = _places.get(key)
    if names is None:
        names = _places[key] = _place_by_library(number, language)
    return names


def _place_by_library(number: PhoneNumber, language: str) -> _Names:
    return (
        geocoder.description_for_valid_number(number, language) or None,
        geocoder.description_for_valid_number(number, CHINESE) or None,
    )


@lru_cache(1024)
def _is_told_by_prefix(country_code: int) -> bool:
    """Whether prefixes of the number as it is name a place, and the country code the only country."""
    regions = phonenumbers.region_codes_for_country_code(country_code)
    return len(regions) == 1 and not phonenumbers.country_mobile_token(country_code)


def _carrier(number: PhoneNumber, e164: str, language: str) -> _Names:
    """Who issued a number in use."""
    key = (_longest_prefix(e164, CARRIER_DATA, CARRIER_LONGEST_PREFIX), language)
    names = _carriers.get(key)
    if names is None:
        names = _carriers[key] = (
            carrier.name_for_valid_number(number, language) or None,
            carrier.name_for_valid_number(number, CHINESE) or None,
        )
    return names


def _longest_prefix(e164: str, data: Mapping[str, object], longest: int) -> str:
    for end in range(longest + 1, 1, -1):
        if (prefix := e164[1:end]) in data:
            return prefix
    return ""


def _not_in_use(number: PhoneNumber, language: str) -> PhoneRegion:
    assert number.country_code is not None, "phonenumbers.parse has found one, or raised"
    region = phonenumbers.region_code_for_country_code(number.country_code)
    name = _country(region, "en") or f"+{number.country_code}"
    return PhoneRegion(
        e164=_e164(number),
        region=region,
        country=_country(region, language),
        country_zh=_country(region, CHINESE),
        place=None,
        place_zh=None,
        carrier=None,
        carrier_zh=None,
        number_type="unknown",
        valid=False,
        reason=_why_not_in_use(number, name),
    )


def _why_not_in_use(number: PhoneNumber, country: str) -> str:
    digits = len(phonenumbers.national_significant_number(number))
    length = phonenumbers.is_possible_number_for_type_with_reason(number, PhoneNumberType.MOBILE)
    match length:
        case ValidationResult.TOO_SHORT | ValidationResult.IS_POSSIBLE_LOCAL_ONLY:
            return f"too short for a mobile number of {country}: {digits} digits"
        case ValidationResult.TOO_LONG:
            return f"too long for a mobile number of {country}: {digits} digits"
        case ValidationResult.INVALID_LENGTH:
            return f"mobile numbers of {country} do not have {digits} digits"
    return f"not in a mobile number range of {country}"


def _e164(number: PhoneNumber) -> str:
    return str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))


@lru_cache(1024)
def _country(region: str | None, language: str) -> str | None:
    names = LOCALE_DATA.get(region, {}) if region else {}
    name: str | None = names.get(language)
    # Names that are the same in many languages are kept under one of them.
    return names.get(name[1:]) if name and name.startswith("*") else name
