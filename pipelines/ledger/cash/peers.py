"""The other shards of a web, as far as their gossip describes them.

A shard that has sent no gossip yet counts as if it were like this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opicflow.pipelines.ledger.entries import Gossip, ResidualSums
from opicflow.pipelines.ledger.ledger_state import Peer
from opicflow.schemas.shards import Shard

_WRAP = 1 << 64


class Peers:
    """Sums over all shards: this one's own part is an argument, the parts of the others come from their gossip."""

    def __init__(self, shard: Shard, by_shard: dict[int, Peer]) -> None:
        self.shard = shard
        self.by_shard = by_shard
        self.silent = sum(peer.gossip is None for peer in by_shard.values())
        """The number of other shards that have sent no gossip yet."""

    def receive_gossip(self, other: int, gossip: Gossip) -> int:
        """Keep a shard's gossip. Returns how far its part of the turn clock advanced since its previous gossip."""
        peer = self.by_shard[other]
        before = 0
        if peer.gossip is None:
            self.silent -= 1
        else:
            before = peer.gossip.advance
        peer.gossip = gossip
        return (gossip.advance - before) % _WRAP

    def oldest_second(self) -> int:
        """How far in the time of the logs the slowest of the other shards was at its last cut; -1 if one is silent."""
        return min((peer.gossip.second if peer.gossip else -1 for peer in self.by_shard.values()), default=-1)

    def pages(self, own: int) -> int:
        """Pages of all shards; of silent ones none is counted."""
        return own + sum(gossip.pages for gossip in self._gossips())

    def minted(self, own: int) -> int:
        """Cash minted by all shards."""
        others = [peer.gossip.minted for peer in self.by_shard.values() if peer.gossip]
        return sum(others) + own * (1 + self.silent)

    def weighted_pages(self, own: int) -> dict[int, int]:
        """The weighted pages of each of the other shards."""
        return {other: peer.gossip.weighted_pages if peer.gossip else own for other, peer in self.by_shard.items()}

    def rate_sum(self, own: float) -> float:
        """The rates of all pages of all shards; a shard with pages that has not swept yet counts like this one, too."""
        rates = own * (1 + self.silent)
        for gossip in self._gossips():
            rates += own if gossip.rate_sum == 0 and gossip.pages > 0 else gossip.rate_sum
        return rates

    def residual_sums(self, own: ResidualSums) -> ResidualSums:
        """The sums over all shards that have sent gossip, without transfers."""
        return _sum_of([own, *self._reports()])

    def sums_elsewhere(self) -> ResidualSums:
        """The sums over all other shards that have sent gossip, without transfers."""
        return _sum_of(list(self._reports()))

    def under_way(self, own: ResidualSums) -> int:
        """The size of all amounts that wait to be sent, or were reported by one side of a pair of shards alone.

        All shards have sent gossip.
        """
        reports = {self.shard.number: own}
        for other, peer in self.by_shard.items():
            assert peer.gossip is not None and peer.gossip.residuals is not None
            reports[other] = peer.gossip.residuals
        waiting = sum(report.sent[a] for a, report in reports.items())
        return waiting + sum(
            abs(reports[a].sent[b] - reports[b].received[a]) for a in reports for b in reports if a != b
        )

    def certified_rate_sum(self, own: ResidualSums) -> float:
        """The rates of all pages of all shards under `certified`; a silent shard counts like this one."""
        scale = self.residual_sums(own).scale
        return own.rate_sum(scale) * (1 + self.silent) + sum(one.rate_sum(scale) for one in self._reports())

    def part_of_bandwidth(self, shares: int, pages: int) -> float:
        """The part that this shard has: by shares where every shard with pages has some, else by pages."""
        if not self.by_shard:
            return 1.0
        gossips = [peer.gossip for peer in self.by_shard.values()]
        others = [gossip.shares if gossip else 0 for gossip in gossips if gossip is None or gossip.pages > 0]
        if shares and all(others):
            return shares / (shares + sum(others))
        return pages / max(pages + sum(gossip.pages if gossip else pages for gossip in gossips), 1)

    def _reports(self) -> Iterator[ResidualSums]:
        return (gossip.residuals for gossip in self._gossips() if gossip.residuals)

    def _gossips(self) -> Iterator[Gossip]:
        return (peer.gossip for peer in self.by_shard.values() if peer.gossip)


def _sum_of(reports: Sequence[ResidualSums]) -> ResidualSums:
    return ResidualSums(
        sum(one.bases for one in reports),
        sum(one.paid for one in reports),
        sum(one.residual for one in reports),
        sum(one.residual_size for one in reports),
        sum(one.links for one in reports),
    )
