"""`opicflow push`: a frontier gets dates, keeps its metadata of pages, and gives no page to two crawlers."""

from __future__ import annotations

import json
import random
import re
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from opicflow.connectors.urlfrontier.frontier_client import FrontierClient, KnownPage, PageToSend
from opicflow.connectors.urlfrontier.frontier_messages import FrontierRefused, message_class
from opicflow.pipelines.results.exports.result_rows import OrderRow, Rows, ScheduleRow
from opicflow.pipelines.results.frontier_push import Decision, FrontierPush, WantedDate, decide, wanted_dates
from support.commands import command, refusal
from support.frontier_service import FrontierService, HeldPage, served

NOW = 1_800_000_000
DAY = 86_400
A, B, C = (f"https://www.a.example/{name}" for name in "abc")
KEY = "www.a.example"


@pytest.fixture
def service() -> FrontierService:
    return FrontierService(NOW)


def push(
    service: FrontierService, wanted: Sequence[tuple[str, int]], wait: float = 0, crawl: str = "", key: str = "host"
) -> Counter[str]:
    """Push dates. A pause of the push lets the time of the service pass."""
    with served(service) as address, FrontierClient(address, crawl, limit_seconds=20) as client:

        def pause(seconds: float) -> None:
            service.now += 1

        one = FrontierPush(client, key, lambda: service.now, pause, lambda: service.now)
        return one.push([WantedDate(*pair) for pair in wanted], wait)


def dates(service: FrontierService, key: str = KEY, crawl: str = "DEFAULT") -> dict[str, int]:
    queue = service.queue(key, crawl)
    return dict.fromkeys(queue.completed, 0) | {url: page.date for url, page in queue.waiting.items()}


# -- which dates -------------------------------------------------------------------------------------------------------


def order(url: str, not_before: int | None) -> OrderRow:
    return OrderRow(url, "", 1000 * (NOW - 60), "REFRESH", 1.0, not_before, None, 0.1, None)


def test_orders_that_may_be_fetched_come_first_in_their_sequence_and_the_others_wait() -> None:
    rows = [order(C, None), order(A, 1000 * (NOW + 90)), order(B, 1000 * (NOW - 1))]
    found = list(wanted_dates(Rows("orders", lambda: iter([rows[:1], rows[1:]])), NOW))
    assert found == [(C, 1), (A, NOW + 90), (B, 3)]


def test_a_schedule_gives_seconds_and_0_for_never() -> None:
    rows = [ScheduleRow(A, "", 1000 * NOW + 500, 60.0, "BUDGET", 0.1), ScheduleRow(B, "", None, None, "GONE", 0.1)]
    assert list(wanted_dates(Rows("schedule", lambda: iter([rows])), NOW)) == [(A, NOW), (B, 0)]


@pytest.mark.parametrize(
    "known, date, decision",
    [
        (None, 5, Decision.SEND),
        (None, 0, Decision.SEND),
        (0, 5, Decision.ASK_QUEUE),
        (NOW + DAY, 5, Decision.SEND),
        (NOW + DAY, NOW + DAY, Decision.UNCHANGED),
        (5, 5, Decision.UNCHANGED),
        (0, 0, Decision.UNCHANGED),
        (NOW, 5, Decision.ASK_QUEUE),
        (NOW + 5, 5, Decision.ASK_QUEUE),
        (NOW + 6, 5, Decision.SEND),
        (1, 0, Decision.ASK_QUEUE),
    ],
)
def test_a_queue_is_checked_for_pages_that_may_be_under_way(known: int | None, date: int, decision: Decision) -> None:
    assert decide(None if known is None else KnownPage(known, {}), date, NOW) is decision


# -- what the frontier has then ----------------------------------------------------------------------------------------


def test_new_pages_are_there_and_known_ones_have_the_new_date_and_their_metadata(service: FrontierService) -> None:
    service.update(A, KEY, NOW + DAY, **{"url.path": ["https://seed.example/", "x"], "depth": ["3"]})
    service.update(B, KEY, 0)
    counts = push(service, [(A, NOW + 60), (B, NOW + 70), (C, NOW + 80)])
    assert counts == {"sent": 3, "new": 1, "refused": 0, "under way": 0}
    assert dates(service) == {A: NOW + 60, B: NOW + 70, C: NOW + 80}
    assert service.queue(KEY).waiting[A].metadata == {"url.path": ["https://seed.example/", "x"], "depth": ["3"]}


def test_never_completes_a_page(service: FrontierService) -> None:
    service.update(A, KEY, NOW + DAY)
    push(service, [(A, 0), (B, 0)])
    assert dates(service) == {A: 0, B: 0}
    assert service.discover(A, KEY) == service.discover(B, KEY) == "SKIPPED"


@pytest.mark.slow
def test_a_push_that_is_repeated_changes_nothing(service: FrontierService) -> None:
    wanted = [(f"https://www.a.example/{number}", number % 3 and NOW + number) for number in range(1000)]
    assert push(service, wanted)["sent"] == 1000
    before, read = dates(service), service.read
    assert push(service, wanted) == {"unchanged": 1000, "new": 0, "sent": 0, "refused": 0, "under way": 0}
    assert dates(service) == before and service.read == read


def test_a_page_that_was_completed_before_is_not_freed_either(service: FrontierService) -> None:
    """The service still returns it as completed."""
    service.update(A, KEY, 0)
    push(service, [(A, 1)])
    assert service.give(KEY, 1) == [A]
    assert push(service, [(A, 2)])["under way"] == 1
    assert service.give(KEY, 1) == []


def test_orders_come_before_what_waited(service: FrontierService) -> None:
    for url in (A, B, C):
        service.discover(url, KEY)
    service.now += 60
    push(service, [(C, 1), (B, 2)])
    assert service.give(KEY, 10) == [C, B, A]


def test_a_page_under_way_is_not_freed_and_no_other_of_its_queue_either(service: FrontierService) -> None:
    service.discover(A, KEY)
    service.discover(B, KEY)
    service.discover("https://b.example/", "b.example")
    assert service.give(KEY, 1) == [A]
    wanted = [(A, 1), (B, 2), ("https://b.example/", 3)]
    assert push(service, wanted)["under way"] == 2
    assert service.give(KEY, 10) == [B]
    assert dates(service, "b.example") == {"https://b.example/": 3}


def test_pages_under_way_are_tried_again_until_they_are_back(service: FrontierService) -> None:
    service.discover(A, KEY, depth=["1"])
    service.discover(B, KEY)
    assert service.give(KEY, 1, hold_seconds=5) == [A]
    counts = push(service, [(A, 1), (B, 2), (C, 3)], wait=60)
    assert (counts["sent"], counts["under way"]) == (3, 0)
    assert dates(service) == {A: 1, B: 2, C: 3} and service.queue(KEY).waiting[A].metadata == {"depth": ["1"]}


def test_a_clock_that_is_put_back_lengthens_no_wait(service: FrontierService) -> None:
    service.discover(A, KEY)
    assert service.give(KEY, 1) == [A]
    seconds, clock = [0.0], [float(NOW)]
    with served(service) as address, FrontierClient(address) as client:

        def pause(length: float) -> None:
            seconds[0] += 1.0
            clock[0] -= 1.0
            assert seconds[0] <= 60

        one = FrontierPush(client, "host", lambda: clock[0], pause, lambda: seconds[0])
        assert one.push([WantedDate(A, NOW + DAY)], 60)["under way"] == 1


def test_a_page_that_the_crawler_fetched_meanwhile_gets_its_date(service: FrontierService) -> None:
    """The crawler's record is read again, so its metadata stays."""
    service.discover(A, KEY)
    assert service.give(KEY, 1) == [A]
    with served(service) as address, FrontierClient(address) as client:

        def pause(seconds: float) -> None:
            service.update(A, KEY, NOW + 7 * DAY, status=["200"])

        FrontierPush(client, "host", lambda: service.now, pause).push([WantedDate(A, NOW + DAY)], 60)
    assert service.queue(KEY).waiting == {A: HeldPage(NOW + DAY, {"status": ["200"]})}


@pytest.mark.parametrize("seed", range(5))
def test_whatever_a_crawler_does_no_page_is_given_twice_while_it_is_held(seed: int) -> None:
    chance = random.Random(seed)
    service = FrontierService(NOW)
    urls = [f"https://h{number % 3}.example/{number}" for number in range(30)]
    key_of = {url: url.split("/")[2] for url in urls}
    held: dict[str, int] = {}
    with served(service) as address, FrontierClient(address) as client:
        for _ in range(60):
            service.now += chance.randrange(4)
            url = chance.choice(urls)
            step = chance.randrange(4)
            if step == 0:
                service.discover(url, key_of[url])
            elif step == 1:
                for given in service.give(key_of[url], chance.randrange(1, 4)):
                    assert held.get(given, 0) <= service.now, given
                    held[given] = service.now + 30
            elif step == 2 and held:
                done = chance.choice(sorted(held))
                held.pop(done)
                service.update(done, key_of[done], service.now + chance.choice([5, 50]))
            else:
                some = [WantedDate(url, chance.choice([0, 1, service.now + 3])) for url in chance.sample(urls, 10)]
                FrontierPush(client, "host", lambda: service.now, lambda seconds: None).push(some, 0)


def test_the_bytes_that_travel_are_those_of_the_published_interface() -> None:
    """They were made with the .proto file of url-frontier 2.6."""
    item = message_class("URLItem")(ID="7")
    item.known.info.url, item.known.info.key, item.known.info.crawlID = "u", "k", "c"
    item.known.info.metadata["n"].values.extend(["v", "w"])
    item.known.refetchable_from_date = 300
    stats = {"size": 1, "inProcess": 2, "counts": {"a": 3}, "numberOfQueues": 4, "crawlID": "c"}
    for message, published in (
        (item, "121b0a160a017512016b1a0b0a016e12060a01760a017722016310ac021a0137"),
        (message_class("QueueWithinCrawlParams")(key="k", crawlID="c", local=True), "0a016b1201631801"),
        (message_class("URLStatusRequest")(url="u", key="k", crawlID="c"), "0a017512016b1a0163"),
        (message_class("Stats")(**stats), "080110021a050a0161100320042a0163"),
        (message_class("AckMessage")(ID="7", status="FAIL"), "0a01371002"),
    ):
        assert message.SerializeToString(deterministic=True).hex() == published


# -- crawls and keys ---------------------------------------------------------------------------------------------------


def test_pages_go_to_the_queues_of_the_crawl(service: FrontierService) -> None:
    service.discover(A, KEY, crawl="news")
    service.discover(A, KEY, crawl="other")
    service.now += 60
    push(service, [(A, 1)], crawl="news")
    assert dates(service, crawl="news") == {A: 1} and dates(service, crawl="other") == {A: NOW}


def test_a_crawl_that_is_not_there_is_refused_unless_the_frontier_is_empty(service: FrontierService) -> None:
    assert push(service, [(A, 1)], crawl="news")["sent"] == 1
    with pytest.raises(FrontierRefused, match="no crawl DEFAULT: it has news: give the crawler's with --crawl"):
        push(service, [(A, 1)])


def test_queues_by_domain_are_used_or_demanded(service: FrontierService) -> None:
    service.discover(A, "a.example")
    service.now += 60
    with pytest.raises(
        FrontierRefused, match=re.escape("it has a queue a.example, and none by host: give --key domain")
    ):
        push(service, [(A, 1)])
    push(service, [(A, 1)], key="domain")
    assert dates(service, "a.example") == {A: 1}
    with pytest.raises(FrontierRefused, match=f"it has a queue {KEY}, and none by domain: give --key host"):
        hosts = FrontierService(NOW)
        hosts.discover(A, KEY)
        push(hosts, [(A, 1)], key="domain")


# -- acknowledgements and faults ---------------------------------------------------------------------------------------


def many(count: int) -> list[tuple[str, int]]:
    return [(f"https://h{number % 50}.example/{number}", NOW + number) for number in range(count)]


def all_dates(service: FrontierService) -> dict[str, int]:
    return {url: date for crawl, key in service.queues for url, date in dates(service, key, crawl).items()}


def test_items_that_fail_or_whose_acknowledgement_is_lost_are_sent_again(service: FrontierService) -> None:
    service.fails, service.acks_are_lost = 5, 7
    assert push(service, many(20))["sent"] == 20
    assert all_dates(service) == dict(many(20)) and service.read > 20


def test_items_that_always_fail_end_the_push(service: FrontierService) -> None:
    service.fails = 1000
    with pytest.raises(FrontierRefused, match=r"20 pages failed, such as https://h0\.example/0: push again"):
        push(service, many(20))


def test_items_that_the_service_does_not_take_are_counted(service: FrontierService) -> None:
    service.skips = {many(20)[3][0]}
    counts = push(service, many(20))
    assert (counts["sent"], counts["refused"]) == (19, 1)


@pytest.mark.slow
@pytest.mark.parametrize("takes", [0, 1, 700])
def test_a_push_that_is_killed_is_resumed_and_ends_as_one_that_is_not(takes: int, service: FrontierService) -> None:
    service.takes = takes
    with pytest.raises(FrontierRefused, match="UNAVAILABLE"):
        push(service, many(1000))
    assert len(all_dates(service)) == takes
    service.takes = None
    counts = push(service, many(1000))
    assert counts["sent"] + counts["unchanged"] == 1000 and counts["unchanged"] == takes
    assert all_dates(service) == dict(many(1000))


def test_a_service_that_reads_slowly_holds_the_push_back(service: FrontierService) -> None:
    """Items wait in the push: no more than some windows of HTTP/2 are under way."""
    service.may_go_on.clear()
    taken = 0
    pages = [PageToSend(f"https://h.example/{number}", "h.example", 1, {"x": ["y" * 1000]}) for number in range(20_000)]

    class Counted(list[PageToSend]):
        def __iter__(self) -> Iterator[PageToSend]:
            nonlocal taken
            for page in super().__iter__():
                taken += 1
                yield page

    with served(service) as address, FrontierClient(address, limit_seconds=2) as client:
        with pytest.raises(FrontierRefused, match="DEADLINE_EXCEEDED"):
            client._sent(Counted(pages))
        assert 0 < taken < 10_000


def test_a_service_that_does_not_answer_ends_the_push(service: FrontierService) -> None:
    service.may_go_on.clear()
    refusal = r"DEADLINE_EXCEEDED.*check that the service runs there, and push again"
    with served(service) as address, FrontierClient(address, limit_seconds=1) as client:
        one = FrontierPush(client, "host", lambda: service.now, lambda seconds: None)
        with pytest.raises(FrontierRefused, match=refusal):
            one.push([WantedDate(A, 1)], 0)


# -- the command -------------------------------------------------------------------------------------------------------


def results(tmp_path: Path, expires_ms: int = 1 << 52) -> Path:
    row = {"page": "", "ordered_at": 1, "why": "REFRESH", "priority": 1, "not_before": None, "expires_at": expires_ms}
    lines = [json.dumps({**row, "url": url, "importance": 0.1, "last_visit": None}) + "\n" for url in (A, B)]
    (tmp_path / "crawl-orders.jsonl").write_text("".join(lines))
    return tmp_path


def test_the_command_says_what_was_sent(service: FrontierService, tmp_path: Path) -> None:
    with served(service) as address:
        words: list[Any] = ["push", f"urlfrontier://{address}", "orders", results(tmp_path)]
        assert command(*words) == (0, "         2  pages sent\n         2  new to the frontier\n", "")
        assert command(*words) == (0, "         0  pages sent\n         2  had this date already\n", "")
        code, out, _ = command(*words, "--json")
        assert code == 0 and json.loads(out) == {
            "sent": 0, "new": 0, "unchanged": 2, "under_way": 0, "refused": 0, "expired": 0, "unreadable": 0
        }  # fmt: skip
        results(tmp_path, expires_ms=2)
        assert command(*words).out == "         0  pages sent\n         2  orders left out: they expired\n"
    assert dates(service) == {A: 1, B: 2}


@pytest.mark.parametrize(
    "address", ["localhost:7071", "urlfrontier://", "urlfrontier://host", "http://host:1", "urlfrontier://a b:1"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    assert "no address of a frontier: write urlfrontier://HOST:PORT" in refusal("push", address, "orders", "results")


def test_a_connection_that_is_refused_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"urlfrontier://127.0.0.1:{free.getsockname()[1]}"
        code, _, errors = command("push", address, "orders", results(tmp_path))
    assert code == 2 and errors.count("\n") == 1
    assert errors.startswith(f"opicflow: {address}: UNAVAILABLE (")
