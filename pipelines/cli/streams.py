"""The ledger of one shard of a stream, rebuilt from its log for a question about a page."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import connection_of
from opicflow.pipelines.cli.progress import ProgressDisplay, announce_compilation
from opicflow.pipelines.cli.stream_options import ledger_topic_of, snapshots_of
from opicflow.pipelines.cli.text import counted
from opicflow.schemas.dates import iso_time
from opicflow.schemas.urls import named_page

if TYPE_CHECKING:
    from opicflow.pipelines.ledger import Ledger
    from opicflow.pipelines.results.reasons import Payer
    from opicflow.pipelines.stream.rebuilt import Logs, RebuildProgress


@dataclass(frozen=True)
class ShardOfPage:
    """The shard of a stream that has a page, as its log makes it."""

    logs: Logs
    url: bytes
    page: int
    shard: int
    ledger: Ledger
    _quiet: bool

    @classmethod
    def read(cls, options: argparse.Namespace) -> ShardOfPage:
        """Find the shard of the page that the options name, and rebuild its ledger up to the present end of its log."""
        from opicflow.pipelines.stream.rebuilt import Logs

        named_page(options.url)  # a wrong URL is refused before anything is read
        logs = Logs.of(connection_of(options), ledger_topic_of(options), snapshots_of(options))
        rules = logs.origin.rules
        url = named_page(options.url, rules.urls).encode()
        page = rules.page_ids.of(url)
        shard = logs.shard_of(page)
        announce_compilation(options.quiet, "pipelines.ledger")
        ledger = _rebuilt(logs, shard, options.quiet)
        return cls(logs, url, page, shard, ledger, options.quiet)

    @property
    def shards(self) -> int:
        """The number of shards of the stream."""
        return self.logs.origin.shards

    def unknown(self) -> InputRefused:
        """Return the error for a page that the ledger does not have, or whose URL it does not have."""
        is_known = bool(self.ledger.estimate([self.page]).known[0])
        why = (
            "the ledger has its page id only: links lead to it, and its URL has not arrived: try again later"
            if is_known
            else "it was never fetched, linked or announced"
        )
        log = self.logs.by_shard[self.shard]
        return InputRefused(
            f"{self.url.decode()}: not in the ledger of shard {self.shard} of {counted(self.shards, 'shard')} "
            f"({self.logs.topic}, partition {self.shard}, up to offset {log.end}): {why}"
        )

    def payers_elsewhere(self, importance: float) -> list[Payer]:
        """Return the pages of all other shards that pay the page, whose importance is given.

        It reads the logs of all shards, and holds one ledger at a time beside that of the page.
        """
        from opicflow.pipelines.results.reasons import payers_elsewhere

        if not self.ledger.config.remember_links:
            raise InputRefused("--all-shards: the ledgers of this stream do not remember links: omit it")
        found: list[Payer] = []
        for shard in range(self.shards):
            if shard != self.shard:
                found += payers_elsewhere(_rebuilt(self.logs, shard, self._quiet), self.page, importance)
        return found

    def source(self, has_read_all: bool) -> dict[str, object]:
        """Return the position and size of the logs read, as JSON values."""
        log = self.logs.by_shard[self.shard]
        return {
            "topic": self.logs.topic,
            "shard": self.shard,
            "shards": self.shards,
            "end": log.end,
            "event_time": 1000 * max(self.ledger.tick_second, 0) or None,
            "all_shards": has_read_all,
        }

    def source_in_words(self, has_read_all: bool) -> str:
        """Return the same as a sentence."""
        log, second = self.logs.by_shard[self.shard], self.ledger.tick_second
        until = f"the last tick at {iso_time(1000 * second)}" if second >= 0 else "without a tick"
        others = "; payers by the logs of all shards" if has_read_all and self.shards > 1 else ""
        where = f"shard {self.shard} of {counted(self.shards, 'shard')} ({self.logs.topic}, partition {self.shard})"
        return f"by the log of {where}, up to offset {log.end:,}, {until}{others}"


def _rebuilt(logs: Logs, shard: int, quiet: bool) -> Ledger:
    """Rebuild the ledger of a shard, and show how far its log is read."""
    with closing(ProgressDisplay(quiet)) as display:
        ledger = logs.rebuild(shard, _shown(display, time.monotonic())).ledger
    assert ledger is not None
    return ledger


def _shown(display: ProgressDisplay, began: float) -> Callable[[RebuildProgress], None]:
    def show(at: RebuildProgress) -> None:
        seconds, done = time.monotonic() - began, at.offset / max(at.end, 1)
        words = f"shard {at.shard}: {at.offset:,} entries of its log, {counted(at.pages, 'page')}"
        display.show_words(words, seconds, done, seconds * (1 / done - 1) if done else None)

    return show
