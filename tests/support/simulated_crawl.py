"""A crawl of a small web in the topics of a cluster, and the counts that ledgers must have by its rules."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from opicflow.connectors.kafka.messages import Framer
from opicflow.pipelines.stages.log_settings import MOST_AHEAD_HOURS
from opicflow.pipelines.stages.rules import LinkWeights, Rules
from opicflow.pipelines.stream.published_rules import publish_rules
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.policy_json import policy_to_json
from opicflow.schemas.records import Policy, to_avro
from opicflow.schemas.urls import UrlRules, canonical
from support.logs import FIRST_MS, json_line
from support.memory_kafka import MemoryCluster, MemoryConnection, Partition

EVENTS, POLICIES = "crawl-events", "policies"
FAR_FUTURE_MS = 400 * 86_400_000
_SITES = 7


@dataclass
class Expected:
    """The data that ledgers must have of a partition: visits (page, time), the URLs of its pages, and rejects."""

    visits: list[tuple[int, int]] = field(default_factory=list)
    urls: dict[int, bytes] = field(default_factory=dict)
    rejects: set[int] = field(default_factory=set)
    """The offsets of events that cannot be read."""


def _ahead_ms(event: int) -> int:
    """Return how far an event is ahead: very far, or about as far as it may be when it is routed; no two as far."""
    about = 1000 * (event * 37 % 360 - 60) + event
    return FAR_FUTURE_MS if event % 3 == 0 else MOST_AHEAD_HOURS * 3_600_000 + about


def number_of(url: bytes | str) -> int:
    """Return the number of the page that a URL is of."""
    text = url.decode() if isinstance(url, bytes) else url
    return int(text.rpartition("/p")[2].partition("?")[0])


@dataclass
class SimulatedCrawl:
    """Visits of the pages of a small web, with redirects, late visits and duplicates; rules change on the way."""

    chance: random.Random
    cluster: MemoryCluster
    rules: Rules
    pages: int
    removes: bool
    """Whether policies drop and forget pages."""
    partitions: list[Expected] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    """The numbers of pages that policies may have removed."""
    forgotten: set[bytes] = field(default_factory=set)
    """URLs that are never learnt again."""
    no_policies: set[int] = field(default_factory=set)
    """The offsets of policies that cannot be read."""
    _visited: list[tuple[str, int]] = field(default_factory=list)

    def fill(self, partitions: int, events: int) -> SimulatedCrawl:
        """Write the topics."""
        chance = self.chance
        self._links = {
            n: chance.sample(range(self.pages), chance.randint(0, min(4, self.pages))) for n in self._numbers
        }
        for number in self._numbers:  # pages that are never visited and have no other link to them
            self._links[number] += [self.pages + number] * (chance.random() < 0.5)
        self._operator = MemoryConnection(cluster=self.cluster)
        self._framer = Framer(self._operator, EVENTS, "CrawlEvent")
        self.cluster.make(EVENTS, partitions)
        self.cluster.make(POLICIES, 1)
        self.partitions = [Expected() for _ in range(partitions)]
        self._rules, self._newest_rules = [self.rules] * partitions, self.rules
        for number in range(events):
            self._happen(FIRST_MS + 1000 * number)
        return self

    @property
    def _numbers(self) -> range:
        return range(self.pages)

    def _happen(self, time_ms: int) -> None:
        fate = self.chance.random()
        if fate < 0.03 and len(self.partitions) < 4:
            self.cluster.topics[EVENTS].partitions.append(Partition([]))
            self.partitions.append(Expected())
            self._rules.append(self._newest_rules)
        elif fate < 0.07:
            self._newest_rules = self._other_rules()
            publish_rules(self._operator, EVENTS, POLICIES, self._newest_rules)
            self._rules = [self._newest_rules] * len(self.partitions)
        elif fate < 0.15:
            self._send_policy(time_ms)
        else:
            self._send_event(time_ms)

    def _other_rules(self) -> Rules:
        chance = self.chance
        urls = UrlRules(drop_parameters=chance.choice([(), ("s",)]), fold_www=chance.random() < 0.5)
        return replace(self.rules, urls=urls, links=LinkWeights(internal=chance.choice([0.0, 1.0, 2.0]), nofollow=0.5))

    # -- policies --------------------------------------------------------------------------------------------------

    def _send_policy(self, time_ms: int) -> None:
        chance, number = self.chance, self.chance.randrange(self.pages)
        url = canonical(self._url(number, ""), None, self.rules.urls).decode()
        choices = [
            Policy(damping=chance.choice([0.5, 0.8])),
            Policy(url=url, refresh_interval_seconds=7200.0),
            Policy(url=url, fetch_now=True),
            Policy(host=url.split("/")[2], importance_factor=2.0, notify=True, publisher="ada"),
        ]
        if self.removes:
            expires = time_ms + chance.choice([10_000, 10_000_000])
            choices += [
                Policy(url=url, drop=True),
                Policy(url=url, forget=True),
                Policy(url=url, forget=True, expires_at_ms=expires),
                Policy(host=url.split("/")[2], forget=True, expires_at_ms=expires),
            ]
        policy = chance.choice(choices)
        if chance.random() < 0.05:
            self.no_policies.add(self.cluster.topics[POLICIES].append(0, time_ms, b"no policy"))
            return
        if policy.drop or policy.forget:
            site = number % _SITES
            self.touched |= {number} if policy.url else {n for n in range(2 * self.pages) if n % _SITES == site}
        if policy.url and policy.forget and policy.expires_at_ms is None:
            self.forgotten.add(url.encode())
        self.cluster.topics[POLICIES].append(0, time_ms, json.dumps(policy_to_json(policy)).encode())

    # -- events ----------------------------------------------------------------------------------------------------

    def _url(self, number: int, query: str | None = None) -> str:
        www = "www." if number % 3 == 0 else ""
        chosen = ("?s=1" if self.chance.random() < 0.2 else "") if query is None else query
        return f"https://{www}site{number % _SITES}.org/p{number}{chosen}"

    def _send_event(self, time_ms: int) -> None:
        chance, fate = self.chance, self.chance.random()
        partition = chance.randrange(len(self.partitions))
        topic = self.cluster.topics[EVENTS]
        if fate < 0.03:
            nonsense = chance.choice([b"{", b"", None, b'{"url": "mailto:x"}', b"\xc3\x01\0\0\0\0\0\0\0\0"])
            self.partitions[partition].rejects.add(topic.append(partition, time_ms, nonsense))
            return
        event = self._event(fate, time_ms)
        values = to_avro(event)
        value = json_line(event).strip() if chance.random() < 0.5 else self._framer.encode(values)
        topic.append(partition, time_ms, value, event.url.encode(), gap=int(chance.random() < 0.1))
        self._expect(self.partitions[partition], event, self._rules[partition])

    def _event(self, fate: float, time_ms: int) -> CrawlEvent:
        chance, number = self.chance, self.chance.randrange(self.pages)
        url = self._url(number)
        if fate < 0.1:
            return CrawlEvent(url, announce=True)
        if fate < 0.2 and self._visited:
            url, time_ms = chance.choice(self._visited)  # a duplicate, perhaps in another partition
        elif fate < 0.3:
            time_ms -= chance.randint(1, 100) * 1000  # late
        elif fate < 0.33:
            time_ms += _ahead_ms((time_ms - FIRST_MS) // 1000)  # by a clock that is wrong
        number = number_of(url)
        if fate >= 0.33 or fate < 0.3:
            self._visited.append((url, time_ms))
        links = tuple(Link(self._url(to), rel=chance.choice([None, "nofollow"])) for to in self._links[number])
        if chance.random() < 0.1:
            self._links[number] = chance.sample(self._numbers, min(2, self.pages))
        status = chance.choice([500, 404, 304, 403, 429]) if fate > 0.9 else 200
        redirects = tuple(self._url(chance.randrange(self.pages)) for _ in range(chance.randint(1, 2)))
        return CrawlEvent(
            url,
            fetched_at_ms=time_ms,
            status=status,
            redirects=redirects if 0.5 < fate < 0.6 else (),
            canonical=self._url(chance.randrange(self.pages)) if 0.6 < fate < 0.63 else None,
            links=links if fate > 0.4 else None,
            retry_after=60 if status == 429 else None,
            digest=f"{chance.randint(0, 3)}",
        )

    def _expect(self, expected: Expected, event: CrawlEvent, rules: Rules) -> None:
        """A visit counts for the page that answered, and once for each page that redirected to it."""
        ids = self.ids_of((*event.redirects, event.url), rules)
        for url in (event.url, *event.redirects, event.canonical, *(link.url for link in event.links or ())):
            if url is not None:
                (page,) = self.ids_of([url], rules)
                expected.urls[page] = canonical(url, None, rules.urls)
        if not event.announce:
            assert event.fetched_at_ms is not None
            chain = [page for number, page in enumerate(ids) if page not in ids[number + 1 :]]
            expected.visits += [(page, event.fetched_at_ms) for page in chain]

    def ids_of(self, urls: Iterable[str], rules: Rules) -> list[int]:
        """Return the page ids of URLs by these rules."""
        return [rules.page_ids.of(canonical(url, None, rules.urls)) for url in urls]

    # -- counts ----------------------------------------------------------------------------------------------------

    @property
    def urls(self) -> dict[int, bytes]:
        """The URL of every page that the events name."""
        return {page: url for one in self.partitions for page, url in one.urls.items()}

    @property
    def visits(self) -> Counter[tuple[int, int]]:
        """How often each visit (page, time) is in the topic."""
        return Counter(visit for one in self.partitions for visit in one.visits)

    def is_touched(self, page: int) -> bool:
        """Whether policies may have removed a page."""
        return number_of(self.urls[page]) in self.touched
