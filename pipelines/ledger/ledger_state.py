"""Everything a ledger holds beside its columns, and the plain values in which a snapshot stores it.

Times, credits, gossip and sums are stored by the names or in the order of their fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from opicflow.pipelines.discovery import Discovery, PagesRead
from opicflow.pipelines.ledger.config import LedgerConfig, plain, shown
from opicflow.pipelines.ledger.entries import START, CrawlItems, Gossip, LogPosition, ResidualSums
from opicflow.pipelines.refresh.policies import Policies
from opicflow.schemas.arrays import Array, Ints
from opicflow.schemas.pages import PageIds
from opicflow.schemas.shards import ShardRanges


class Ahead(NamedTuple):
    """A range of page ids, both ends inside, for which a source has been applied further than for others."""

    first_id: int
    last_id: int
    position: LogPosition


@dataclass
class Mark:
    """How far a source has been applied, and the totals there: visits, or cash and its digest."""

    position: LogPosition = START
    total: int = 0
    digest: int = 0
    counted_from: int = 0
    """The offset from which the source counts its visits."""
    uncounted: int = 0
    """The number of visits that are not in that count."""
    ahead: tuple[Ahead, ...] = ()
    """After another number of shards began: ranges of pages of shards that were further than the others."""

    def new_rows(self, items: CrawlItems) -> Ints | None:
        """Return the rows from the position on that were not applied yet; None = all these rows."""
        if not self.ahead:
            return None
        is_new = np.ones(len(items), np.bool_)
        for first_id, last_id, position in self.ahead:
            is_of_range = (items.page >= np.uint64(first_id)) & (items.page <= np.uint64(last_id))
            is_before = (items.offset < position.offset) | (
                (items.offset == position.offset) & (items.within < position.within)
            )
            is_new &= ~(is_of_range & is_before)
        return np.flatnonzero(is_new)

    def ahead_of(self, position: LogPosition) -> tuple[Ahead, ...]:
        """Return the ranges that are ahead of a position."""
        return tuple(one for one in self.ahead if one.position > position)


@dataclass
class Peer:
    """Another shard: totals of the cash sent to it, and its latest gossip. `gossip` is None until the first arrives."""

    sent_total: int = 0
    sent_digest: int = 0
    gossip: Gossip | None = None
    cut: int = 0
    """The number of the next cut for it."""
    second: int = -1
    """The last tick when it was last sent a message."""
    awaits_answer: bool = False
    """Whether it has sent cash since then. Not noted if every tick makes a cut."""


@dataclass
class WholeCut:
    """The last cut that went to all other shards: its gossip and its second. Not noted if every tick makes one."""

    gossip: Gossip | None = None
    second: int = -1


@dataclass
class Times:
    """Seconds of past events, -1 for those that have not happened; `days` pairs seconds with turn clocks."""

    tick_second: int = -1
    sweep_second: int = -1
    sweep_rate_sum: float = 0.0
    days: list[tuple[int, int]] = field(default_factory=list)
    first_tick_second: int = -1
    planned_second: int = -1
    sweep_received: int = 0
    visits_by: list[tuple[int, int]] = field(default_factory=list)
    """Visits applied by some seconds, from the last one that all other shards have reached: see `Settling`."""
    ahead_theta: int | None = None
    """The turn clock when visits were last ahead of the transfers of other shards; None if they never were."""
    first_planned_second: int = -1
    """Noted only where the first cycles are short."""
    policies_changed: bool = False
    """Whether policies came or ended since the last plan: the next one does not wait for the end of the cycle."""


@dataclass
class Credits:
    """Fractions of a fetch that earlier plans could not order; the next plan has them on top of its bandwidth."""

    refresh: float = 0.0
    discovery: float = 0.0


class HostWait(NamedTuple):
    """The wait of a busy host (busy_hosts.py), in seconds since 1970."""

    since: int
    """When it last answered so."""
    until: int
    answers: int
    """The number of busy answers in a row, without those during a wait."""


@dataclass
class Reviews:
    """The values that discovery has learnt, and the time of its last review."""

    second: int = -1
    read: int = 0
    """The number of pages known now that had been read by then."""
    discovery: Discovery = field(default_factory=Discovery)

    def forget_all(self) -> None:
        """Begin again."""
        self.second, self.read, self.discovery = -1, 0, Discovery()


@dataclass(frozen=True)
class LedgerState:
    """The state that is not columns. `budget` holds the parts of the bandwidth that policies have set.

    `busy_hosts` are the hosts that ask to wait, by the hashes of their names.
    """

    marks: dict[str, Mark]
    peers: dict[int, Peer]
    times: Times
    credits: Credits
    policies: Policies
    budget: dict[str, Any]
    url_generation: int
    busy_hosts: dict[int, HostWait] = field(default_factory=dict)
    reviews: Reviews = field(default_factory=Reviews)
    whole_cut: WholeCut = field(default_factory=WholeCut)


def new_state(shard: int, shards: int, page_ids: PageIds) -> LedgerState:
    """The state of a ledger that has applied nothing."""
    peers = {other: Peer() for other in range(shards) if other != shard}
    return LedgerState({}, peers, Times(), Credits(), Policies(page_ids=page_ids), {}, 0)


def encode_state(state: LedgerState, config: LedgerConfig, shard: int, ranges: ShardRanges) -> dict[str, object]:
    """The state as plain values, for the manifest of a snapshot.

    Ranges of equal width are left out, and reviews if discovery is not learnt.
    """
    whole = state.whole_cut
    return {
        "config": config.to_json(),
        "shard": shard,
        **ranges.stored(),
        "cut": max((peer.cut for peer in state.peers.values()), default=0),
        "marks": [[source, *_encode_mark(mark)] for source, mark in sorted(state.marks.items())],
        "peers": [
            [other, *_encode_peer(peer), *([peer.cut, peer.second, peer.awaits_answer] if config.cut_seconds else ())]
            for other, peer in sorted(state.peers.items())
        ],
        "times": plain(state.times),
        "credits": plain(state.credits),
        "publications": state.policies.to_json(),
        "published_budget": state.budget,
        "url_generation": state.url_generation,
        "busy_hosts": [[host, *wait] for host, wait in sorted(state.busy_hosts.items())],
        **({"whole_cut": [whole.second, _encode_gossip(whole.gossip)]} if config.cut_seconds else {}),
        **({"reviews": _encode_reviews(state.reviews)} if config.learns_discovery else {}),
    }


def decode_state(values: dict[str, Any], page_ids: PageIds) -> LedgerState:
    """The state that `encode_state` was given. `snapshot_checks.state_problem` has found nothing wrong with it."""
    return LedgerState(
        marks={source: _decode_mark(*numbers) for source, *numbers in values["marks"]},
        peers={
            other: Peer(total, digest, gossip and decode_gossip(gossip), *(messages or [values["cut"]]))
            for other, total, digest, gossip, *messages in values["peers"]
        },
        times=_decode_times(values["times"]),
        credits=Credits(**values["credits"]),
        policies=Policies.from_json(values["publications"], page_ids),
        budget=dict(values["published_budget"]),
        url_generation=values["url_generation"],
        busy_hosts={host: HostWait(*wait) for host, *wait in values["busy_hosts"]},
        reviews=_decode_reviews(values["reviews"]) if "reviews" in values else Reviews(),
        whole_cut=_decode_whole_cut(*values["whole_cut"]) if "whole_cut" in values else WholeCut(),
    )


def _encode_peer(peer: Peer) -> list[object]:
    return [peer.sent_total, peer.sent_digest, _encode_gossip(peer.gossip)]


def _decode_whole_cut(second: int, gossip: list[Any] | None) -> WholeCut:
    return WholeCut(None if gossip is None else decode_gossip(gossip), second)


def _encode_mark(mark: Mark) -> list[object]:
    ahead = [[first_id, last_id, *position] for first_id, last_id, position in mark.ahead]
    return [*mark.position, mark.total, mark.digest, mark.counted_from, mark.uncounted, ahead]


def _decode_mark(
    offset: int,
    within: int,
    total: int,
    digest: int,
    counted_from: int,
    uncounted: int,
    ahead: Sequence[Sequence[int]],
) -> Mark:
    ranges = (Ahead(first_id, last_id, LogPosition(*position)) for first_id, last_id, *position in ahead)
    return Mark(LogPosition(offset, within), total, digest, counted_from, uncounted, tuple(ranges))


def decode_gossip(values: list[Any]) -> Gossip:
    """The gossip that a snapshot stores as a list of its fields."""
    given = dict(zip((one.name for one in fields(Gossip)), values, strict=True))
    return Gossip(**{**given, "residuals": decode_residual_sums(given["residuals"])})


def _encode_gossip(gossip: Gossip | None) -> list[object] | None:
    if gossip is None:
        return None
    residuals = gossip.residuals and list(plain(gossip.residuals).values())
    return list({**plain(gossip), "residuals": residuals}.values())


def decode_residual_sums(values: list[Any] | None) -> ResidualSums | None:
    """The sums that a snapshot stores as a list of their fields; None for None. `TypeError` for anything else."""
    if values is None:
        return None
    if type(values) is not list or len(values) != 7 or not all(type(flow) is list for flow in values[5:]):
        raise TypeError(f"residuals are {shown(values)}")
    bases, paid, residual, residual_size, links, sent, received = values
    return ResidualSums(bases, paid, residual, residual_size, links, tuple(sent), tuple(received))


def judged_columns(reviews: Reviews) -> dict[str, Array]:
    """The pages that wait to be judged, as columns of a snapshot; its state has the number for each review."""
    waiting = reviews.discovery.waiting
    none = np.zeros(0, np.float32)
    rows = [PagesRead(np.zeros(0, np.uint64), np.zeros(0, np.bool_), none, none), *waiting]
    return {
        "judged_pages": np.concatenate([one.page for one in rows]),
        "judged_explored": np.concatenate([one.explored for one in rows]).astype(np.uint8),
        "judged_own": np.concatenate([one.own for one in rows]),
        "judged_siblings": np.concatenate([one.siblings for one in rows]),
    }


def take_judged(reviews: Reviews, columns: dict[str, Array], sizes: list[int]) -> None:
    """Take over the pages that wait to be judged from the columns of a snapshot; `sizes` are in its state."""
    ends = np.cumsum(sizes).tolist()
    pages, explored, own, siblings = columns.values()
    reviews.discovery.waiting = [
        PagesRead(pages[first:end], explored[first:end] != 0, own[first:end], siblings[first:end])
        for first, end in zip([0, *ends], ends, strict=False)
    ]


def _encode_reviews(reviews: Reviews) -> dict[str, object]:
    discovery = reviews.discovery
    credits = (discovery.credit_explored, discovery.credit_others)
    return {
        "second": reviews.second,
        "read": reviews.read,
        "share": discovery.share,
        "seen": discovery.seen.ravel().tolist(),
        "followed": discovery.followed.tolist(),
        "credits": [None if np.isnan(credit) else credit for credit in credits],
        "waiting": [len(one.page) for one in discovery.waiting],
    }


def _decode_reviews(values: dict[str, Any]) -> Reviews:
    discovery = Discovery()
    discovery.share = values["share"]
    discovery.seen = np.array(values["seen"]).reshape(discovery.seen.shape)
    discovery.followed = np.array(values["followed"])
    credits = (np.nan if credit is None else credit for credit in values["credits"])
    discovery.credit_explored, discovery.credit_others = credits
    return Reviews(values["second"], values["read"], discovery)


def _decode_times(values: dict[str, Any]) -> Times:
    pairs = {name: [(second, reading) for second, reading in values[name]] for name in ("days", "visits_by")}
    return Times(**{**values, **pairs})
