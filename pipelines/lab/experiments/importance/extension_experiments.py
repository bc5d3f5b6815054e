"""Experiments beyond the papers: webs that grow, links that move, unreadable pages, published figures."""

from __future__ import annotations

from collections.abc import Sequence

from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.importance.convergence import CERTIFIED
from opicflow.pipelines.lab.experiments.importance.extensions import (
    DAYS_OF_TRENDS,
    HISTORIES,
    ROUNDS_OF_MOVED,
    UNREADABLE,
    growing,
    moved,
    stated,
    trends,
    trouble,
)
from opicflow.pipelines.lab.experiments.importance.judging import (
    ALL_AND_TOP,
    CERTIFIED_PAGE,
    about_equal,
    certificate_claim,
    proven,
)
from opicflow.pipelines.lab.experiments.importance.updates import DISTANCES, SHARES, SINGLE_SHARES, updated
from opicflow.pipelines.lab.experiments.importance.windows import CERTIFIED_ALONE
from opicflow.pipelines.lab.experiments.tables import (
    Rows,
    distinct,
    each,
    lines_by,
    mean,
    means,
    pair,
    short,
    where,
)
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask, grid


def _growing_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        task
        for seed in seeds
        for history in HISTORIES
        for task in grid(
            growing,
            pages=pages,
            seed=seed,
            history=history,
            newcomers=(False,) if history in ("all", CERTIFIED, CERTIFIED_ALONE) else (True, False),
        )
    ]


def _growing_tables(rows: Rows) -> list[ResultTable]:
    times = distinct(rows, "crawls")
    cells = [*each("crawls", times, pair("known", "unread")), *each("crawls", times, proven)]
    lines = [
        (history, "-" if str(history).startswith(CERTIFIED) else "yes" if newcomers else "no", *texts)
        for history, newcomers, *texts in lines_by(rows, ("history", "newcomers"), cells)
    ]
    moments = [f"{float(t):g}N" for t in times]
    heads = ("history", "newcomers' history", *moments, *(f"certificate / distance, {moment}" for moment in moments))
    title = (
        "Mean relative error against the whole web of that moment, in per cent, all pages known / those not read "
        "yet; of the graph seen: the certificate / the true distance, in per cent"
    )
    return [ResultTable(title, heads, lines)]


def _moved_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return grid(moved, pages=pages, seed=seeds, order=("cycle", "greedy"), history=("default", CERTIFIED))


def _moved_tables(rows: Rows) -> list[ResultTable]:
    times = [f"{rounds:g}N" for rounds in ROUNDS_OF_MOVED]
    proofs = lines_by(where(rows, history=CERTIFIED), ("order",), each("rounds", ROUNDS_OF_MOVED, proven))
    return [
        ResultTable(
            "Mean relative error in per cent, all pages / most important tenth, so many visits after the move",
            ("order", "history", *times),
            lines_by(rows, ("order", "history"), each("rounds", ROUNDS_OF_MOVED, ALL_AND_TOP)),
        ),
        ResultTable("Certified: certificate / true distance, in per cent", ("order", *times), proofs),
    ]


def _trouble_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of(
            trouble,
            pages=pages,
            seed=seed,
            order=order,
            unreadable=unreadable,
            unchanged=unchanged,
            history=history,
            remember=remember,
        )
        for seed in seeds
        for order in ("greedy", "cycle", "random")
        for unreadable in (0.0, UNREADABLE)
        for unchanged in (0.0, 0.8)
        for history, remember in (("default", False), ("default", True), (CERTIFIED, True))
    ]


def _trouble_tables(rows: Rows) -> list[ResultTable]:
    crawls = distinct(rows, "crawls")
    columns = ("unreadable", "unchanged", "order", "history", "remember")
    cells = [
        *each("crawls", crawls, ALL_AND_TOP),
        *each("crawls", (20,), pair("whole", "whole_top"), proven, *means("idle_cash")),
    ]
    by_case = sorted(rows, key=lambda row: (float(row["unreadable"]), float(row["unchanged"])))
    lines = []
    for unreadable, unchanged, order, history, remember, *texts in lines_by(by_case, columns, cells):
        *errors, whole, certificate, idle = texts
        case = (_per_cent(unreadable), _per_cent(unchanged), order, history, "yes" if remember else "no")
        lines.append((*case, *errors, whole if unreadable else "-", certificate, idle))
    heads = ("never read", "not modified", "order", "history", "links remembered", *(f"{k}N" for k in crawls))
    after = ("20N, against the whole web", "certificate / distance after 20N, %", "cash idle after 20N, %")
    title = "Mean relative error against the graph seen, in per cent, all pages / most important tenth"
    return [ResultTable(title, (*heads, *after), lines)]


def _per_cent(share: object) -> str:
    return f"{float(str(share)) * 100:g} %"


def _stated_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return grid(stated, pages=pages, seed=seeds, order=("greedy", "cycle"), history=("default", CERTIFIED))


def _stated_tables(rows: Rows) -> list[ResultTable]:
    columns = {
        "error": "error %",
        "error_factor": "error factor %",
        "factor_rank": "rank correlation of both",
        "within_factor": "off by no more than it %",
        "certificate": "certificate %",
        "trend_rank": "trend: rank correlation",
        "trend_sign": "right sign %",
        "seen": "of the move, a day",
    }
    by = ("order", "history", "day")
    return [ResultTable("The web changes on day 10", (*by, *columns.values()), lines_by(rows, by, means(*columns)))]


def _trends_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return grid(trends, pages=pages, seed=seeds, web=("changing", "growing"), order=("cycle", "greedy", "random"))


def _updates_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return grid(updated, pages=pages, seed=seeds, share=SHARES)


def _updates_tables(rows: Rows) -> list[ResultTable]:
    return [
        ResultTable(
            f"{float(share):.2%} of the pages changed: scans until the ranks are within a distance",
            ("method", *(f"{distance:g}" for distance in DISTANCES)),
            lines_by(where(rows, share=share), ("method",), each("distance", DISTANCES, *means("scans"))),
        )
        for share in distinct(rows, "share")
    ]


def of_updates(rows: Rows) -> list[Claim]:
    """Return claims about updates of ranks."""
    single = [f"aggregation, {one:.0%} single" for one in SINGLE_SHARES]

    def scans(method: str, share: float, distance: float) -> float:
        return mean(rows, "scans", method=method, share=share, distance=distance)

    def compared(share: float, distance: float) -> str:
        best = min(scans(one, share, distance) for one in single)
        warm, certified = (scans(one, share, distance) for one in ("warm start", CERTIFIED))
        return f"{share:.2%}, {distance:g}: warm {short(warm)}, aggregation {short(best)}, certified {short(certified)}"

    at = [(SHARES[0], 1e-3), (SHARES[0], 1e-4), (SHARES[1], 1e-4)]
    measured = "; ".join(compared(*one) for one in at)
    best_of = {one: min(scans(method, *one) for method in single) for one in at}
    return [
        Claim(
            "Aggregation updates ranks five to ten times as fast as computing them again.",
            "paper 004, 8",
            "; ".join(
                f"{share:.2%}, {distance:g}: {short(scans('all again', share, distance) / best)} times"
                for (share, distance), best in best_of.items()
            ),
            all(scans("all again", *one) >= 5 * best_of[one] for one in at),
            "Langville and Meyer",
        ),
        Claim(
            "Aggregation needs fewer visits of links than a warm start.",
            "Langville and Meyer",
            measured,
            all(best_of[one] < scans("warm start", *one) for one in at),
            "Langville and Meyer",
        ),
        Claim(
            "Certified needs the fewest visits of links of all.",
            CERTIFIED_PAGE,
            measured,
            all(scans(CERTIFIED, *one) < min(best_of[one], scans("warm start", *one)) for one in at),
        ),
    ]


def _trends_tables(rows: Rows) -> list[ResultTable]:
    still, later = (2, 3, 5), (8, 12, 16, DAYS_OF_TRENDS)
    heads = ("order", *(f"steepness, day {day}" for day in still), *(f"day {day}" for day in later))
    cells = [*each("day", still, *means("steepest")), *each("day", later, _rose)]
    words = "steepness while nothing changes; precision (of all pages that rose) / recall, in %"
    return [
        ResultTable(f"On the {web} web: {words}", heads, lines_by(where(rows, web=web), ("order",), cells))
        for web in distinct(rows, "web")
    ]


def _rose(rows: Rows) -> str:
    return f"{short(mean(rows, 'precision'))} ({short(mean(rows, 'rose'))}) / {short(mean(rows, 'recall'))}"


def of_growing(rows: Rows) -> list[Claim]:
    """Return claims about the history that newcomers start with."""

    def unread(newcomers: int, crawls: float) -> float:
        return mean(rows, "unread", history="default", newcomers=newcomers, crawls=crawls)

    def known(history: str, newcomers: int, crawls: float) -> float:
        return mean(rows, "known", history=history, newcomers=newcomers, crawls=crawls)

    every = sorted({float(row["crawls"]) for row in rows})
    times = every[:2]
    return [
        Claim(
            "A default history that corresponds to the importance of recently introduced pages is a good estimate.",
            "paper 002, 3.3",
            "pages not read yet, with it and without: "
            + "; ".join(f"after {t:g}N {short(unread(1, t))} and {short(unread(0, t))} %" for t in times),
            all(unread(1, t) < 0.8 * unread(0, t) for t in times),
        ),
        Claim(
            "On a web that grows, certified is nearer to all known pages than the default.",
            CERTIFIED_PAGE,
            "; ".join(
                f"after {t:g}N {short(known(CERTIFIED, 0, t))} and {short(known('default', 1, t))} %" for t in every
            ),
            all(known(CERTIFIED, 0, t) < known("default", 1, t) for t in every),
        ),
        certificate_claim(rows),
    ]


def of_moved(rows: Rows) -> list[Claim]:
    """Return claims about links that move."""

    def error(order: str, history: str, rounds: float) -> float:
        return mean(rows, "everywhere", order=order, history=history, rounds=rounds)

    return [
        Claim(
            "Certified: one round in cycle order after a tenth of the links moved, the mean error is at most 0.2 %.",
            CERTIFIED_PAGE,
            f"cycle {short(error('cycle', CERTIFIED, 1.0))} %, default {short(error('cycle', 'default', 1.0))} %; "
            f"greedy {short(error('greedy', CERTIFIED, 1.0))} %, default {short(error('greedy', 'default', 1.0))} %",
            error("cycle", CERTIFIED, 1.0) <= 0.2,
        ),
        certificate_claim(rows),
    ]


def of_trouble(rows: Rows) -> list[Claim]:
    """Return claims about unread pages, answers without links, and remembered links."""

    def error(order: str, unreadable: float, unchanged: float, remember: int, crawls: int = 20) -> float:
        found = where(rows, order=order, unreadable=unreadable, unchanged=unchanged, remember=remember)
        return mean(found, "everywhere", history="default", crawls=crawls)

    def certified(measure: str, unreadable: float, crawls: int) -> dict[str, float]:
        found = where(rows, history=CERTIFIED, unreadable=unreadable, crawls=crawls)
        return {order: mean(found, measure, order=order) for order in orders}

    orders = ("greedy", "cycle", "random")
    plain = ", ".join(f"{order} {short(error(order, 0.6, 0.0, 0))}" for order in orders)
    stuck = ", ".join(f"{order} {short(error(order, 0.0, 0.8, 0))}" for order in orders)
    kept = ", ".join(f"{order} {short(error(order, 0.0, 0.8, 1))}" for order in orders)
    with_links = {order: error(order, 0.0, 0.0, 1, 10) for order in orders}
    without = {order: error(order, 0.0, 0.0, 0, 10) for order in orders}
    seen, whole = certified("everywhere", 0.6, 20), certified("whole", 0.6, 20)
    return [
        Claim(
            "Where 60 % of the pages are never read and 5 % refuse, the round keeps cash moving: errors stay small.",
            "design",
            f"after 20N {plain} %",
            all(error(order, 0.6, 0.0, 0) < 5 for order in ("greedy", "cycle")),
        ),
        Claim(
            "Links that are remembered make up for answers without links.",
            "design",
            f'80 % of later answers are "not modified": after 20N without {stuck} %, with {kept} %',
            all(error(order, 0.0, 0.8, 1) < error(order, 0.0, 0.8, 0) for order in orders),
        ),
        Claim(
            "With remembered links the round makes importance independent of how often the crawler comes by.",
            "design",
            "all pages readable, after 10N without: "
            + ", ".join(f"{order} {short(value)}" for order, value in without.items())
            + " %; with: "
            + ", ".join(f"{order} {short(value)}" for order, value in with_links.items())
            + " %",
            about_equal(min(with_links.values()), max(with_links.values()), 2),
        ),
        Claim(
            "Certified: where pages are never read, importance is exact for the graph seen; the whole web is another.",
            CERTIFIED_PAGE,
            "60 % never read, after 20N "
            + ", ".join(f"{order} {value:.4f}" for order, value in seen.items())
            + " % against the graph seen, "
            + ", ".join(f"{order} {short(value)}" for order, value in whole.items())
            + " % against the whole web",
            max(seen.values()) < 0.01 < min(whole.values()),
        ),
        certificate_claim(rows),
    ]


def of_stated(rows: Rows) -> list[Claim]:
    """How good the published trend and error factor are."""

    def at(name: str, order: str, day: int, history: str = "default") -> float:
        return mean(rows, name, order=order, history=history, day=day)

    orders, days = ("greedy", "cycle"), (11, 12, 13, 14, 16, 18, 20)
    best = {order: max(at("trend_rank", order, day, CERTIFIED) for day in days) for order in orders}
    sign = {order: max(at("trend_sign", order, day, CERTIFIED) for day in days) for order in orders}
    return [
        Claim(
            "The trend of certified shows which pages rise and which fall.",
            "docs/decisions/trend.md",
            "; ".join(
                f"{order}: rank correlation with the true move up to {short(best[order])}, right sign for up to "
                f"{short(sign[order])} %"
                for order in orders
            ),
            min(best.values()) > 0.5 and min(sign.values()) > 75,
        ),
        Claim(
            "A page is off by no more than its error factor.",
            "paper 002, 3.1 (of the whole vector)",
            "; ".join(
                f"{order}, day 10: {short(at('within_factor', order, 10))} % of the pages, rank correlation of factor "
                f"and error {short(at('factor_rank', order, 10))}"
                for order in orders
            ),
            all(at("within_factor", order, 10) > 95 for order in orders),
        ),
        certificate_claim(rows),
    ]


def of_trends(rows: Rows) -> list[Claim]:
    """The share of the highest trends that are of pages that really rose, and the share of such pages found."""
    orders, days = ("cycle", "greedy", "random"), (12, 16, 20)

    def over_days(name: str) -> dict[tuple[str, str], float]:
        return {
            (web, order): mean([row for row in where(rows, web=web, order=order) if row["day"] in days], name)
            for web in ("changing", "growing")
            for order in orders
        }

    precision, recall, rose = (over_days(name) for name in ("precision", "recall", "rose"))
    still = max(
        mean(rows, "steepest", web="changing", order=order, day=day)
        for order in ("cycle", "greedy")
        for day in (2, 3, 5)
    )
    return [
        Claim(
            "Pages with a high trend have risen, far more often than any page.",
            "docs/decisions/trend.md",
            "; ".join(
                f"{web}, {order}: {short(value)} % of the highest trends, where {short(rose[web, order])} % of all "
                f"pages rose, and {short(recall[web, order])} % of those that rose most"
                for (web, order), value in precision.items()
            )
            + " (means of days 12, 16 and 20)",
            all(100 - value < (100 - rose[one]) / 2 for one, value in precision.items()),
        ),
        Claim(
            "How a crawl begins is not published as movement.",
            "docs/decisions/trend.md",
            "the mean size of the trends of the most important hundredth while nothing changes, read by cycle or "
            f"greedy, is at most {short(still)} % of their importance a day",
            still < 1,
        ),
    ]


EXTENSIONS = (
    Experiment(
        "growing",
        "A web that grows",
        "It grows from half of its pages to all pages while 5N visits are made, read greedily in batches. "
        "*Certified* "
        "has the visits of the default; *by its own cash*: greedy follows its waiting cash.",
        "growing",
        _growing_tasks,
        _growing_tables,
        of_growing,
    ),
    Experiment(
        "moved",
        "Links that move",
        "Every page is announced. After 3N visits a tenth of all links move, each to the target of a random link of "
        "the "
        "web, and the pages are read again.",
        "moved",
        _moved_tasks,
        _moved_tables,
        of_moved,
    ),
    Experiment(
        "trouble",
        "Pages that cannot be read, and answers without links",
        'A share of the pages is never requested and 5 % refuse; a share of later answers is "not modified". '
        "*Links remembered*: the ledger keeps the last links of each page, and the round pays along them. In the graph "
        "seen pages that were never read have no links; in the whole web, which no crawl can know, they have.",
        "trouble",
        _trouble_tasks,
        _trouble_tables,
        of_trouble,
    ),
    Experiment(
        "stated",
        "How good the published trend and error factor are",
        "N visits a day; on day 10 the in-degrees of 5 % of the pages are halved or doubled.",
        "stated",
        _stated_tasks,
        _stated_tables,
        of_stated,
    ),
    Experiment(
        "trends",
        "Which pages rise",
        "N visits a day. Nothing changes for five days; then, every day, the in-degrees of 1 % of the pages are halved "
        "or doubled, or the web grows by a fiftieth of its first pages. The trends of *certified* with a window of "
        "three days are compared with those of "
        "the exact ranks of the web at the end of each day. Precision: of the highest hundredth of the published "
        "trends, the share whose page really rose. Recall: of the hundredth that really rose most, the share that is "
        "in the highest hundredth of the published trends. Steepness: the mean size of the trends of the most "
        "important "
        "hundredth, in per cent of their importance a day.",
        "trends",
        _trends_tasks,
        _trends_tables,
        of_trends,
    ),
    Experiment(
        "updates",
        "Updating ranks",
        "A part of the pages gets other links. All methods begin with the exact ranks of the web before, and are "
        "measured by the true distance of their ranks from those after it: the sum of all differences. A *scan* is as "
        "many visits of links as the web has links. *All again* begins with equal ranks. *Aggregation* is the update "
        "of Langville and Meyer: so many pages stay single, the changed ones and the most important; the others are "
        "one state of a small chain, whose vector is smoothed by a scan in each round. *Certified* has no rounds: its "
        "ledger visits the changed pages and pushes residuals; the figure is of the fewest pushes (a power of four "
        "for each visit) that reach the distance.",
        "updates",
        _updates_tasks,
        _updates_tables,
        of_updates,
        pages=10_000,
    ),
)
