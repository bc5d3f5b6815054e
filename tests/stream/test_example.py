"""The example log through the ledgers of a stream gives the importance of its replay, with any number of shards."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opicflow.connectors.files.log_reader import FileRange, format_of
from opicflow.pipelines.cli.stream_options import default_origin
from opicflow.pipelines.ledger import TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.replay.known_pages import pages_of_logs
from opicflow.pipelines.stages.decode import decode_range
from opicflow.pipelines.stages.decoded_batch import route_rows
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.pipelines.stages.outputs import REJECTS, TRANSFERS
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.shard import Sharder, SourceState
from opicflow.schemas.message_columns import MessageBatch
from support.logs import records_of, run
from support.paths import TOP

LOG = TOP / "examples" / "crawl.jsonl.gz"
_MOST_TICKS = 400
_REPLAYED = 1e-4
"""The certificate of the replay."""


class Stream:
    """The keepers of all shards. Their messages are in the logs of the others before the next tick."""

    def __init__(self, origin: Origin) -> None:
        self.keepers = [LedgerKeeper(shard) for shard in range(origin.shards)]
        self.waiting: list[deque[bytes]] = [deque([origin.entry()]) for _ in self.keepers]
        self.sharder = Sharder("events", SourceState.at(0, origin.shards), origin.ranges)
        self.second = 0

    def work(self) -> None:
        """Apply everything that waits, and what follows from it."""
        while any(self.waiting):
            for shard, keeper in enumerate(self.keepers):
                while self.waiting[shard]:
                    value, at = self.waiting[shard].popleft(), keeper.head.next
                    for output in keeper.take(MessageBatch.of(at, [(at, 1000 * self.second, value)])):
                        assert output.kind != REJECTS, output
                        if output.kind == TRANSFERS:
                            self.waiting[output.to_shard].append(output.data)

    def tick(self) -> None:
        self.second += 1
        for log in self.waiting:
            log.append(encode_entry(TickEntry(self.second)))
        self.work()

    def read(self, rules: Rules) -> None:
        """Route the log, with a tick after each batch."""
        seen = Seen()
        for batch in decode_range(FileRange(str(LOG), str(LOG), format_of(str(LOG))), rules):
            items = route_rows(batch.decoded, batch.urls, "events", rules, seen).items
            if len(items):
                for shard, entry in self.sharder.crawl(items, int(items.offset[-1]) + 1):
                    self.waiting[shard].append(entry)
            self.work()
            self.tick()

    def certificate(self) -> float:
        ledgers = [keeper.ledger for keeper in self.keepers]
        return max(ledger.certificate() or 0.0 for ledger in ledgers if ledger is not None)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    out = Path(tmp_path_factory.mktemp("replay"))
    run([LOG], out, prefers_certified=True)
    return {one["url"]: one["importance"] for one in records_of(out / "importance.jsonl")}


@pytest.mark.parametrize(
    ("shards", "even"),
    [
        (1, False),
        (4, True),
        *(pytest.param(*rest, marks=pytest.mark.soak) for rest in ((1, True), (4, False), (16, True), (16, False))),
    ],
)
def test_the_example_log_has_the_importance_of_its_replay(replayed: dict[str, float], shards: int, even: bool) -> None:
    """Both with the settings that they have without any option, but that the clock of the test is any."""
    origin = replace(default_origin(shards), most_ahead_hours=None)
    rules = origin.rules
    if even:
        origin = replace(origin, ranges=pages_of_logs(str(LOG), rules).ranges(shards, "pages"))
    stream = Stream(origin)
    stream.read(rules)
    for _ in range(_MOST_TICKS if shards > 1 else 0):  # one shard pushes with its visits: nothing comes from others
        if stream.certificate() <= 1.5e-4:
            break
        stream.tick()
    certificate = stream.certificate()
    assert certificate <= (1.5e-4 if shards > 1 else 5e-3)
    ledgers = [keeper.ledger for keeper in stream.keepers if keeper.ledger is not None]
    rates = sum(ledger.rate_sum() for ledger in ledgers)
    found: dict[str, float] = {}
    for ledger in ledgers:
        estimates = ledger.estimate_all()
        starts, text = ledger.urls(estimates.pages)
        for row, rate in enumerate(estimates.rate.tolist()):
            url = text[starts[row] : starts[row + 1]].tobytes().decode()
            if url:
                found[url] = rate / rates
        assert ledger.audit().drift == 0
    assert found.keys() == replayed.keys()
    distance = float(np.abs([found[url] - replayed[url] for url in found]).sum())
    assert distance <= certificate + _REPLAYED
    assert distance < 1e-3
    if even:
        sizes = [ledger.pages for ledger in ledgers]
        assert max(sizes) / (sum(sizes) / shards) <= 1.15
