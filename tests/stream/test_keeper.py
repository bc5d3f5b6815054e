"""The ledger and the outputs of a keeper are pure functions of its log, for any division into batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    ControlEntry,
    Gossip,
    ItemWriter,
    LedgerConfig,
    LogPosition,
    Outcome,
    PolicyEntry,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.entries import transfer_digest
from opicflow.pipelines.results.record_columns import reject_columns
from opicflow.pipelines.stages import ledger_keeper, publication_pace
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper, request_fingerprint, request_republication
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.log_settings import LogRefused, Origin
from opicflow.pipelines.stages.outputs import AUDIT, IMPORTANCE, ORDERS, REJECTS, SCHEDULE, SITES, TRANSFERS, Output
from opicflow.pipelines.stages.publication_pace import TRUE_WITHIN
from opicflow.pipelines.stages.publish import rows_in
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.columns import pack, plain_rows, unpack
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from opicflow.schemas.urls import UrlRules
from support.fuzz.stored_inputs import sealed_entry
from support.stream_state import POISON
from support.thorough import examples

SHARDS = 3
FIRST_MS = 1_700_000_000_000
CONFIG = LedgerConfig(remembered_visits=1 << 10)
ORIGIN = Origin(CONFIG, ShardRanges.equal(SHARDS), audit_seconds=5, sites="domain")
HERE = [(number << 56) + 1 for number in range(20)]
"""Pages of shard 0."""
ELSEWHERE = [(15 << 60) + number for number in range(12)]
Record = tuple[int, int, bytes]


def url(page: int) -> bytes:
    return b"https://example.org/%016x" % page


def entries() -> list[bytes]:
    """Return a log with almost every kind of entry."""
    result, writer, start = [ORIGIN.entry()], ItemWriter(), LogPosition(0, 0)
    total = digest = 0
    for number in range(8):
        writer = ItemWriter(start)
        for step in range(3):
            page = HERE[(3 * number + step) % len(HERE)]
            writer.visit(page, [HERE[number], *ELSEWHERE[: number + 2]], time_ms=FIRST_MS + number, url=url(page))
            writer.sighting(HERE[number], url=url(HERE[number]))
        result.append(encode_entry(writer.entry("kafka/x/0", start)))
        pages, amounts = np.array(HERE[:number], np.uint64), np.full(number, 1000 + number)
        total += int(amounts.sum()) + 7
        digest = (digest + transfer_digest(pages, amounts, 7, number)) % (1 << 64)
        gossip = Gossip(number, 1 << 30, 60, 60, 1.0)
        whole = TransfersEntry(1, number, 0, True, pages, amounts, 7, total, digest, gossip)
        pieces = [encode_entry(one) for one in whole.split(2)]
        result += [*pieces, *pieces[:1], encode_entry(TickEntry(0))]
        policy = Policy(url=url(HERE[number]).decode(), refresh_interval_seconds=7200.0)
        refused = Policy(class_weights=(1, 2, 3))
        policies = (policy, refused) if number == 3 else (policy,)
        result.append(
            encode_entry(PolicyEntry("p", LogPosition(number, 0), LogPosition(number + 1, 0), policies=policies))
        )
        result += [POISON] * (number == 4) + [request_fingerprint()] * (number == 5)
        start = writer.next_position
    return result


def records(values: Iterable[bytes], first: int = 0) -> list[Record]:
    """Return a log of the values. Some offsets have no record, and some times are equal."""
    result, offset, time_ms = [], first, FIRST_MS
    for number, value in enumerate(values):
        result.append((offset, time_ms, value))
        offset += 2 if number % 5 == 3 else 1
        time_ms += (0, 2500, 100_000, 5_000_000)[number % 4]
    return result


LOG = records(entries())
END = LOG[-1][0] + 1


def batch(start: int, end: int, log: list[Record] = LOG) -> MessageBatch:
    return MessageBatch.of(start, [one for one in log if start <= one[0] < end], end)


def take(keeper: LedgerKeeper, *batches: MessageBatch) -> list[Output]:
    return [output for one in batches for output in keeper.take(one)]


def kept(log: Iterable[bytes] | None = None) -> tuple[LedgerKeeper, list[Output]]:
    """Apply a log in one batch; return the keeper and its outputs."""
    rows = LOG if log is None else records(log)
    keeper = LedgerKeeper(0)
    return keeper, take(keeper, batch(0, rows[-1][0] + 1, rows))


def rejects_of(outputs: list[Output]) -> list[dict[str, Any]]:
    rows = [plain_rows(reject_columns(one.data)) for one in outputs if one.kind == REJECTS]
    return [row for of_output in rows for row in of_output]


def audits_of(outputs: list[Output]) -> list[dict[str, Any]]:
    return [json.loads(one.data) for one in outputs if one.kind == AUDIT]


@pytest.fixture(scope="module")
def whole() -> tuple[LedgerKeeper, list[Output]]:
    return kept()


def test_the_log_of_these_tests_causes_every_kind_of_output(whole: tuple[LedgerKeeper, list[Output]]) -> None:
    names = {(one.kind, one.to_shard) for one in whole[1]}
    assert {kind for kind, _ in names} >= {IMPORTANCE, SCHEDULE, SITES, AUDIT, REJECTS}
    assert names >= {(TRANSFERS, 1), (TRANSFERS, 2)}
    assert [values["reason"] for values in rejects_of(whole[1])] == ["refused", "corrupt"]


@pytest.mark.slow
@examples(15, 200)
@given(data=st.data())
def test_a_log_in_any_batches_order_and_repetition_gives_the_same_ledger_and_outputs(
    data: st.DataObject, whole: tuple[LedgerKeeper, list[Output]]
) -> None:
    """Any batches may come first: after the log from the head on, ledger and outputs are those of the log."""
    ends = sorted({*data.draw(st.lists(st.integers(1, END), max_size=8)), END})
    ranges = list(zip([0, *ends], ends, strict=False))
    again = data.draw(st.lists(st.tuples(st.integers(0, END), st.integers(0, END)).filter(lambda r: r[0] < r[1])))
    order = data.draw(st.permutations([*ranges, *again]))
    keeper, outputs = LedgerKeeper(0), []
    for start, end in order:
        outputs += take(keeper, batch(start, end))
        if data.draw(st.integers(0, 3)) == 0:
            keeper = LedgerKeeper.from_chunks(0, keeper.chunks())
    if keeper.head.next < END:
        outputs += take(keeper, batch(keeper.head.next, END))
    assert keeper.head == whole[0].head
    assert list(keeper.chunks()) == list(whole[0].chunks())
    assert keeper.fingerprint() == whole[0].fingerprint()
    assert outputs == whole[1]


def test_the_times_of_outputs_increase_along_the_log_and_follow_its_ticks() -> None:
    keeper, last_ms, ticks = LedgerKeeper(0), 0, 0
    for offset, time_ms, value in LOG:
        times = {output.time_ms for output in keeper.take(MessageBatch.of(offset, [(offset, time_ms, value)]))}
        assert len(times) <= 1, "the outputs of an entry have one time"
        for output_ms in times:
            assert output_ms is not None and output_ms > last_ms
            tick_ms = 1000 * keeper.ledger.tick_second if keeper.ledger else -1
            if tick_ms > last_ms:
                assert output_ms == tick_ms
                ticks += 1
            last_ms = output_ms
        if keeper.head.next < offset + 1 or offset + 1 not in [one[0] for one in LOG]:
            keeper.head = replace(keeper.head, next=min([one[0] for one in LOG if one[0] > offset], default=END))
    assert ticks > 3


def test_a_batch_that_begins_beyond_the_head_is_skipped() -> None:
    keeper = LedgerKeeper(0)
    take(keeper, batch(0, 5))
    before = list(keeper.chunks())
    assert take(keeper, batch(6, END)) == []
    assert list(keeper.chunks()) == before


def test_a_log_may_begin_at_a_later_offset() -> None:
    keeper = LedgerKeeper(0)
    keeper.head = LogHead(next=100)
    take(keeper, batch(100, 130, records(entries()[:20], 100)))
    assert keeper.ledger is not None and keeper.head.next == 130


def test_the_chain_depends_on_all_records_and_on_nothing_else() -> None:
    keeper = LedgerKeeper(0)
    heads = [keeper.head]
    for one in LOG:
        take(keeper, batch(0, one[0] + 1), batch(0, one[0] + 1), batch(one[0] + 2, END))
        heads.append(keeper.head)
        assert LogHead.from_bytes(keeper.head.to_bytes()) == keeper.head
    assert len({head.chain for head in heads}) == len(LOG) + 1
    offset, time_ms, value = LOG[7]
    for other in (offset, time_ms + 1, value), (offset, time_ms, value + b" "), (offset + 1, time_ms, value):
        changed = LedgerKeeper(0)
        take(changed, batch(0, END, [*LOG[:7], other, *LOG[8:]]))
        assert changed.head.chain != keeper.head.chain and changed.head.last_digest == keeper.head.last_digest


def test_a_batch_without_records_advances_only_the_head() -> None:
    keeper = LedgerKeeper(0)
    take(keeper, MessageBatch.of(0, [], 3))
    assert keeper.head == LogHead(next=3)
    assert take(keeper, MessageBatch.of(3, [(4, LOG[0][1], LOG[0][2])])) == [] and keeper.ledger is not None


def test_a_head_has_the_digest_of_the_last_record() -> None:
    keeper, _ = kept()
    assert (keeper.head.next, keeper.head.last_offset) == (END, LOG[-1][0])
    other = LedgerKeeper(0)
    take(other, batch(0, END, [*LOG[:-1], (*LOG[-1][:2], b"something else")]))
    assert other.head.last_digest != keeper.head.last_digest


def test_a_restored_keeper_has_the_same_state() -> None:
    keeper = LedgerKeeper(0)
    take(keeper, batch(0, 9))
    back = LedgerKeeper.from_chunks(0, keeper.chunks())
    assert list(back.chunks()) == list(keeper.chunks())
    assert back.origin == keeper.origin == ORIGIN


# -- wrong entries -----------------------------------------------------------------------------------------------------

EMPTY_TRANSFERS = TransfersEntry(1, 0, 0, True, np.zeros(0, np.uint64), np.zeros(0, np.int64), 0, 0, 0, None)
CORRUPT = [
    b"",
    b"OPFC",
    POISON,
    b"\xff" * 70_000,
    encode_entry(TickEntry(1))[:-1],
    pack("policy", {"note": {}, "version": 1}, {}),
]
REFUSED = [
    encode_entry(ItemWriter().visit(ELSEWHERE[0]).entry("kafka/y/0")),  # a page of another shard
    encode_entry(ItemWriter(LogPosition(9, 0)).visit(HERE[0]).entry("kafka/y/0", LogPosition(9, 0))),  # a hole
    encode_entry(ItemWriter().visit(HERE[0]).entry("kafka/y/0", visits_total=7)),
    encode_entry(replace(EMPTY_TRANSFERS, sent_total=5)),
    encode_entry(replace(EMPTY_TRANSFERS, source_shard=0)),
]
UNSUPPORTED = [
    pack("soup", {"note": {}}, {}),
    pack("control", {"source": "audit", "values": {}, "version": 2, "note": {}}, {}),
    sealed_entry(b"\2" + encode_entry(TickEntry(1))[11:]),
    sealed_entry(b"\1\x09" + encode_entry(TickEntry(1))[12:]),
]


@pytest.mark.parametrize("value", UNSUPPORTED)
def test_an_entry_of_a_newer_version_stops_the_log_with_its_reason(value: bytes) -> None:
    with pytest.raises(LogRefused, match=r"^shard 0, offset 1: .*update opicflow"):
        kept([*entries()[:1], value])


@pytest.mark.parametrize("value", CORRUPT + REFUSED)
def test_a_wrong_entry_becomes_a_reject_and_the_next_ones_are_applied(value: bytes) -> None:
    before, after = entries()[:1], entries()[1:6]
    keeper, outputs = kept([*before, value, *after])
    (values,) = rejects_of(outputs)
    assert values["reason"] == ("corrupt" if value in CORRUPT else "refused")
    assert values["offset"] == 1 and values["source"] == "0" and values["detail"]
    assert values["bytes"] == value[: 64 << 10]
    assert keeper.fingerprint() == without_reject(keeper, [*before, *after]).fingerprint()
    assert keeper.counts["rejected"] == 1


def without_reject(keeper: LedgerKeeper, values: list[bytes]) -> LedgerKeeper:
    """Return a keeper of a log with these values alone, at the times that they had in the log of `keeper`."""
    times = records([b"", *values])
    rows = [(0, times[0][1], values[0]), *((o, t, v) for (o, t, _), v in zip(times[2:], values[1:], strict=True))]
    other = LedgerKeeper(0)
    take(other, batch(0, keeper.head.next, rows))
    return other


def test_a_record_without_a_value_becomes_a_reject() -> None:
    keeper = LedgerKeeper(0)
    assert rejects_of(take(keeper, MessageBatch.of(0, [(0, 0, None)])))[0]["bytes"] == b""
    assert keeper.head.next == 1


def test_an_impossible_policy_becomes_a_reject_of_its_own(whole: tuple[LedgerKeeper, list[Output]]) -> None:
    values = rejects_of(whole[1])[0]
    assert json.loads(values["bytes"])["class_weights"] == [1, 2, 3]
    assert values["detail"] == "class_weights: give 2 whole numbers from 0 to 65536, not all of them 0"


def test_entries_before_the_origin_are_rejected() -> None:
    values = [encode_entry(TickEntry(1)), request_fingerprint(), *entries()[:3]]
    keeper, outputs = kept(values)
    assert [one["detail"] for one in rejects_of(outputs)] == ["it comes before the settings of the ledger"] * 2
    assert keeper.ledger is not None and keeper.ledger.visits == 3


@pytest.mark.parametrize(
    "origin",
    [
        {"shards": 3},
        {},
        [],
        "ab",
        None,
        {**vars(ORIGIN), "ledger": {"soup": 1}},
        {**vars(ORIGIN), "ledger": CONFIG.to_json(), "more": 1},
        {**decode_entry(ORIGIN.entry()).values["origin"], "sites": "page"},
    ],
)
def test_a_log_with_another_beginning_is_refused_with_advice(origin: Any) -> None:
    with pytest.raises(LogRefused, match=r"does not begin .*: start the stream on a new topic, or with a newer"):
        kept([encode_entry(ControlEntry("stream", {"origin": origin}))])


def test_a_repeated_origin_changes_nothing_and_another_one_is_rejected() -> None:
    same = kept([*entries()[:4], ORIGIN.entry()])
    assert not rejects_of(same[1])
    other = kept([*entries()[:4], replace(ORIGIN, audit_seconds=6).entry()])
    (values,) = rejects_of(other[1])
    assert values["reason"] == "refused"
    assert values["detail"] == "the log began with other settings, and the settings of a ledger never change"
    assert other[0].origin == ORIGIN
    assert same[0].fingerprint() == other[0].fingerprint()


DAY_MS = 86_400_000
TIMED = replace(ORIGIN, most_ahead_hours=24)


def visits(*times_ms: int, first: int = 0) -> bytes:
    """Return an entry of visits at the given times, each of a page of its own; the first answer is BUSY."""
    writer = ItemWriter(LogPosition(first, 0))
    for page, time_ms in zip(HERE, times_ms, strict=False):
        outcome, until_ms = (Outcome.BUSY, time_ms + 1000) if page == HERE[0] else (Outcome.FETCHED, 0)
        writer.visit(page, outcome=outcome, time_ms=time_ms, modified_ms=until_ms, url=url(page))
    return encode_entry(writer.entry("kafka/y/0", LogPosition(first, 0)))


def fingerprint_of(*log: bytes) -> str:
    return kept(log)[0].fingerprint()


def test_visits_far_ahead_of_the_log_count_as_those_without_a_time_and_the_first_is_a_reject() -> None:
    times, latest_ms = [DAY_MS + 1, DAY_MS, DAY_MS + 1], FIRST_MS  # that of the first record; the entry is the second
    keeper, outputs = kept([TIMED.entry(), visits(*(latest_ms + time_ms for time_ms in times))])
    assert keeper.fingerprint() == fingerprint_of(TIMED.entry(), visits(0, latest_ms + DAY_MS, 0))
    assert keeper.counts["visits"] == 3 and keeper.counts["times_ahead"] == 2
    (reject,) = rejects_of(outputs)
    assert reject["reason"] == "bad-time" and reject["bytes"] == url(HERE[0])
    assert reject["detail"].startswith(
        "kafka/y/0, offset 0: visits with times more than 24 hours ahead of the log: this one, and 1 more"
    )


def test_an_entry_that_comes_twice_is_judged_when_it_comes_first() -> None:
    """Its second copy has a later time of the broker, by which the visit would not be far ahead."""
    far = visits(FIRST_MS + DAY_MS + 1)
    once, _ = kept([TIMED.entry(), far, encode_entry(TickEntry(0)), encode_entry(TickEntry(0))])
    twice, outputs = kept([TIMED.entry(), far, encode_entry(TickEntry(0)), far])
    assert len(rejects_of(outputs)) == 1 and twice.counts["times_ahead"] == 1
    assert once.ledger is not None and twice.ledger is not None
    assert once.ledger.visits == twice.ledger.visits == 1


def test_a_broker_that_is_set_back_takes_no_times_from_visits() -> None:
    """The last tick gives the time; without a tick for long, the broker does."""
    log = [(0, FIRST_MS, TIMED.entry()), (1, FIRST_MS, encode_entry(TickEntry(0)))]
    for entry_ms, time_ms in ((FIRST_MS - 400 * DAY_MS, FIRST_MS), (FIRST_MS + 9 * DAY_MS, FIRST_MS + 9 * DAY_MS)):
        keeper = LedgerKeeper(0)
        assert not rejects_of(take(keeper, MessageBatch.of(0, [*log, (2, entry_ms, visits(time_ms))])))


def test_older_logs_keep_every_time_of_a_visit() -> None:
    far = FIRST_MS + 400 * DAY_MS
    assert fingerprint_of(ORIGIN.entry(), visits(far)) != fingerprint_of(ORIGIN.entry(), visits(0))
    assert not rejects_of(kept([ORIGIN.entry(), visits(far)])[1])


@pytest.mark.parametrize("hours", [0, -1, 1.5, "24", True])
def test_an_origin_with_impossible_hours_is_refused(hours: Any) -> None:
    with pytest.raises(LogRefused, match="hours ahead are a positive number"):
        Origin.of(decode_entry(replace(ORIGIN, most_ahead_hours=hours).entry()))


def test_an_origin_is_read_back_from_its_entry() -> None:
    origin = Origin(
        CONFIG, ShardRanges.equal(7), Rules(UrlRules(drop_parameters=("a*",))), 1.5, 0.2, 30, {"kafka/x/0": 9}
    )
    for one in (origin, replace(origin, sites="host"), replace(origin, most_ahead_hours=24)):
        assert Origin.of(decode_entry(one.entry())) == one


@pytest.mark.parametrize(
    "control",
    [
        ControlEntry("somebody", {"rules": 9}),
        ControlEntry("audit", {"fingerprint": True, "more": 1}),
        ControlEntry("audit", None),  # type: ignore[arg-type]
    ],
)
def test_an_unsupported_control_entry_stops_the_log_with_its_reason(control: ControlEntry) -> None:
    with pytest.raises(
        LogRefused,
        match=r"^shard 0, offset 3: (this opicflow does not support the entry:|an entry of kind .*) update opicflow$",
    ):
        kept([*entries()[:3], encode_entry(control), encode_entry(control)])


# -- outputs -----------------------------------------------------------------------------------------------------------


def test_nothing_is_published_before_the_sources_of_quiet_until_are_applied() -> None:
    values = entries()
    quiet = replace(ORIGIN, quiet_until={"kafka/x/0": 18, "p": 2}).entry()
    keeper, published = LedgerKeeper(0), 0
    for offset, time_ms, value in records([quiet, *values[1:]]):
        outputs = take(keeper, MessageBatch.of(keeper.head.next, [(offset, time_ms, value)]))
        assert keeper.ledger is not None
        loud = keeper.ledger.mark("kafka/x/0").offset >= 18 and keeper.ledger.mark("p").offset >= 2
        assert keeper.is_quiet == (not loud)
        named = [one for one in outputs if one.kind in (IMPORTANCE, SCHEDULE, SITES, ORDERS)]
        assert loud or not named
        published += len(named)
    assert published
    assert keeper.ledger is not None
    assert keeper.ledger.audit() == kept()[0].ledger.audit()  # type: ignore[union-attr]


def test_audits_report_each_cut_once_with_the_totals_of_its_messages(
    whole: tuple[LedgerKeeper, list[Output]],
) -> None:
    keeper, outputs = whole
    for shard in (1, 2):
        sent = [decode_entry(one.data) for one in outputs if (one.kind, one.to_shard) == (TRANSFERS, shard)]
        ends = {
            one.cut: (one.sent_total, f"{one.sent_digest:016x}")
            for one in sent
            if isinstance(one, TransfersEntry) and one.last
        }
        reported = [one for audit in audits_of(outputs) for one in audit["sent_to"] if one["shard"] == shard]
        reported += [
            dict(zip(("shard", "cut", "total", "digest"), one, strict=True))
            for one in keeper._notes.sent_to
            if one[0] == shard
        ]
        assert [one["cut"] for one in reported] == list(range(len(ends)))
        assert {one["cut"]: (one["total"], one["digest"]) for one in reported} == ends
    received = [one["cut"] for audit in audits_of(outputs) for one in audit["received_from"]]
    assert [*received, *(one[1] for one in keeper._notes.received_from)] == list(range(8))
    assert all(audit["minted"] > 0 for audit in audits_of(outputs)[1:])


def test_a_requested_fingerprint_is_in_the_next_audit_record_only() -> None:
    keeper, outputs = kept([*entries()[:6], request_fingerprint()])
    assert audits_of(outputs)[-1]["fingerprint"] == keeper.fingerprint()
    assert all(audit["fingerprint"] == "" for audit in audits_of(outputs)[:-1])


def test_a_tick_has_the_time_of_its_record() -> None:
    values = entries()[:4]
    time_of_record = records([*values, b""])[-1][1] // 1000
    one, _ = kept([*values, encode_entry(TickEntry(0))])
    other, _ = kept([*values, encode_entry(TickEntry(time_of_record - 600))])
    assert one.ledger is not None
    assert one.ledger.tick_second == time_of_record
    assert one.fingerprint() == other.fingerprint()


def test_a_source_whose_entries_are_refused_for_good_ends_the_job_and_one_that_heals_does_not() -> None:
    def entry(start: int, end: int, source: str = "kafka/x/0") -> bytes:
        first, last = LogPosition(start, 0), LogPosition(end, 0)
        writer = ItemWriter(first)
        writer.visit(HERE[0], [], time_ms=FIRST_MS, url=url(HERE[0]))
        return encode_entry(replace(writer.entry(source, first), end=last))

    def take_all(keeper: LedgerKeeper, values: list[bytes], minutes: float) -> list[Output]:
        first = keeper.head.next
        times = [FIRST_MS + int(60_000 * minutes * number / len(values)) for number in range(len(values))]
        rows = [(first + number, at, value) for number, (at, value) in enumerate(zip(times, values, strict=True))]
        return take(keeper, MessageBatch.of(first, rows))

    beyond_a_hole = [entry(5 + number, 6 + number) for number in range(300)]
    keeper, _ = kept([ORIGIN.entry()])
    assert len(take_all(keeper, beyond_a_hole, 50)) == 300, "it may heal yet"
    healed, _ = kept([ORIGIN.entry()])
    take_all(healed, [*beyond_a_hole[:200], entry(0, 5), *beyond_a_hole[5:205]], 80)
    keeper = LedgerKeeper.from_chunks(0, keeper.chunks())
    with pytest.raises(
        LogRefused, match=r"the last \d+ entries of kafka/x/0 were refused, for more than an hour .*rebuild"
    ):
        take(keeper, MessageBatch.of(keeper.head.next, [(keeper.head.next, FIRST_MS + 3_700_000, entry(400, 401))]))


YEAR = 365 * 86_400


def test_a_source_that_begins_again_behind_a_shards_mark_is_counted_and_reported_once() -> None:
    def entry(first: int, number: int, visits: int, counted_from: int) -> bytes:
        rows = ItemWriter(LogPosition(first, 0)).visit(HERE[number], time_ms=first).entry("kafka/z/0")
        start = LogPosition(first if first == 31 else 0, 0)
        return encode_entry(replace(rows, start=start, visits_total=visits, counted_from=counted_from))

    again = [entry(5, 0, 1, 0), entry(30, 1, 1, 20), entry(30, 1, 1, 20), entry(31, 2, 2, 20)]
    keeper, outputs = kept([*entries()[:1], *again])
    (values,) = rejects_of(outputs)
    assert values["detail"].startswith("kafka/z/0: the events from offset 6 to 19 were deleted while the stream had no")
    assert values["offset"] == 2
    assert keeper.ledger is not None and keeper.ledger.visits == 3
    _, outputs = kept([*entries()[:1], entry(30, 1, 1, 20)])
    assert rejects_of(outputs) == [], "a shard without entries of a source begins where the source does"


@pytest.mark.parametrize("leap", [YEAR, -YEAR, 601, -601, -(1 << 62)])
def test_ticks_are_refused_while_the_clocks_of_broker_and_sender_differ(leap: int) -> None:
    values, second = entries()[:4], FIRST_MS // 1000 + 1_000_000

    def take_ticks(keeper: LedgerKeeper, ticks: Sequence[tuple[int, int]]) -> list[Output]:
        """Take ticks with the time of the broker and that of the sender."""
        first = keeper.head.next
        sent = [encode_entry(TickEntry(second)) for _, second in ticks]
        rows = [
            (first + number, 1000 * at, data) for number, ((at, _), data) in enumerate(zip(ticks, sent, strict=True))
        ]
        return take(keeper, MessageBatch.of(first, rows))

    keeper, _ = kept(values)
    assert keeper.ledger is not None
    before = keeper.ledger.tick_second
    outputs = take_ticks(keeper, [(second + number, second + number - leap) for number in range(3)])
    (reject,) = rejects_of(outputs)
    assert len(outputs) == 1 and "no time passes in this shard: set the clocks" in reject["detail"]
    assert keeper.counts["refused_ticks"] == 3
    assert keeper.ledger.tick_second == before
    keeper = LedgerKeeper.from_chunks(keeper.shard, keeper.chunks())
    assert take_ticks(keeper, [(second + 3, second + 3 - leap)]) == [], "it is the same trouble"
    healed = take_ticks(keeper, [(second + 4, second + 4)])
    assert keeper.ledger is not None and keeper.ledger.tick_second == second + 4
    assert not [one for one in healed if one.kind == REJECTS]
    assert [one.kind for one in take_ticks(keeper, [(second + 5, second + 5 - leap)])] == [REJECTS], "a new one"


def test_transfers_above_the_limit_are_split_and_give_the_same_ledger(
    monkeypatch: pytest.MonkeyPatch, whole: tuple[LedgerKeeper, list[Output]]
) -> None:
    def received(outputs: list[Output]) -> LedgerKeeper:
        sent = [one.data for one in outputs if (one.kind, one.to_shard) == (TRANSFERS, 2)]
        keeper, log = LedgerKeeper(2), records([ORIGIN.entry(), *sent])
        assert not rejects_of(take(keeper, batch(0, log[-1][0] + 1, log)))
        return keeper

    monkeypatch.setattr(ledger_keeper, "MOST_TRANSFERS", 3)
    keeper, outputs = kept()
    sent = [decode_entry(one.data) for one in outputs if one.kind == TRANSFERS]
    sizes = [len(one.pages) for one in sent if isinstance(one, TransfersEntry)]
    assert (
        max(sizes)
        == 3
        < max(
            len(decode_entry(one.data).pages)  # type: ignore[union-attr]
            for one in whole[1]
            if one.kind == TRANSFERS
        )
    )
    assert list(keeper.chunks()) == list(whole[0].chunks())
    assert received(outputs).fingerprint() == received(whole[1]).fingerprint()


def test_a_keeper_counts_events_for_its_metrics() -> None:
    keeper, _ = kept()
    assert keeper.ledger is not None
    assert keeper.counts["visits"] == keeper.ledger.visits
    assert keeper.counts["rejected"] == 2
    assert keeper.counts["transfers"] > 0 and keeper.counts["births"] > 0
    assert keeper.counts["cuts"] == keeper.ledger.cut > 0
    gauges = keeper.gauges()
    assert gauges["pages"] == keeper.ledger.pages and gauges["audit_drift"] == 0
    keeper._notes.movers.publish_all(1000)  # of which nearly all are removed before pages are compared again
    assert keeper.gauges()["pages_off"] == keeper.ledger.pages < 1000
    assert LedgerKeeper(0).gauges() == {}


def test_sites_are_published_once_a_day_or_after_enough_visits() -> None:
    hourly = replace(CONFIG, refresh=replace(CONFIG.refresh, cycle_hours=1.0))
    origin = replace(ORIGIN, ledger=hourly, ranges=ShardRanges.equal(1), sites="host")
    keeper, offset = LedgerKeeper(0), 0

    def apply(value: bytes, second: int) -> list[Output]:
        nonlocal offset
        outputs = take(keeper, MessageBatch.of(offset, [(offset, FIRST_MS + 1000 * second, value)]))
        offset += 1
        return [one for one in outputs if one.kind == SITES]

    def visits(*numbers: int) -> bytes:
        writer = ItemWriter(start)
        for number in numbers:
            writer.visit(HERE[number], [], time_ms=FIRST_MS + start.offset, url=b"https://host-%d.example/" % number)
        return encode_entry(writer.entry("kafka/x/0", start))

    tick, hour = encode_entry(TickEntry(0)), 3600
    start = LogPosition(0, 0)
    apply(origin.entry(), 0)
    apply(visits(*range(12)), 0)
    (first,) = apply(tick, 1)
    assert len(unpack(first.data).columns["pages"]) == 12
    assert not any(apply(tick, after * hour) for after in range(2, 24))  # nothing was visited
    assert len(apply(tick, 25 * hour)) == 1
    start = LogPosition(12, 0)
    apply(visits(*range(5)), 25 * hour + 1)
    assert not apply(tick, 27 * hour)  # ten records of twelve
    start = LogPosition(17, 0)
    apply(visits(5), 27 * hour + 1)
    assert len(apply(tick, 29 * hour)) == 1


def test_pages_that_moved_are_published_every_ten_seconds_while_there_are_visits() -> None:
    published, _ = movers_of(seconds=60, visits_until=45)
    while_visited = {second for second in published if second < 45}
    assert {0, 10} <= while_visited <= {0, 10, 20, 30, 40}


def test_at_rest_pages_that_moved_are_published_some_at_a_tick_until_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_pace, "MOVERS_A_SECOND", 2)
    published, keeper = movers_of(seconds=70, visits_until=5)
    assert set(published.values()) <= {1, 2} and keeper.gauges()["pages_off"] == 0
    assert keeper.ledger is not None
    assert keeper.ledger.publish_movers(1000, TRUE_WITHIN, TRUE_WITHIN).off == 0


def test_what_was_published_before_is_published_again_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while there are visits that allow no movers."""
    monkeypatch.setattr(publication_pace, "MOVERS_A_SECOND", 3)
    published, keeper = movers_of(seconds=40, visits_until=40, request_at=20, records_per_visit=0.0)
    assert keeper.ledger is not None and keeper.ledger.pages == 12
    assert [published.get(second, 0) for second in range(11, 23)] == [*[0] * 9, 3, 3, 3]


def movers_of(
    *, seconds: int, visits_until: int, request_at: int = -1, records_per_visit: float = 2.0
) -> tuple[dict[int, int], LedgerKeeper]:
    """Return how many pages were published at ticks, by second, and the keeper. Then there is a second of visits."""
    keeper, start = LedgerKeeper(0), LogPosition(0, 0)
    published: dict[int, int] = {}
    origin = Origin(CONFIG, ShardRanges(), records_per_visit=records_per_visit)
    log = [(0, FIRST_MS, origin.entry())]
    for second in range(seconds):
        writer, time_ms = ItemWriter(start), FIRST_MS + 1000 * second
        if second < visits_until:
            for page in HERE[:3]:
                writer.visit(page, [HERE[3 + second % 8]], time_ms=time_ms, url=url(page))
            for page in HERE[3:12]:
                writer.sighting(page, url=url(page))
            log.append((len(log), time_ms, encode_entry(writer.entry("kafka/x/0", start))))
            start = writer.next_position
        if second == request_at:
            log.append((len(log), time_ms, request_republication()))
        log.append((len(log), time_ms, encode_entry(TickEntry(0))))
    for record in log:
        outputs = take(keeper, MessageBatch.of(record[0], [record]))
        if isinstance(decode_entry(record[2]), TickEntry):
            for one in outputs:
                if one.kind == IMPORTANCE:
                    published[(record[1] - FIRST_MS) // 1000] = rows_in(one.data)
    return published, keeper
