"""`opicflow show`: the importance, cash and schedule of one page, and why it is where it is."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_json, add_kafka_options, add_state_options, state_of
from opicflow.pipelines.cli.stream_options import add_ledger, add_snapshots
from opicflow.pipelines.cli.streams import ShardOfPage
from opicflow.pipelines.cli.text import counted, print_lines, span
from opicflow.schemas.dates import iso_time
from opicflow.schemas.urls import named_page

if TYPE_CHECKING:
    from opicflow.pipelines.ledger import Ledger
    from opicflow.pipelines.ledger.cash.reader import SeenChanges
    from opicflow.pipelines.replay.answers import Answers
    from opicflow.pipelines.results.reasons import Payer, Reasons
    from opicflow.pipelines.results.record_columns import Pages
    from opicflow.pipelines.stages.publish import PlanFigures

_MOST_SHOWN = 10
_LEAST_SHOWN = 0.0005
"""A smaller part is 0.0 %."""

EXAMPLES = """examples:
  opicflow show https://example.org/ --state state
  opicflow show https://example.org/ --state state --why
  opicflow show https://example.org/ --brokers localhost:9092 --why     a page of a stream, by the log of its shard
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("url", metavar="URL", help="the page; it need not be canonical")
    parser.add_argument(
        "--why",
        action="store_true",
        help="all pages and sites that pay it, how it was found, what its change rate rests on, and why it is ordered",
    )
    add_state_options(parser)
    add_ledger(parser)
    add_snapshots(parser, "of a stream: its logs are whole")
    parser.add_argument(
        "--all-shards",
        action="store_true",
        help="of a stream, with --why: read the logs of all shards, to name the pages of other shards that pay it",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_json(parser)
    add_kafka_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the data of a page in the ledger of a state, or of a shard of a stream."""
    import numpy as np

    from opicflow.pipelines.ledger import Outcome
    from opicflow.pipelines.results.record_columns import importance_columns, pages_of, schedule_columns
    from opicflow.schemas.columns import plain_rows

    wanted = _of_stream(options) if _is_of_stream(options) else _of_state(options)
    answers, url, stream = wanted.answers, wanted.url, wanted.stream
    ranked = _find(map(pages_of, answers.importance), url)
    scheduled = _find(map(pages_of, answers.schedules), url)
    if ranked is None or scheduled is None:
        raise wanted.unknown()
    e = {name: column[0].item() for name, column in ranked.pages.columns.items()}
    schedule = next(plain_rows(schedule_columns(scheduled.pages)))
    rank = 1 + sum(
        int(np.count_nonzero(pages_of(part).columns["importance"] > e["importance"]))
        for part in answers.importance[: ranked.part + 1]
    )
    payers = [] if options.why else _payers(answers.importance, ranked.pages)
    reasons = _reasons(wanted, e["pages"], e["importance"], options.all_shards) if options.why else None
    worth = _worth(scheduled.pages, answers.plan)
    quality = [float(values[0]) for name, values in scheduled.pages.columns.items() if name == "quality"]
    if options.json:
        record = next(plain_rows(importance_columns(ranked.pages)))
        names = ("due", "interval_seconds", "decided_by", "changes_per_day", "changes_known_from", "changes_error")
        rank_name = "rank_in_shard" if stream and stream.shards > 1 else "rank"
        more = {rank_name: rank, **{name: schedule[name] for name in names}, "payers": payers}
        if quality:
            more["quality"] = round(quality[0], 3)
        if reasons is not None:
            more["why"] = reasons.to_json()
        if stream is not None:
            more["log"] = stream.source(options.all_shards)
        print(json.dumps({**record, **more, **({"discovery": worth} if worth else {})}, indent=2))
        return 0
    in_all = ranked.pages.moment["pages"]
    known = counted(in_all, "page")
    if stream is not None and stream.shards > 1:
        known = f"the {counted(stream.ledger.pages, 'page')} of its shard, {in_all:,} in all shards"
    interval = schedule["interval_seconds"]
    rows = [
        ("importance", f"{e['importance']:.9f}  (rank {rank:,} of {known}{_bound(ranked.pages)})"),
        ("score", f"{e['score']:.3f}  (1 = an average page)"),
        *(
            ("quality", f"{value:.3g}  (of 1: it is fetched as if its importance were so many times as large)")
            for value in quality
        ),
        ("trend", f"{e['trend_per_day']:+.3g} a day  (mean of the window: {e['window_importance']:.9f})"),
        ("history", f"{e['rate']:.6g}  ({'measured' if e['measured'] else 'the default: it was not visited twice'})"),
        ("cash", counted(e["cash"], "unit")),
        ("waiting cash", f"{counted(e['waiting'], 'unit')} since its last visit"),
        ("visits", f"{e['visits']:,}"),
        ("last visit", iso_time(e["last_visit_ms"]) if e["last_visit_ms"] else "never, or without a time"),
        ("last outcome", Outcome(e["last_outcome"]).name),
        ("changes", f"{schedule['changes_per_day']:.3g} a day  (known from {schedule['changes_known_from']})"),
        (
            "refresh",
            f"{'not again' if interval is None else f'every {span(interval)}'}  (decided by {schedule['decided_by']})",
        ),
        ("due", iso_time(schedule["due"]) if schedule["due"] else "without a time"),
        *_worth_rows(worth),
        ("error factor", f"{e['error_factor']:.3g}"),
        ("page id", f"{e['pages']:016x}"),
    ]
    if ranked.pages.moment.get("certificate") is not None:  # rates rest on all links, and cash has one account
        rows = [row for row in rows if row[0] not in ("history", "error factor", "cash")]
    print_lines(url.decode(), "")
    for name, value in rows:
        print_lines(f"  {name:14} {value}")
    if payers:
        print("\n  where its importance comes from: the pages that pay it most")
        for payer in payers:
            print_lines(f"  {payer['part']:14.1%} {payer['url']}")
        rest = max(1 - sum(payer["part"] for payer in payers), 0)
        print_lines(f"  {rest:14.1%} other pages, and what all pages receive alike")
    if reasons is not None:
        _print_reasons(reasons, stream, options.all_shards)
    if stream is not None:
        print_lines("", f"  {stream.source_in_words(options.all_shards)}")
    return 0


# -- the page and its ledger -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wanted:
    """A page, and the ledger that has it if any has."""

    url: bytes
    answers: Answers
    ledger: Callable[[], Ledger]
    unknown: Callable[[], InputRefused]
    stream: ShardOfPage | None = None


def _is_of_stream(options: argparse.Namespace) -> bool:
    """Whether the page is one of a stream. The command line counts before the configuration."""
    has_state, has_stream = options.state is not None, bool(options.brokers or options.properties)
    names_state = has_state and "state" not in options.configured
    of_stream = [f"--{name.replace('_', '-')}" for name in ("ledger", "all_shards") if getattr(options, name)]
    of_stream += [f"--{name}" for name in ("brokers", "properties") if _is_named(options, name)]
    if names_state and of_stream:
        raise InputRefused(f"--state, {of_stream[0]}: the page is read from a state or from a stream: name one")
    if options.all_shards and not options.why:
        raise InputRefused("--all-shards: it names the pages that pay a page: give --why too")
    if not of_stream and not has_state and not has_stream:
        raise InputRefused(
            "show: no state and no stream: name a folder with --state DIR, or a stream with --brokers HOST:PORT"
        )
    return bool(of_stream) or (has_stream and not has_state)


def _is_named(options: argparse.Namespace, name: str) -> bool:
    return getattr(options, name) is not None and name not in options.configured


def _of_state(options: argparse.Namespace) -> _Wanted:
    from opicflow.pipelines.replay.answers import read_answers
    from opicflow.pipelines.replay.state import read_ledger

    answers, rules = read_answers(state_of(options))
    url = named_page(options.url, rules.urls)
    unknown = InputRefused(f"{url}: not in the ledger: it was never fetched, linked or announced")
    return _Wanted(url.encode(), answers, lambda: read_ledger(state_of(options))[0], lambda: unknown)


def _of_stream(options: argparse.Namespace) -> _Wanted:
    from opicflow.pipelines.replay.answers import answers_of

    stream = ShardOfPage.read(options)
    return _Wanted(stream.url, answers_of(stream.ledger), lambda: stream.ledger, stream.unknown, stream)


# -- why ---------------------------------------------------------------------------------------------------------------


def _reasons(wanted: _Wanted, page: int, importance: float, all_shards: bool) -> Reasons:
    """Return why a page is where it is, by a plan of its ledger. Its importance is for the ledgers of other shards."""
    from opicflow.pipelines.replay.final_plan import importance_for_plans
    from opicflow.pipelines.results.reasons import reasons_of

    elsewhere: list[Payer] | None = None
    if wanted.stream is not None and all_shards:
        elsewhere = wanted.stream.payers_elsewhere(importance)
    ledger = wanted.ledger()
    of_all = importance_for_plans(ledger)
    return reasons_of(ledger, page, ledger.preview(importance=of_all), of_all, elsewhere)


def _print_reasons(reasons: Reasons, stream: ShardOfPage | None, all_shards: bool) -> None:
    """Print why a page is where it is."""
    print("\n  where its importance comes from")
    if not reasons.payers:
        print_lines(f"    {_why_without_payers(stream, all_shards)}")
    for payer in reasons.payers[:_MOST_SHOWN]:
        print_lines(f"    {payer.part:6.1%}  {payer.name}")
    if more := reasons.payers[_MOST_SHOWN:]:
        print_lines(f"    {sum(payer.part for payer in more):6.1%}  {counted(len(more), 'page')} more")
    if reasons.payers or (stream and stream.shards > 1 and stream.ledger.config.remember_links):
        for part, name in _rest(reasons, all_shards):
            print_lines(f"    {part:6.1%}  {name}")
    if reasons.payers:
        print("\n  of which sites")
    for site in reasons.sites[:_MOST_SHOWN]:
        print_lines(f"    {site.part:6.1%}  {site.name}, {counted(site.pages, 'page')}")
    if more := reasons.sites[_MOST_SHOWN:]:
        print_lines(f"    {sum(site.part for site in more):6.1%}  {counted(len(more), 'more site')}")
    print("\n  how it was found: each page first by a link in the one above it")
    print_lines("    (a seed, a sitemap, or another shard)" if reasons.is_path_whole else "    (further pages)")
    for url in reasons.path:
        print_lines(f"    {url}")
    print("\n  what its change rate rests on")
    for line in _evidence(reasons):
        print_lines(f"    {line}")
    for line in _visits(reasons.changes):
        print_lines(f"    {line}")
    print_lines("", f"  {reasons.order}")


def _why_without_payers(stream: ShardOfPage | None, all_shards: bool) -> str:
    if stream is None or stream.shards == 1:
        return "no page that is known pays it along a link; or links are not remembered (--remember-links)"
    if not stream.ledger.config.remember_links:
        return "not known: the stream does not remember links (--history certified, --remember-links)"
    return f"no page of {'any' if all_shards else 'its'} shard pays it along a link"


def _rest(reasons: Reasons, all_shards: bool) -> list[tuple[float, str]]:
    """Return the parts that no payer explains, in words. Nothing is added to a part that it may not belong to."""
    alike, elsewhere = "what all pages receive alike", "pages of other shards, which transfers do not name"
    advice = "" if all_shards else " (--all-shards finds them)"
    if reasons.alike is None:
        rest = max(1 - sum(payer.part for payer in reasons.payers), 0)
        return [(rest, f"{elsewhere}{advice}, and {alike}")]
    rows = [(reasons.alike, alike)]
    if reasons.unnamed and reasons.unnamed >= _LEAST_SHOWN:
        rows.insert(
            0,
            (
                reasons.unnamed,
                "on its way between shards, or counted at another time" if all_shards else elsewhere + advice,
            ),
        )
    return rows


def _evidence(reasons: Reasons) -> list[str]:
    """Return what a change rate rests on, in sentences."""
    seen = reasons.changes
    if reasons.rate_from == "POLICY":
        return ["a policy sets it"]
    if seen.intervals == 0:
        return ["not on the page itself, which has no two visits, but on similar pages"]
    lines = [f"{counted(seen.intervals, 'interval')} between visits: it had changed in {seen.changed}"]
    if seen.returned:
        lines.append(f"{counted(seen.returned, 'time')} an earlier content had come back")
    if seen.dated:
        believed = "believed" if seen.are_dates_believed else "not believed: visits have found them wrong"
        lines.append(f"dates of its server for {counted(seen.dated, 'interval')}, {believed}")
    lines.append(f"a rate {math.exp(min(reasons.rate_error, 9)):.2g} times as high or as low is plausible")
    return lines


def _visits(seen: SeenChanges) -> list[str]:
    """Return what else its visits have shown, in sentences."""
    lines = []
    if seen.failures:
        visits = "the last visit" if seen.failures == 1 else f"the last {seen.failures} visits"
        last = f"; last answer at {iso_time(seen.answered_ms)}" if seen.answered_ms else ""
        lines.append(f"{visits} failed, or found it gone{last}")
    if seen.modified_ms:
        lines.append(f"its server reported a change at {iso_time(seen.modified_ms)}")
    return lines


def _worth(page: Pages, plan: PlanFigures) -> dict[str, float]:
    """Return why an unread page comes sooner or later than by its importance; empty for others."""
    from opicflow.pipelines.ledger.plan.survey import DISCOVERY

    learnt = plan.get("discovery")
    if learnt is None or "siblings" not in page.columns or int(page.columns["decided_by"][0]) != DISCOVERY:
        return {}
    siblings, unread = (float(page.columns[name][0]) for name in ("siblings", "host_unread"))
    rise = learnt["siblings_weight"] * siblings
    return {
        "worth": math.exp(rise),
        "siblings": math.exp(siblings),
        "siblings_weight": learnt["siblings_weight"],
        "host_unread": unread,
        "may_explore": bool(page.columns["may_explore"][0]),
        "worth_to_explore": math.exp(rise + learnt["exploring_bonus"] * unread),
    }


def _worth_rows(worth: dict[str, float]) -> list[tuple[str, str]]:
    """Return the same in words."""
    if not worth:
        return []
    rows = [
        (
            "worth",
            f"{worth['worth']:.3g} times its importance  (its siblings have {worth['siblings']:.3g} times as much; "
            f"their weight is {worth['siblings_weight']:.2f})",
        )
    ]
    if worth["may_explore"]:
        share = f"{worth['host_unread']:.0%} of the other pages of its host were not read"
        rows.append(("to explore", f"{worth['worth_to_explore']:.3g} times its importance  ({share})"))
    return rows


def _bound(page: Pages) -> str:
    """Return the bound of the error of all importance, in words."""
    certificate = page.moment.get("certificate")
    return "" if certificate is None else f"; certified: all errors together are at most {certificate:.2g}"


class _Payer(TypedDict):
    url: str
    part: float


def _payers(parts: Sequence[bytes], page: Pages) -> list[_Payer]:
    """Return the pages that pay a page most, where links are remembered."""
    import numpy as np

    from opicflow.pipelines.results.record_columns import pages_of

    numbers = range(len([name for name in page.columns if name.startswith("payer_part_")]))
    paid = {int(page.columns[f"payer_{i}"][0]): float(page.columns[f"payer_part_{i}"][0]) for i in numbers}
    paid = {payer: part for payer, part in paid.items() if part > 0}
    urls: dict[int, str] = {}
    for part in parts if paid else ():
        pages = pages_of(part)
        found = pages.rows(np.flatnonzero(np.isin(pages.columns["pages"], np.array(list(paid), np.uint64))))
        urls |= dict(zip(found.columns["pages"].tolist(), found.urls, strict=True))
    return [
        {"url": urls.get(payer, f"page {payer:016x}"), "part": round(part, 6)}
        for payer, part in sorted(paid.items(), key=lambda one: (-one[1], one[0]))
    ]


class _Found(NamedTuple):
    part: int
    pages: Pages


def _find(parts: Iterable[Pages], url: bytes) -> _Found | None:
    """Return the part that has the page with a URL, and the row of the page alone."""
    import numpy as np

    wanted = np.frombuffer(url, np.uint8)
    for number, pages in enumerate(parts):
        texts = pages.texts
        rows = np.flatnonzero(texts.lengths == len(url))
        same = (texts.text[texts.starts[rows][:, None] + np.arange(len(url))] == wanted).all(axis=1)
        if same.any():
            return _Found(number, pages.rows(rows[same]))
    return None
