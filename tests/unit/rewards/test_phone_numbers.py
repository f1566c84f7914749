"""What phone-region says about numbers: real numbering plans, real mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from phonenumbers import PhoneNumberType, carrier, geocoder

from tidelog_rewards.jobs.phone_region.numbers import (
    LONGEST_CACHED,
    PhoneRegion,
    _by_number,
    _look_up,
    describe,
    look_up,
)

LANGUAGES = ("en", "zh", "ja", "ar")


def by_library(phone: str, country: str, language: str) -> PhoneRegion:
    """What the library's public functions say, without any memory; reasons are not theirs."""
    try:
        number = phonenumbers.parse(phone, country)
    except phonenumbers.NumberParseException:
        return PhoneRegion(*(None,) * 8, "unknown", False, None)
    languages = (language, "zh")
    kind = phonenumbers.number_type(number)
    valid = kind in (PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE)
    region: str | None
    places, carriers = ["", ""], ["", ""]
    if kind == PhoneNumberType.UNKNOWN:
        assert number.country_code is not None
        region = phonenumbers.region_code_for_country_code(number.country_code)
    else:
        region = phonenumbers.region_code_for_number(number)
        places = [geocoder.description_for_valid_number(number, each) for each in languages]
    if valid:
        carriers = [carrier.name_for_valid_number(number, each) for each in languages]
    countries = [geocoder._region_display_name(region, each) if region else "" for each in languages]
    e164 = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    names = [each or None for each in (*countries, *places, *carriers)]
    told: list[Any] = [e164, region, *names, PhoneNumberType.to_string(kind).lower(), valid, None]
    return PhoneRegion(*told)


def chinese_numbers(draw: Random) -> Iterator[str]:
    for block in range(1_000_000, 2_000_000, 151):
        tail = f"{draw.randrange(10**4):04}"
        yield f"+86{block}{tail}"
        if block % 7 == 0:
            yield f"{block}{tail}"
    for area in range(10, 1000):
        yield f"0{area}-{draw.randrange(2 * 10**6, 9 * 10**7)}"
        yield f"+86{area}{draw.randrange(10**5, 10**9)}"


def numbers_of_all_countries(draw: Random) -> Iterator[str]:
    for country in sorted(phonenumbers.SUPPORTED_REGIONS):
        for kind in PhoneNumberType.values():
            example = phonenumbers.example_number_for_type(country, kind)
            if example is not None:
                e164 = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.E164)
                yield e164
                yield e164[:6] + "".join(draw.choices("0123456789", k=len(e164) - 6))
                yield draw.choice((e164[:-3], f"{e164} ext. 12"))


def oddly_written_numbers() -> Iterator[str]:
    yield from (
        "+８６１３８１２３４５６７８",
        "１３８１２３４５６７８",
        "+86٠١٣٨١٢٣٤٥٦٧",
        "13812345678x9",
        "179001381234567",
    )
    yield from (
        "+86 138 1234 5678;ext=5",
        "tel:+86-138-1234-5678",
        "008613812345678",
        "8613812345678",
        "+8613",
    )
    yield from (
        "013812345678",
        "+86013812345678",
        "17951013812345678",
        "+800 1234 5678",
        "+1 800 FLOWERS",
        "112",
    )


def test_answers_are_those_of_the_library_whatever_is_remembered() -> None:
    draw = Random(11)
    phones = [*chinese_numbers(draw), *numbers_of_all_countries(draw), *oddly_written_numbers()]
    draw.shuffle(phones)
    for at, phone in enumerate(phones):
        language = LANGUAGES[at % len(LANGUAGES)]
        country = "CN" if at % 5 else "HK"
        assert describe(phone, country, language)._replace(reason=None) == by_library(
            phone, country, language
        )


def test_numbers_of_which_the_same_is_known_share_what_is_known() -> None:
    (first, told), (second, same) = look_up("+8613812345678"), look_up("138 1234 5679")
    assert (first, second) == ("+8613812345678", "+8613812345679")
    assert told is same
    assert told.e164 is None


def test_a_mobile_number_tells_country_place_and_carrier() -> None:
    assert describe("+8613812345678") == PhoneRegion(
        e164="+8613812345678",
        region="CN",
        country="China",
        country_zh="中国",
        place="Lianyungang, Jiangsu",
        place_zh="江苏省连云港市",
        carrier="China Mobile",
        carrier_zh="中国移动",
        number_type="mobile",
        valid=True,
        reason=None,
    )


@pytest.mark.parametrize(
    "written", ["13812345678", "0086 138 1234 5678", "+86 (138) 1234-5678", "8613812345678"]
)
def test_a_number_is_the_same_however_people_write_it(written: str) -> None:
    assert describe(written) == describe("+8613812345678")


def test_another_country_is_told_by_its_code() -> None:
    found = describe("+5511987654321")
    assert (found.region, found.country, found.place, found.valid) == ("BR", "Brazil", "São Paulo", True)


@pytest.mark.parametrize(
    ("phone", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("hello", "not a phone number"),
        ("+999123456789", "unknown country code"),
        ("+86138123456", "too short for a mobile number of China: 9 digits"),
        ("+861381234567890", "too long for a mobile number of China: 13 digits"),
        ("110", "too short for a mobile number of China: 3 digits"),
        ("+8612345678901", "not in a mobile number range of China"),
        ("+447700900123", "not in a mobile number range of United Kingdom"),
        ("010-62345678", "not a mobile number: this range is for fixed lines"),
        ("+80012345678", "not a mobile number: this range is for toll-free numbers"),
        ("1" * 300, "too long for any country"),
    ],
)
def test_a_bad_number_is_explained(phone: str, reason: str) -> None:
    found = describe(phone)
    assert (found.valid, found.reason) == (False, reason)


def test_a_fixed_line_has_a_place_though_it_is_no_mobile_number() -> None:
    found = describe("+862162345678")
    assert (found.country, found.place, found.number_type, found.valid) == (
        "China",
        "Shanghai",
        "fixed_line",
        False,
    )


@given(st.text(max_size=40))
def test_any_text_has_an_answer_and_a_reason_exactly_where_it_is_not_valid(text: str) -> None:
    found = describe(text)
    assert found.valid == (found.reason is None)
    assert not found.valid or found.e164 is not None


def test_a_text_too_long_for_a_number_is_answered_and_not_kept() -> None:
    """Whoever writes events may send thousands of texts of thousands of characters."""
    before = _by_number.cache_info()
    for text in ("7" * (LONGEST_CACHED + 1), "x" * 4096):
        assert describe(text) == _look_up(text, "CN", "en")
    assert _by_number.cache_info() == before
    describe("7" * LONGEST_CACHED)
    assert _by_number.cache_info() != before


def test_the_last_digits_of_a_chinese_mobile_number_say_nothing() -> None:
    """Blocks are looked up once: every number of one is told what its own look-up would tell."""
    draw = Random(7)
    tails = ("0000", "9999", "0110", "8613")
    for start in range(100, 200):
        block = f"+86{start}{draw.randrange(10**4):04}"
        for tail in (f"{draw.randrange(10**4):04}", *tails):
            assert describe(block + tail) == _look_up(block + tail, "CN", "en")
            assert describe(block + tail, "US", "zh") == _look_up(block + tail, "US", "zh")
