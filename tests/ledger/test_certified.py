"""The policy `certified`: every page's law holds to the unit, and no certificate is below the true distance."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from opicflow.pipelines.graph.oracle import pagerank
from opicflow.pipelines.ledger import (
    Certified,
    ConfigRefused,
    History,
    Interpolation,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PageLink,
    PolicyEntry,
    TickEntry,
)
from opicflow.pipelines.ledger.entries import ItemWriter
from opicflow.pipelines.web.webs import power_law_web
from opicflow.schemas.arrays import Floats, Ids
from support.crawls import Crawl as WebCrawl

START = LogPosition(0, 0)
DAY = 86_400


class Model:
    """The graph seen, kept beside the ledger in dicts, and its exact ranks by a dense solution."""

    def __init__(self, damping: float, class_weights: tuple[int, ...]) -> None:
        self.damping = damping
        self.class_weights = class_weights
        self.links: dict[int, dict[int, int]] = {}
        self.class_of: dict[int, int] = {}
        self.barred: set[int] = set()

    def learn(self, page: int, category: int = 0) -> None:
        if page not in self.barred:
            self.class_of.setdefault(page, 2 * category)

    def visit(self, page: int, outcome: Outcome, links: list[tuple[int, int, int]] | None) -> None:
        self.learn(page)
        if page not in self.class_of:
            return
        answered = outcome not in (Outcome.FAILED, Outcome.BLOCKED)
        if answered:
            self.class_of[page] |= 1
        if outcome == Outcome.GONE:
            self.links.pop(page, None)
        elif links is not None and answered:
            kept: dict[int, int] = {}
            for target, weight, category in links:
                if target != page and weight > 0:
                    kept[target] = min(kept.get(target, 0) + weight, 65535)
                    self.learn(target, category)
            self.links[page] = kept

    def drop(self, page: int) -> None:
        self.class_of.pop(page, None)
        self.links.pop(page, None)

    def ranks(self, pages: Ids) -> Floats:
        rows = {int(page): row for row, page in enumerate(pages)}
        assert set(rows) == set(self.class_of)
        base = np.array([self.class_weights[self.class_of[int(page)]] for page in pages], float)
        pays = np.zeros((len(rows), len(rows)))
        for page, links in self.links.items():
            for target, weight in links.items():
                if target in rows:
                    pays[rows[target], rows[page]] = weight / sum(links.values())
        ranks = np.linalg.solve(np.eye(len(rows)) - self.damping * pays, base)
        return ranks / ranks.sum()


class Crawl:
    """A ledger and a model that see the same log."""

    def __init__(self, config: LedgerConfig, seed: int, pages: int = 60) -> None:
        self.ledger = Ledger(config)
        self.model = Model(config.damping, config.class_weights)
        self.chance = random.Random(seed)
        self.ids = [self.chance.getrandbits(64) for _ in range(pages)]
        self.ids[0] = 0  # an id like any other
        self.at = START
        self.policies = 0
        self.second = 0

    def batch(self, visits: int) -> None:
        writer = ItemWriter(self.at)
        chance = self.chance
        for _ in range(visits):
            page = self.ids[int(len(self.ids) * chance.random() ** 2)]
            outcome = chance.choices(
                [Outcome.FETCHED, Outcome.UNCHANGED, Outcome.GONE, Outcome.FAILED, Outcome.BLOCKED, Outcome.REDIRECTED],
                [20, 4, 1, 2, 2, 1],
            )[0]
            links = None
            if outcome in (Outcome.FETCHED, Outcome.REDIRECTED) and chance.random() < 0.9:
                count = 1 if outcome == Outcome.REDIRECTED else chance.choice([0, 1, 2, 5, 12])
                links = [
                    (chance.choice(self.ids), chance.choice([1024, 1024, 512, 7, 0]), chance.randrange(2))
                    for _ in range(count)
                ]
            writer.visit(page, None if links is None else [PageLink(*link) for link in links], outcome)
            self.model.visit(page, outcome, links)
        self.ledger.apply(writer.entry(start=self.at))
        self.at = writer.next_position

    def policy(self, **values: object) -> None:
        start = LogPosition(self.policies, 0)
        self.policies += 1
        self.ledger.apply(PolicyEntry("people", start, LogPosition(self.policies, 0), **values))  # type: ignore[arg-type]

    def drop(self, count: int) -> None:
        gone = self.chance.sample(self.ids, count)
        self.policy(drop=tuple(gone))
        for page in gone:
            self.model.drop(page)

    def forget(self, count: int) -> None:
        gone = self.chance.sample(self.ids, count)
        self.policy(forget=tuple(gone))
        for page in gone:
            self.model.drop(page)
            self.model.barred.add(page)

    def change_rules(self) -> None:
        chance = self.chance
        self.model.damping = round(chance.uniform(0.3, 0.95) * (1 << 20)) / (1 << 20)
        self.model.class_weights = tuple(chance.choice([4, 16, 50]) for _ in range(4))
        self.policy(damping=self.model.damping, class_weights=self.model.class_weights)

    def tick(self) -> None:
        self.second += 3600
        self.ledger.apply(TickEntry(self.second))

    def distance(self) -> float:
        estimates = self.ledger.estimate_all()
        if not len(estimates.pages):
            return 0.0
        assert estimates.importance.sum() == pytest.approx(1.0)
        return float(np.abs(estimates.importance - self.model.ranks(estimates.pages)).sum())

    def run(self, steps: int) -> Iterator[None]:
        for _ in range(steps):
            step = self.chance.choices(
                [
                    lambda: self.batch(self.chance.choice([1, 5, 40])),
                    self.tick,
                    lambda: self.drop(2),
                    self.change_rules,
                    lambda: self.forget(1),
                ],
                [12, 6, 2, 1, 1],
            )[0]
            step()
            yield


CONFIG = LedgerConfig(history=Certified(pushes_per_visit=2), class_weights=(16, 16, 16, 16), link_bonus_per_1024=(0, 0))


@pytest.mark.parametrize("seed", range(8))
def test_the_law_holds_after_every_entry_and_the_certificate_is_never_below_the_distance(seed: int) -> None:
    crawl = Crawl(CONFIG, seed)
    for _ in crawl.run(60):
        assert crawl.ledger.audit().drift == 0
        certificate = crawl.ledger.certificate()
        assert certificate is not None and crawl.distance() <= certificate


@pytest.mark.parametrize("seed", range(4))
def test_settling_ends_within_the_tolerance_and_leaves_the_ledger_as_it_was(seed: int) -> None:
    crawl = Crawl(CONFIG, seed)
    for _ in crawl.run(50):
        pass
    before = crawl.ledger.snapshot()
    settled = crawl.ledger.settle()
    assert settled.certificate <= 1e-4
    assert np.abs(settled.importance - crawl.model.ranks(settled.pages)).sum() <= settled.certificate
    assert crawl.ledger.snapshot() == before


@pytest.mark.parametrize("history", [Certified(), Interpolation()])
@pytest.mark.parametrize("pages", [2, 3, 10])
def test_pages_with_equal_residuals_are_pushed(history: History, pages: int) -> None:
    """A ring in which every page was read once: no page has more than another."""
    writer = ItemWriter(START)
    for page in range(1, pages + 1):
        writer.visit(page, [page % pages + 1])
    ledger = Ledger(LedgerConfig(history=history, remember_links=True))
    ledger.apply(writer.entry())
    settled = ledger.settle()
    assert settled.certificate <= 1e-4
    assert np.abs(settled.importance - 1 / pages).sum() <= settled.certificate


@pytest.mark.parametrize("seed", range(4))
def test_a_restored_ledger_continues_with_the_same_bytes(seed: int) -> None:
    whole, parts = Crawl(CONFIG, seed), Crawl(CONFIG, seed)
    for _, _ in zip(whole.run(60), parts.run(60), strict=True):
        parts.ledger = Ledger.restore(chunk.data for chunk in parts.ledger.snapshot())
    assert parts.ledger.snapshot() == whole.ledger.snapshot()
    assert parts.ledger.certificate() == whole.ledger.certificate()


@pytest.mark.parametrize("order", ["cycle", "greedy"])
def test_importance_is_nearly_exact_after_three_visits_of_every_page(order: str) -> None:
    web = power_law_web(3000, 1)
    exact = pagerank(web).values
    crawl = WebCrawl(ledger := Ledger(LedgerConfig(history=Certified())), web, order, 1).run(3)
    ledger.audit()
    certificate = ledger.certificate()
    assert certificate is not None and np.abs(crawl.ledger.importance(crawl.ids) - exact).sum() <= certificate < 0.01
    assert crawl.errors(exact).everywhere < 0.05


@pytest.mark.parametrize(
    "options",
    [
        {"damping": 1.0},
        {"damping": 0.0},
        {"link_bonus_per_1024": (100,)},
        {"history": Certified(tolerance=0.0)},
        {"history": Certified(pushes_per_visit=-1)},
    ],
)
def test_impossible_options_are_refused_in_one_line(options: dict[str, object]) -> None:
    with pytest.raises(ConfigRefused) as refusal:
        LedgerConfig(**{"history": Certified(), **options})  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


def test_several_shards_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigRefused, match="needs one shard"):
        Ledger(LedgerConfig(history=Certified()), shard=0, shards=2)
