"""What phone-region says about numbers: real numbering plans, real mistakes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipelines.jobs.phone_region.numbers import PhoneRegion, _look_up, describe


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


def test_the_last_digits_of_a_chinese_mobile_number_say_nothing() -> None:
    """Blocks are looked up once: every number of one is told what its own look-up would tell."""
    draw = Random(7)
    tails = ("0000", "9999", "0110", "8613")
    for start in range(100, 200):
        block = f"+86{start}{draw.randrange(10**4):04}"
        for tail in (f"{draw.randrange(10**4):04}", *tails):
            assert describe(block + tail) == _look_up(block + tail, "CN", "en")
            assert describe(block + tail, "US", "zh") == _look_up(block + tail, "US", "zh")
