from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.ids import TopicPartition
from tidelog.spark.read._planning import plan_tasks, rate_limit

SIZES = st.lists(st.integers(0, 30_000), max_size=40)
PARTITIONS = st.integers(1, 50)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [
        OffsetRange(f"t{index % 3}", index, index * 7, index * 7 + size) for index, size in enumerate(sizes)
    ]


def covered(ranges: list[OffsetRange]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """The stretches that ranges cover, joined; overlapping ones are an error."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for topic, partition, start, end, _ in sorted(ranges):
        stretches = found.setdefault((topic, partition), [])
        assert not stretches or stretches[-1][1] <= start, "an offset is read twice"
        if stretches and stretches[-1][1] == start:
            stretches[-1] = (stretches[-1][0], end)
        else:
            stretches.append((start, end))
    return found


@settings(deadline=None)
@given(SIZES, PARTITIONS, st.none() | PARTITIONS, st.none() | st.integers(1, 20_000))
def test_every_offset_is_in_exactly_one_task(
    sizes: list[int], cores: int, min_partitions: int | None, max_records: int | None
) -> None:
    if max_records is not None and max_records < 20:
        sizes = [size % 1000 for size in sizes]
    ranges = ranges_of(sizes)
    tasks = plan_tasks(ranges, cores, min_partitions=min_partitions, max_records=max_records)
    assert covered([each for task in tasks for each in task]) == covered([r for r in ranges if r.size])
    assert all(task and all(each.size > 0 for each in task) for task in tasks)


@settings(deadline=None)
@given(SIZES, PARTITIONS, st.none() | PARTITIONS, st.none() | st.integers(100, 20_000))
def test_the_same_offsets_give_the_same_tasks_in_whatever_order_they_come(
    sizes: list[int], cores: int, min_partitions: int | None, max_records: int | None
) -> None:
    ranges = ranges_of(sizes)
    options = {"min_partitions": min_partitions, "max_records": max_records}
    assert plan_tasks(ranges, cores, **options) == plan_tasks(reversed(ranges), cores, **options)


@settings(deadline=None)
@given(SIZES, PARTITIONS)
def test_without_options_there_is_about_one_task_for_each_core_and_no_partition_is_split(
    sizes: list[int], cores: int
) -> None:
    tasks = plan_tasks(ranges_of(sizes), cores)
    assert len(tasks) <= cores
    pieces = [each.topic_partition for task in tasks for each in task]
    assert len(pieces) == len(set(pieces))


@settings(deadline=None)
@given(SIZES, PARTITIONS, st.integers(100, 20_000))
def test_no_task_reads_more_than_max_records(sizes: list[int], cores: int, max_records: int) -> None:
    for task in plan_tasks(ranges_of(sizes), cores, max_records=max_records):
        assert sum(each.size for each in task) <= max_records


@settings(deadline=None)
@given(SIZES, PARTITIONS, PARTITIONS)
def test_there_are_min_partitions_tasks_where_there_are_so_many_offsets(
    sizes: list[int], cores: int, min_partitions: int
) -> None:
    tasks = plan_tasks(ranges_of(sizes), cores, min_partitions=min_partitions)
    assert len(tasks) >= min(min_partitions, sum(sizes))


def test_tasks_are_of_nearly_the_same_size() -> None:
    tasks = plan_tasks(ranges_of([10_000] * 100), 4)
    assert [sum(each.size for each in task) for task in tasks] == [250_000] * 4


def test_a_few_offsets_are_one_task() -> None:
    assert len(plan_tasks(ranges_of([100, 200, 300]), 8)) == 1


def test_a_large_partition_is_split_before_a_small_one() -> None:
    tasks = plan_tasks(ranges_of([90_000, 10_000]), 2, min_partitions=10)
    sizes = sorted(sum(each.size for each in task) for task in tasks)
    assert len(tasks) == 10
    assert sizes == [10_000] * 10


OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5)),
    st.tuples(st.integers(0, 1 << 40), st.integers(-5, 100_000)),
    max_size=10,
)


@settings(deadline=None)
@given(OFFSETS, st.integers(1, 200_000))
def test_a_rate_limit_is_never_exceeded_and_is_used_up(
    offsets: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    starts = {each: start for each, (start, _) in offsets.items()}
    ends = {each: max(start + size, 0) for each, (start, size) in offsets.items()}
    limited = rate_limit(limit, starts, ends)
    assert limited.keys() == ends.keys()
    moved = {each: limited[each] - starts[each] for each in limited if ends[each] > starts[each]}
    assert all(0 <= size <= ends[each] - starts[each] for each, size in moved.items())
    assert sum(moved.values()) == min(limit, sum(ends[each] - starts[each] for each in moved))


@settings(deadline=None)
@given(OFFSETS, st.integers(1, 50))
def test_with_a_rate_limit_everything_is_read_in_the_end(
    offsets: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    starts = {each: start for each, (start, _) in offsets.items()}
    ends = {each: start + max(size, 0) % 60 for each, (start, size) in offsets.items()}
    total = sum(ends[each] - starts[each] for each in ends)
    for _ in range(-(-total // limit)):
        starts = rate_limit(limit, starts, ends)
    assert starts == ends


def test_a_small_partition_moves_on_beside_a_large_one() -> None:
    small, large = TopicPartition("t", 0), TopicPartition("t", 1)
    limited = rate_limit(10, {small: 0, large: 0}, {small: 5, large: 1_000_000})
    assert limited == {small: 1, large: 9}


def test_partitions_take_turns_where_the_limit_is_below_their_number() -> None:
    partitions = [TopicPartition("t", number) for number in range(3)]
    at = dict.fromkeys(partitions, 0)
    ends = dict.fromkeys(partitions, 100)
    for _ in range(3):
        at = rate_limit(1, at, ends)
    assert set(at.values()) == {1}
