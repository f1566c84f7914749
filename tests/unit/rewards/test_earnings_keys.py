"""Keys to derive anew, gathered in any order, and the slices in which Cassandra's ring is read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_rewards.jobs.earnings.cassandra_ledger import _slice
from tidelog_rewards.jobs.earnings.key_spill import KeySpill, Touched

names = st.sampled_from(("ann", "bob", "eve", "ü"))
keys = st.one_of(
    st.builds(Touched, names, st.sampled_from(("2026-03-01", "2026-03-02")), st.just("")),
    st.builds(Touched, names, st.just(""), st.sampled_from(("t1", "t2"))),
)


@given(st.lists(keys, max_size=30), st.integers(1, 3))
def test_every_key_comes_once_and_a_user_in_one_chunk(told: list[Touched], size: int) -> None:
    with KeySpill() as spill:
        spill.add(told)
        chunks = list(spill.chunks(size))
    users = [{user for user, _ in (*chunk.days, *chunk.tasks)} for chunk in chunks]
    assert all(1 <= len(each) <= size for each in users)
    assert sum(map(len, users)) == len({key.user_id for key in told})
    found = [Touched(user, day, "") for chunk in chunks for user, day in chunk.days]
    found += [Touched(user, "", task) for chunk in chunks for user, task in chunk.tasks]
    assert sorted(found) == sorted(set(told))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1024])
def test_slices_cover_the_ring_and_do_not_overlap(count: int) -> None:
    slices = [_slice(number, count) for number in range(count)]
    assert (slices[0][0], slices[-1][1]) == (-(2**63), 2**63 - 1)
    assert all(after[0] == before[1] + 1 for before, after in pairwise(slices))
