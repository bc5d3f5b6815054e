"""Changes of pages that a keeper publishes: those with a subscription, none twice, none lost, through any restart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import ItemWriter, LogPosition, PolicyEntry, TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.results.record_columns import change_columns, pages_of
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.outputs import CHANGES, Output
from opicflow.schemas.columns import plain_rows
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from stream.test_keeper import FIRST_MS, HERE, ORIGIN, batch, take, url
from support.thorough import examples

SUBSCRIBED = Policy(url_prefix="https://example.org/0", notify=True, publisher="al")
"""It is about the first pages of `HERE`, whose URLs are their ids."""
FORGOTTEN = Policy(url_prefix="https://example.org/0", forget=True)


def policy_entry(number: int, *policies: Policy) -> bytes:
    return encode_entry(PolicyEntry("p", LogPosition(number, 0), LogPosition(number + 1, 0), policies=policies))


def log_of(*steps: tuple[int, int, int] | Policy | int) -> list[tuple[int, int, bytes]]:
    """A log of visits (page, minutes since the first visit, digest), policies, and ticks (minutes)."""
    values, start, number = [ORIGIN.entry()], LogPosition(0, 0), 0
    times = [FIRST_MS]
    for step in steps:
        times.append(times[-1])
        if isinstance(step, Policy):
            values.append(policy_entry(number, step))
            number += 1
        elif isinstance(step, int):
            values.append(encode_entry(TickEntry(0)))
            times[-1] = FIRST_MS + 60_000 * step
        else:
            page, minutes, digest = step
            writer = ItemWriter(start).visit(
                HERE[page], [], time_ms=FIRST_MS + 60_000 * minutes, digest=digest, url=url(HERE[page])
            )
            values.append(encode_entry(writer.entry("kafka/x/0", start)))
            start = writer.next_position
    return [(offset, time_ms, value) for offset, (time_ms, value) in enumerate(zip(times, values, strict=True))]


def changes_of(outputs: list[Output]) -> list[dict[str, Any]]:
    return [row for one in outputs if one.kind == CHANGES for row in plain_rows(change_columns(pages_of(one.data)))]


def published(log: list[tuple[int, int, bytes]]) -> list[dict[str, Any]]:
    return changes_of(take(LedgerKeeper(0), batch(0, len(log), log)))


def test_a_change_of_a_page_with_a_subscription_is_published_with_all_that_a_reader_needs() -> None:
    log = log_of(SUBSCRIBED, (0, 0, 5), (19, 0, 5), (0, 1, 5), (0, 2, 6), (19, 2, 6), 3)
    (change,) = published(log)
    assert HERE[19] >> 60 == 1, "its URL begins with a 1"
    assert change == {
        "url": url(HERE[0]).decode(),
        "page": f"{HERE[0]:016x}",
        "time": FIRST_MS + 120_000,
        "digest_before": "00000005",
        "digest": "00000006",
        "changes": 1,
        "importance": 0.0,
        "score": 0.0,
        "subscribers": "al",
        "shard": 0,
        "host": "example.org",
    }


def test_after_a_sweep_the_record_has_the_importance_of_the_page() -> None:
    (change,) = published(log_of(SUBSCRIBED, (0, 0, 5), (1, 0, 5), 1, (0, 2, 6)))
    assert 0 < change["importance"] < 1 and change["score"] == pytest.approx(2 * change["importance"])


def test_changes_within_a_minute_become_one_record_at_a_tick() -> None:
    """The digests are those before the first and after the last; without a change nothing follows."""
    steps = [SUBSCRIBED, (0, 0, 5), (0, 10, 6)]
    writer_steps = [*steps, 10]
    log = log_of(*writer_steps)
    close = [(HERE[0], FIRST_MS + 600_000 + later, digest) for later, digest in ((20_000, 7), (40_000, 8))]
    start = LogPosition(2, 0)
    for page, time_ms, digest in close:
        writer = ItemWriter(start).visit(page, [], time_ms=time_ms, digest=digest, url=url(page))
        log.append((len(log), log[-1][1], encode_entry(writer.entry("kafka/x/0", start))))
        start = writer.next_position
    for minutes in (10, 11, 12):
        log.append((len(log), FIRST_MS + 60_000 * minutes, encode_entry(TickEntry(0))))
    found = published(log)
    assert [(one["digest_before"], one["digest"], one["changes"]) for one in found] == [
        ("00000005", "00000006", 1),
        ("00000006", "00000008", 2),
    ]
    assert found[1]["time"] == FIRST_MS + 640_000


@pytest.mark.parametrize(
    "ending",
    [
        FORGOTTEN,
        Policy(url_prefix="https://example.org/0", publisher="al"),
        Policy(url_prefix="https://example.org/0", drop=True),
    ],
)
def test_a_change_that_waits_is_not_published_without_subscription_or_page(ending: Policy) -> None:
    before = [SUBSCRIBED, (0, 0, 5), (0, 10, 6), (0, 10, 6)]
    log = log_of(*before)
    start = LogPosition(3, 0)
    writer = ItemWriter(start).visit(HERE[0], [], time_ms=FIRST_MS + 630_000, digest=7, url=url(HERE[0]))
    log.append((len(log), log[-1][1], encode_entry(writer.entry("kafka/x/0", start))))
    waiting = [*log, (len(log), FIRST_MS + 720_000, encode_entry(TickEntry(0)))]
    assert len(published(waiting)) == 2
    log.append((len(log), log[-1][1], policy_entry(1, ending)))
    log.append((len(log), FIRST_MS + 720_000, encode_entry(TickEntry(0))))
    assert len(published(log)) == 1


def test_a_forgotten_page_is_never_published_again() -> None:
    log = log_of(SUBSCRIBED, (0, 0, 5), (0, 10, 6), FORGOTTEN, 11, (0, 20, 7), (0, 30, 8), 40)
    assert [one["digest"] for one in published(log)] == ["00000006"]


steps = st.lists(
    st.one_of(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 3)), st.integers(0, 2)),
    max_size=25,
)


@examples(15, 200)
@given(steps, st.data())
def test_restarts_send_nothing_twice_and_lose_nothing(
    given_steps: list[tuple[int, int, int] | int], data: st.DataObject
) -> None:
    """A keeper that is restored before any record publishes the same as one that is not."""
    minutes, timed = 0, []
    for step in given_steps:
        minutes += step if isinstance(step, int) else step[1]
        timed.append(minutes if isinstance(step, int) else (step[0], minutes, step[2]))
    log = log_of(SUBSCRIBED, *timed, minutes + 2, minutes + 4)
    wanted = take(LedgerKeeper(0), batch(0, len(log), log))
    keeper, outputs = LedgerKeeper(0), []
    for offset in range(len(log)):
        outputs += take(keeper, batch(offset, offset + 1, log))
        if data.draw(st.booleans()):
            keeper = LedgerKeeper.from_chunks(0, keeper.chunks())
    assert outputs == wanted
    found = changes_of(outputs)
    for page in {one["page"] for one in found}:
        digests = [(one["digest_before"], one["digest"]) for one in found if one["page"] == page]
        assert [before for before, _ in digests[1:]] == [after for _, after in digests[:-1]]


def test_changes_that_wait_move_to_the_shards_of_their_pages() -> None:
    keeper = LedgerKeeper(0)
    log = log_of(SUBSCRIBED, *((page, 0, 5) for page in (0, 9)), *((page, 10, 6) for page in (0, 9)))
    take(keeper, batch(0, len(log), log))
    assert len(keeper._notes.changes.last) == 2
    ranges = ShardRanges((0, HERE[5]))
    origin = type(ORIGIN)(ORIGIN.ledger, ranges)
    found = [LedgerKeeper.continuing(shard, 0, origin.entry(), keeper.head, [keeper]) for shard in (0, 1)]
    assert [list(one._notes.changes.last) for one in found] == [[f"{HERE[0]:016x}"], [f"{HERE[9]:016x}"]]
