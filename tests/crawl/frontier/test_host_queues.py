"""Pages of a plan come in their order, and of each host no more than a crawler has room for."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.crawl.frontier.host_queues import HostQueues, QueuedPage

HOSTS = st.integers(0, 4)
PLANS = st.lists(HOSTS, max_size=40).map(
    lambda hosts: [QueuedPage(float(number), number, host, 0.0) for number, host in enumerate(hosts)]
)
ROOMS = st.tuples(st.integers(0, 3), st.dictionaries(HOSTS, st.integers(0, 3)))


@given(PLANS, st.lists(ROOMS, max_size=6))
def test_a_host_has_no_more_pages_than_it_has_room_for_and_the_rest_comes_later(
    plan: list[QueuedPage], calls: list[tuple[int, dict[int, int]]]
) -> None:
    queues, given_out = HostQueues(one_each=False), list[int]()
    queues.fill(plan, 0.0)
    for most, rooms in calls:
        queues.limit(most, rooms)
        found = taken(queues)
        assert all(count <= rooms.get(host, most) for host, count in Counter(plan[page].host for page in found).items())
        assert found == sorted(found), "the first one first"
        given_out += found
    queues.limit(len(plan), {})
    assert sorted([*given_out, *taken(queues)]) == [page.page for page in plan], "each page once"


def test_a_page_that_is_not_given_out_leaves_its_room_to_the_next_one_of_its_host() -> None:
    queues = HostQueues(one_each=False)
    queues.fill([QueuedPage(0.0, 0, 7, 0.0), QueuedPage(1.0, 1, 7, 0.0), QueuedPage(2.0, 2, 7, 0.0)], 0.0)
    queues.limit(1, {})
    assert queues.take(1.0) == (0, 7)
    queues.rest(7, 1.0)
    assert queues.take(1.0) == (1, 7) and queues.take(1.0) is None


def test_a_page_whose_time_comes_while_its_host_rests_is_given_out_after_that() -> None:
    queues = HostQueues(one_each=False)
    queues.rest(7, 100.0)
    queues.fill([QueuedPage(0.0, 0, 7, 50.0)], 0.0)
    assert queues.next_second(0.0) == 50.0
    assert queues.take(50.0) is None and queues.next_second(50.0) == 100.0
    assert queues.take(100.0) == (0, 7)


def taken(queues: HostQueues) -> list[int]:
    found = []
    while (page := queues.take(1.0)) is not None:
        found.append(page[0])
    return found
