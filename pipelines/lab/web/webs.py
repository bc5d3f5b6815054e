"""Synthetic webs from a seed: the same seed gives the same bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ranks.graph.csr import MOST_LINK_WEIGHT, ORDINARY_LINK_WEIGHT, Graph
from opicflow.schemas.arrays import Floats, Hashes, Int, Ints, Word
from opicflow.schemas.kernel import kernel

Int32s = npt.NDArray[np.int32]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The increment of splitmix64's state; `mix` turns the state into the random number."""
_HALF = np.uint64(32)

_HOST_SIZES_FALL = 1 / 1.1
"""The r-th largest host has about r ** -this of the largest one's pages: sizes n have frequency n ** -2.1."""
_PAGES_PER_HOST = 50
_FRONT_SHARE = 0.25
_KNOWN_AT_FIRST = 64
_TRIES = 16
_MOST_CHOICES = 1 << 32

_MOST_NAME = 8192
_MOST_EDGES = 1 << 30


def power_law_web(
    pages: int, seed: int, mean_links: float = 10.0, exponent: float = 2.1, dangling: float = 0.0
) -> Graph:
    """Return a web whose in-degrees follow a power law (paper 002, section 4.2). All links are ordinary.

    - `P(I = n)` is proportional to `n ** -exponent` for every in-degree n above a smallest one, up to the number of
      pages that could link. The smallest in-degree has fewer pages than the law (or, if it is 0, as many as needed),
      such that the mean is `mean_links` links a page. Without this, the law from 1 on has 4.8 links a page for 100,000
      pages, and more for larger webs.
    - In-degrees are quantiles of the law at evenly spaced points with one random offset: every in-degree has as many
      pages as in the law, to one page. So webs of different seeds differ in who links to whom, and little in shape. The
      in-degrees of the few most linked pages do differ, and with them the number of links: by 4 % for 100,000 pages and
      10 links, by a third for 1.5 links.
    - The sources of a page are distinct, never the page itself, and otherwise uniform. A page with links has at least
      one, so its out-degree is 1 plus about a Poisson number. In-degree and out-degree are independent.
    - `dangling` is the share of pages without links, exact to one page; these pages are random.

    In so heavy a law the most linked page is linked by a large part of all pages (for 100,000 pages and 10 links, by a
    third to two thirds): that is the law, not the construction.

    Raises ValueError, with a message of one line: for fewer than 2 pages that link (unless none does), fewer links than
    pages that need one, or more links than pairs of pages.
    """
    if not 0.0 < exponent <= 10.0:
        raise ValueError(f"exponent must be above 0 and at most 10, not {exponent}")
    linking = _linking(pages, mean_links, dangling)
    random = np.random.Generator(np.random.PCG64(seed))
    if linking == 0:
        return _without_links(pages)
    return _linked(_power_law(pages, linking - 1, mean_links, exponent, random.random()), linking, random)


def poisson_web(pages: int, seed: int, mean_links: float = 10.0, dangling: float = 0.0) -> Graph:
    """Return a web whose in-degrees follow Poisson's law with mean `mean_links` (paper 002, section 4.2).

    - In-degrees are quantiles at evenly spaced points with one random offset, as in `power_law_web`. The law ends at
      the
      number of pages that could link, so a mean close to that number is not quite reached.
    - Sources, out-degrees, `dangling` and errors are those of `power_law_web`. All links are ordinary.
    """
    linking = _linking(pages, mean_links, dangling)
    random = np.random.Generator(np.random.PCG64(seed))
    if linking == 0:
        return _without_links(pages)
    return _linked(_points(_poisson_law(linking - 1, mean_links), pages, random.random()), linking, random)


@dataclass(frozen=True, eq=False)
class HostedWeb:
    """A web on hosts. Page i is page `number[i]` of host `host[i]`; number 0 is the front page.

    The pages of a host are consecutive, so both ascend: `host` over all pages, `number` within a host. `topic[i]` is
    the topic of page i and of its host.
    """

    graph: Graph
    host: Int32s
    number: Int32s
    topic: Int32s


def hosted_web(
    pages: int,
    seed: int,
    hosts: int | None = None,
    mean_links: float = 10.0,
    internal: float = 0.8,
    dangling: float = 0.1,
    topics: int = 1,
    topical: float = 0.8,
) -> HostedWeb:
    """Return a web of hosts, most of whose links stay on their host. All links are ordinary.

    - The sizes of hosts follow a power law: the r-th largest host has about `r ** (-1 / 1.1)` of the largest one's
      pages,
      and at least one page. Sizes are assigned to hosts at random. By default there is one host for 50 pages.
    - `dangling` is the share of pages without links, exact to one page; these pages are random. The others have one
      link
      and a Poisson number more, `mean_links` links a page in the mean, as far as there are pages to link to.
    - The links of a page are distinct and never to itself. Each is internal with probability `internal`; one that finds
      no page left on its host is external, so small hosts have more external links.
    - An internal link leads to the front page with probability 1/4, otherwise to any page of the host.
    - Pages with links get them in random order. Meanwhile pages become known evenly, from 64 on, in another random
      order.
      The target of an external link is a known page, chosen with probability proportional to 1 + its external links so
      far, except pages of the same host and those linked already. So with m external links a page, about
      `n ** -(2 + 1 / m)` of the pages have n, independent of their number on the host.
    - Every host has one of `topics` topics, assigned at random and evenly. With more than one topic, the target of an
      external link is chosen with probability `topical` among known pages of the same topic, by the same preference,
      and otherwise as above, so it may have that topic by chance. If no known page of the topic is left, the target is
      chosen as above too.

    Raises ValueError, with a message of one line, for arguments out of range.
    """
    count = max(2, pages // _PAGES_PER_HOST) if hosts is None else hosts
    _check_web(pages, dangling)
    if not 2 <= count <= pages:
        raise ValueError(f"hosts must be from 2 to {pages}, the number of pages, not {count}")
    if not 0.0 <= internal <= 1.0:
        raise ValueError(f"internal must be a share from 0 to 1, not {internal}")
    if not 1 <= topics <= count:
        raise ValueError(f"topics must be from 1 to {count}, the number of hosts, not {topics}")
    if not 0.0 <= topical <= 1.0:
        raise ValueError(f"topical must be a share from 0 to 1, not {topical}")
    linking = pages - round(dangling * pages)
    if linking and not linking / pages <= mean_links <= (pages - 1) * (linking / pages):
        raise ValueError(
            f"mean_links must be from {linking / pages:g} to {(pages - 1) * (linking / pages):g} "
            f"where {linking} of {pages} pages link, not {mean_links}"
        )
    if pages + mean_links * pages > _MOST_CHOICES:
        raise ValueError(f"mean_links {mean_links} is too much for {pages} pages: they make more than 2**32 links")
    random = np.random.Generator(np.random.PCG64(seed))
    shares = np.cumsum(np.arange(1.0, count + 1) ** -_HOST_SIZES_FALL)
    sizes = 1 + np.diff(np.floor(shares * ((pages - count) / shares[-1]) + 0.5).astype(np.int64), prepend=0)
    sizes[0] += pages - int(sizes.sum())  # corrects rounding
    host_starts = np.concatenate(([0], np.cumsum(random.permutation(sizes))))
    host = np.repeat(np.arange(count, dtype=np.int32), np.diff(host_starts))
    number = (np.arange(pages) - host_starts[host]).astype(np.int32)
    if linking == 0:
        return HostedWeb(_without_links(pages), host, number, _topics(count, topics, random)[host])
    more = _poisson_law(pages - 2, mean_links * pages / linking - 1)
    numbers = random.permutation(np.arange(pages, dtype=np.int32))
    degrees = np.zeros(pages, np.int64)
    degrees[numbers[:linking]] = 1 + random.permutation(_points(more, linking, random.random()))
    starts = np.concatenate(([0], np.cumsum(degrees)))
    known = random.permutation(np.arange(pages, dtype=np.int32))
    state = np.uint64(random.bit_generator.random_raw())
    topic = _topics(count, topics, random)[host]
    targets = _choose_targets(
        starts, numbers[:linking], known, host, host_starts, topic, internal, topical if topics > 1 else 0.0, state
    )
    graph = Graph(starts, targets, np.full(len(targets), ORDINARY_LINK_WEIGHT, np.int64))
    return HostedWeb(graph, host, number, topic)


@dataclass(frozen=True, eq=False)
class NamedWeb:
    """A web whose pages have names: page i has `names[i]`."""

    graph: Graph
    names: tuple[str, ...]


def web_of_edges(edges: Iterable[tuple[int, Sequence[Any]]], most_edges: int = _MOST_EDGES) -> NamedWeb:
    """Return the web of edges, [page], [page, target] or [page, target, weight], by the ledger's rules for links.

    Each comes with the number of its line. Names have at most 8192 characters, and are numbered in the order of their
    first use. A weight is a multiple of an ordinary link. Raises ValueError, with the number of the line, for all else.
    """
    numbers: dict[str, int] = {}
    sources, targets, weights = array("q"), array("q"), array("q")
    for at, (*names, weight) in ((at, edge if len(edge) == 3 else (*edge, 1.0)) for at, edge in edges):
        if max(map(len, names)) > _MOST_NAME:
            raise ValueError(f"line {at} has a name of more than {_MOST_NAME} characters")
        most = MOST_LINK_WEIGHT / ORDINARY_LINK_WEIGHT
        if not 0.0 <= weight <= most:
            raise ValueError(f"line {at}: the weight {weight} is not a number from 0 to {most:.0f}")
        page, *link = [numbers.setdefault(name, len(numbers)) for name in names]
        if link:
            if len(sources) == most_edges:
                raise ValueError(f"line {at}: there are more than {most_edges} links")
            sources.append(page)
            targets.append(link[0])
            weights.append(round(weight * ORDINARY_LINK_WEIGHT))
    if not numbers:
        raise ValueError("there is no page in it")
    if len(numbers) >= 2**31:
        raise ValueError(f"there are {len(numbers)} pages, more than {2**31 - 1}")
    columns = (np.array(column, np.int64) for column in (sources, targets, weights))
    return NamedWeb(Graph.from_links(len(numbers), *columns), tuple(numbers))


def page_ids(pages: int, seed: int) -> Hashes:
    """Page ids for pages 0 … n-1: distinct for sure, and spread over all 64 bits like the hashes of URLs.

    The ids of a smaller web are the first of a larger one of the same seed, so a web can grow.
    """
    key = np.uint64(np.random.PCG64(seed).random_raw())
    return _mixed(key, pages)


def _power_law(pages: int, most: int, mean: float, exponent: float, offset: float) -> Ints:
    """Return in-degrees from 0 to `most`, ascending: the quantiles (i + offset) / pages of `power_law_web`'s law."""
    degrees = np.arange(most + 1, dtype=np.float64)
    law = np.zeros(most + 1)
    law[1:] = degrees[1:] ** -exponent
    # The law from n on has the mass from_on[n] and the mean moments[n] / from_on[n], which rises with n.
    from_on = np.cumsum(law[::-1])[::-1]
    moments = np.cumsum((law * degrees)[::-1])[::-1]
    least = int(np.searchsorted(moments[1:] / from_on[1:], mean, side="right"))
    if least == 0:
        law[0] = moments[1] / mean - from_on[1]
    elif least < most:
        law[least] = max(0.0, moments[least + 1] - mean * from_on[least + 1]) / (mean - least)
    law[:least] = 0.0
    return _points(law, pages, offset)


def _poisson_law(most: int, mean: float) -> Floats:
    """Return Poisson's law of this mean, in any unit, for numbers from 0 to `most`, or until it is about 0."""
    numbers = np.arange(min(most, int(mean + 12 * mean**0.5 + 40)) + 1, dtype=np.float64)
    if mean == 0.0:
        return np.where(numbers == 0, 1.0, 0.0)
    log_factorials = np.cumsum(np.log(np.maximum(numbers, 1.0)))
    logs = numbers * np.log(mean) - log_factorials
    law: Floats = np.exp(logs - logs.max())
    return law


def _points(law: Floats, count: int, offset: float) -> Ints:
    """Return `count` numbers, ascending: the quantiles (i + offset) / count of a law over 0, 1, 2, … in any unit."""
    cumulated = np.cumsum(law)
    up_to = np.ceil(cumulated * (count / cumulated[-1]) - offset).clip(0, count).astype(np.int64)
    up_to[-1] = count  # corrects rounding
    return np.repeat(np.arange(len(law), dtype=np.int64), np.diff(up_to, prepend=0))


def _check_web(pages: int, dangling: float) -> None:
    if not 2 <= pages < 2**31:
        raise ValueError(f"a web needs from 2 to {2**31 - 1} pages, not {pages}")
    if not 0.0 <= dangling <= 1.0:
        raise ValueError(f"dangling must be a share from 0 to 1, not {dangling}")


def _linking(pages: int, mean_links: float, dangling: float) -> int:
    """Return the number of pages with links; raise ValueError if they are too few or too many for the links."""
    _check_web(pages, dangling)
    linking = pages - round(dangling * pages)
    if linking == 1:
        raise ValueError(f"dangling {dangling} leaves one of {pages} pages that links: it needs another one")
    if linking and not linking / pages <= mean_links <= linking - 1:
        raise ValueError(
            f"mean_links must be from {linking / pages:g} to {linking - 1} "
            f"where {linking} of {pages} pages link, not {mean_links}"
        )
    return linking


def _topics(hosts: int, topics: int, random: np.random.Generator) -> Int32s:
    """Return the topic of each host."""
    return random.permutation(np.arange(hosts, dtype=np.int32) % topics).astype(np.int32)


def _without_links(pages: int) -> Graph:
    return Graph(np.zeros(pages + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))


def _linked(degrees: Ints, linking: int, random: np.random.Generator) -> Graph:
    """Return a web with the given in-degrees, which ascend and are below `linking`, and random pages and sources."""
    pages = len(degrees)
    # The sum may be below the law's mean. In-degrees ascend, so the first ones, all 0, make up for it.
    degrees[: max(0, linking - int(degrees.sum()))] = 1
    degrees = random.permutation(degrees)
    linkers = random.permutation(np.arange(pages, dtype=np.int32))[:linking]

    # Every page with links gets one link for certain; `linkers` is in random order already.
    starts = np.concatenate(([0], np.cumsum(degrees)))
    sure = np.sort(random.choice(int(starts[-1]), linking, replace=False, shuffle=False))
    ends = np.searchsorted(starts, sure, side="right") - 1
    firsts = linkers.copy()
    # A link to oneself is exchanged with a link to another page. There always is one, because every in-degree is below
    # the number of pages with links. A web of any size has about one link to oneself, so this loop is short.
    for row in np.flatnonzero(firsts == ends):
        if firsts[row] == ends[row]:
            other = int(np.argmax(ends != ends[row]))
            firsts[row], firsts[other] = firsts[other], firsts[row]
    sources = _choose_sources(starts, linkers, sure, firsts, np.uint64(random.bit_generator.random_raw()))
    return Graph(starts, sources, np.full(len(sources), ORDINARY_LINK_WEIGHT, np.int64)).transposed()


@kernel
def mix(state: Word) -> Word:
    """The output function of splitmix64: a bijection of 64 bits."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@kernel
def _mixed(key: Word, count: int) -> Hashes:
    """Return the first random numbers of splitmix64 after a state."""
    numbers = np.empty(count, np.uint64)
    for i in range(count):
        key += GOLDEN
        numbers[i] = mix(key)
    return numbers


@kernel
def _choose_sources(starts: Ints, linkers: Int32s, sure: Ints, firsts: Int32s, state: Word) -> Int32s:
    """Return a source for every link, grouped by target: `firsts` at the ascending rows `sure`, elsewhere uniform ones.

    The sources of a target are distinct and not the target itself. There must be enough sources, and `firsts` must keep
    these rules.
    """
    pages = starts.shape[0] - 1
    count = np.uint64(linkers.shape[0])
    sources = np.empty(starts[pages], np.int32)
    chosen_for = np.full(pages, -1, np.int32)
    begin = 0
    for target in range(pages):
        chosen_for[target] = target
        end = begin
        while end < sure.shape[0] and sure[end] < starts[target + 1]:
            chosen_for[firsts[end]] = target
            end += 1
        for link in range(starts[target], starts[target + 1]):
            if begin < end and sure[begin] == link:
                sources[link] = firsts[begin]
                begin += 1
                continue
            while True:
                state += GOLDEN
                source = linkers[((mix(state) >> _HALF) * count) >> _HALF]
                if chosen_for[source] != target:
                    break
            chosen_for[source] = target
            sources[link] = source
    return sources


@kernel
def _choose_targets(
    starts: Ints,
    linkers: Int32s,
    known: Int32s,
    host: Int32s,
    host_starts: Ints,
    topic: Int32s,
    internal: float,
    topical: float,
    state: Word,
) -> Int32s:
    """Return targets for the links of every page, ascending within a page, by the rules of `hosted_web`.

    No page has more links than there are other pages. A link that finds no target in a few random tries gets the first
    possible one after the last try.
    """
    pages = np.int64(host.shape[0])
    targets = np.empty(starts[pages], np.int32)
    external = np.empty(starts[pages], np.int32)
    externals = np.int64(0)
    linked_by = np.full(pages, -1, np.int32)
    # The same by topic, if there are several: its pages in the order in which they become known, how many are known,
    # and the external links to them, in a buffer of its own that is replaced by one twice as large when it is full.
    sizes = np.bincount(topic) if topical > 0.0 else np.zeros(1, np.int64)
    topic_starts = np.zeros(sizes.shape[0] + 1, np.int64)
    topic_starts[1:] = np.cumsum(sizes)
    topic_pool, topic_externals, rooms = np.zeros_like(sizes), np.zeros_like(sizes), np.zeros_like(sizes)
    room_starts = np.zeros_like(sizes)
    topic_known = np.empty(topic_starts[-1], np.int32)
    topic_external = np.empty(4 * starts[pages] + sizes.shape[0] if topical > 0.0 else 0, np.int32)
    taken, listed = np.int64(0), np.int64(0)
    for turn in range(linkers.shape[0]):
        source = linkers[turn]
        first, after = host_starts[host[source]], host_starts[host[source] + 1]
        inside, outside = after - first - 1, pages - (after - first)
        pool = max(min(pages, np.int64(_KNOWN_AT_FIRST)), pages * (turn + 1) // linkers.shape[0])
        subject, akin = np.int64(0), np.int64(0)
        if topical > 0.0:
            subject = np.int64(topic[source])
            akin = sizes[subject] - (after - first)
            while listed < pool:
                about = topic[known[listed]]
                topic_known[topic_starts[about] + topic_pool[about]] = known[listed]
                topic_pool[about] += 1
                listed += 1
        linked_by[source] = source
        begin, end = starts[source], starts[source + 1]
        for link in range(begin, end):
            state += GOLDEN
            stays = np.float64(mix(state) >> np.uint64(11)) * 2.0**-53 < internal
            stays = inside > 0 if outside == 0 else stays and inside > 0
            among_akin: bool | np.bool_ = False
            if topical > 0.0 and not stays:
                state += GOLDEN
                among_akin = np.float64(mix(state) >> np.uint64(11)) * 2.0**-53 < topical
                among_akin = among_akin and akin > 0 and topic_pool[subject] > 0
            target = np.int64(-1)
            for _ in range(_TRIES):
                state += GOLDEN
                chance = mix(state)
                if stays:
                    target = first
                    if chance & np.uint64(0xFFFF) >= np.uint64(_FRONT_SHARE * 0x10000):
                        target += _below(chance, after - first)
                elif among_akin:
                    drawn, there = _below(chance, topic_pool[subject] + topic_externals[subject]), topic_pool[subject]
                    if drawn < there:
                        target = np.int64(topic_known[topic_starts[subject] + drawn])
                    else:
                        target = np.int64(topic_external[room_starts[subject] + drawn - there])
                else:
                    drawn = _below(chance, pool + externals)
                    target = np.int64(known[drawn] if drawn < pool else external[drawn - pool])
                if linked_by[target] != source and (first <= target < after) == stays:
                    break
            while (
                linked_by[target] == source
                or (first <= target < after) != stays
                or (among_akin and topic[target] != subject)
            ):
                target += 1
                if stays:
                    target = first if target == after else target
                else:
                    target = after if first <= target < after else target
                    if target == pages:
                        target = np.int64(0) if first > 0 else after
            if stays:
                inside -= 1
            else:
                outside -= 1
                external[externals] = target
                externals += 1
                if topical > 0.0:
                    about = np.int64(topic[target])
                    akin -= about == subject
                    if topic_externals[about] == rooms[about]:
                        moved = taken
                        taken += max(np.int64(1), 2 * rooms[about])
                        for at in range(rooms[about]):
                            topic_external[moved + at] = topic_external[room_starts[about] + at]
                        room_starts[about], rooms[about] = moved, taken - moved
                    topic_external[room_starts[about] + topic_externals[about]] = target
                    topic_externals[about] += 1
            linked_by[target] = source
            at = link
            while at > begin and targets[at - 1] > target:
                targets[at] = targets[at - 1]
                at -= 1
            targets[at] = target
    return targets


@kernel
def _below(chance: Word, count: Int) -> np.int64:
    """Return a number from 0 to `count` - 1 from the upper half of a random number; `count` has 32 bits."""
    return np.int64(((chance >> _HALF) * np.uint64(count)) >> _HALF)
