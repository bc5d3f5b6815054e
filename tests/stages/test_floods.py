"""A flood of rejects, or of links, takes bounded memory: all are counted, the first ones are listed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from opicflow.connectors.files.decoded import RejectWriter
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange
from opicflow.pipelines.ledger import Fate, ItemWriter
from opicflow.pipelines.stages.decode import _Room, decode_range
from opicflow.pipelines.stages.decoded_batch import RoutedRows, route_rows
from opicflow.pipelines.stages.rejects import collisions
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.crawl_events import MOST_LISTED, Reason, Reject

GOOD, BROKEN, NO_PAGE = '{"url":"https://a.example/","status":200}', "{", '{"url":"mailto:kim@a.example"}'


def routed(path: Path, lines: list[str]) -> list[RoutedRows]:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rules, seen = Rules(), Seen()
    batches = decode_range(FileRange("log", str(path), Format.JSONL), rules)
    return [route_rows(batch.decoded, batch.urls, batch.source, rules, seen) for batch in batches]


def test_all_rejects_are_counted_and_the_first_of_each_reason_are_listed(tmp_path: Path) -> None:
    lines = [GOOD, *[BROKEN] * 3_000, *[NO_PAGE] * 2_500, GOOD, "[]"]
    batches = routed(tmp_path / "log.jsonl", lines)
    reasons = sum((batch.reasons for batch in batches), Counter())
    assert reasons == {"not-json": 3_000, "not-a-page": 2_500, "not-an-event": 1}
    assert sum(batch.counts["events_read"] for batch in batches) == len(lines)
    rejects = [reject for batch in batches for reject in batch.rejects]
    assert [reject.offset for reject in rejects] == sorted(reject.offset for reject in rejects)
    listed = Counter(reject.reason for reject in rejects if reject.bytes)
    assert listed == {Reason.NOT_JSON: MOST_LISTED, Reason.NOT_A_PAGE: MOST_LISTED, Reason.NOT_AN_EVENT: 1}
    more = [(reject.reason, reject.detail) for reject in rejects if not reject.bytes]
    assert more == [
        (Reason.NOT_JSON, "2,000 more events like it after this one are not listed"),
        (Reason.NOT_A_PAGE, "1,500 more events like it after this one are not listed"),
    ]


def test_rejects_up_to_the_bound_are_all_listed(tmp_path: Path) -> None:
    (batch, _) = routed(tmp_path / "log.jsonl", [BROKEN] * MOST_LISTED)
    assert len(batch.rejects) == batch.reasons["not-json"] == MOST_LISTED
    assert all(reject.bytes == b"{" for reject in batch.rejects)


def test_a_writer_bounds_each_reason_for_itself() -> None:
    writer = RejectWriter("log")
    for number in range(MOST_LISTED + 5):
        writer.add(Reason.NOT_JSON, "", number, b"")
        writer.take(Reject(Reason.CORRUPT, "", "log", number, b""))
    assert Counter(reject.reason for reject in writer.rejects) == dict.fromkeys(
        (Reason.NOT_JSON, Reason.CORRUPT), MOST_LISTED
    )
    assert writer.unlisted == {Reason.NOT_JSON: 5, Reason.CORRUPT: 5}


def has_room(room: _Room) -> bool:
    return room._has_room()


def test_batches_are_decoded_ahead_only_while_the_largest_would_fit() -> None:
    room = _Room(most_undecoded=4, most_bytes=100)
    for _ in range(4):
        assert has_room(room)
        room.wait()
    assert not has_room(room)  # four are being decoded
    for _ in range(3):
        room.fill(30)
    assert not has_room(room)  # three of 30 wait, the fourth may be as large
    room.fill(10)
    assert not has_room(room)  # 100 wait
    room.free(30)
    assert has_room(room)  # 70 wait, and one of 30 fits
    room.wait()
    assert not has_room(room)


def test_a_batch_that_is_larger_than_the_bound_is_decoded_alone() -> None:
    room = _Room(most_undecoded=4, most_bytes=100)
    room.wait()
    room.fill(500)
    assert not has_room(room)
    room.free(500)
    assert has_room(room)


def test_a_reader_that_is_closed_does_not_wait() -> None:
    room = _Room(most_undecoded=1, most_bytes=100)
    room.wait()
    waiting = Thread(target=room.wait)
    waiting.start()
    room.close()
    waiting.join(60)
    assert not waiting.is_alive()


@pytest.mark.parametrize("size", [0, 3])
def test_a_batch_that_cannot_be_decoded_leaves_its_room(size: int) -> None:
    room = _Room(most_undecoded=1, most_bytes=2)
    room.wait()
    room.fill(size)
    room.free(size)
    assert has_room(room)


def test_collisions_are_counted_and_the_first_are_listed() -> None:
    rows = MOST_LISTED + 7
    log = ItemWriter()
    for row in range(rows):
        log.visit(row, [], url=b"https://a.example/%d" % row)
    items = log.entry("log").items
    found = list(collisions(items, np.full(rows, Fate.COLLIDED, np.uint8), "log"))
    assert len(found) == MOST_LISTED + 1
    assert found[-1].detail == "7 more rows like it after this one are not listed"
    assert len(list(collisions(items.rows(0, MOST_LISTED), np.full(MOST_LISTED, Fate.COLLIDED, np.uint8), "l"))) == 1000
