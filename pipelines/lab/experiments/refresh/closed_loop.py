"""A year of a crawl in the closed loop: orders, fetches, the log of the day, and orders again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from opicflow.pipelines.lab.experiments.refresh.adaptive_schedules import (
    NUTCH,
    STORMCRAWLER,
    NutchAdaptive,
    StormCrawlerAdaptive,
)
from opicflow.pipelines.lab.experiments.refresh.command_orders import CommandOrders
from opicflow.pipelines.lab.experiments.refresh.competitors import ORACLE, ROUND_ROBIN, Oracle, RoundRobin
from opicflow.pipelines.lab.experiments.refresh.crawler import Crawler, CrawlHistory, Scheduler
from opicflow.pipelines.lab.experiments.refresh.freshness import fresh_by_day, measure
from opicflow.pipelines.lab.experiments.refresh.lambda_crawl import LAMBDA_CRAWL, LambdaCrawl
from opicflow.pipelines.lab.experiments.refresh.living_web import POWER_LAW, living_web
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.refresh.strategies import STRATEGIES

COMPETITORS = (ROUND_ROBIN, NUTCH, STORMCRAWLER, LAMBDA_CRAWL, ORACLE)
SCHEDULERS = (*STRATEGIES, *COMPETITORS)
LONGEST_DAYS = 90
"""The longest interval, of opicflow's strategies and of the oracle."""
WARM_UP_DAYS = 60
_DAYS_A_ROW = 7


def loop_refresh(pages: int, seed: int, scheduler: str, percent: float, days: int, web: str = POWER_LAW) -> list[Row]:
    """Crawl a living web for so many days by the orders of a scheduler, with this percentage of all pages a day.

    The row of day 0 has the measures of the whole time after the warm-up, in per cent and days; each of the others has
    the weighted freshness of seven days (`fresh_weighted`) and their orders (`used`), from this day on.
    """
    living = living_web(pages, seed, days, kind=web)
    bandwidth = pages * percent / 100
    with TemporaryDirectory(prefix="opicflow-loop-") as folder:
        crawler = Crawler(living)
        history = crawl(crawler, scheduler_named(scheduler, crawler, bandwidth, Path(folder)), bandwidth)
    found = asdict(measure(history, bandwidth, warm_up_days(days)))
    shares = ("fresh_weighted", "fresh", "caught", "used")
    common: Row = {"seed": seed, "web": web, "scheduler": scheduler, "percent": percent, "days": days}
    whole: Row = {name: value * 100.0 if name in shares else value for name, value in found.items()}
    rows: list[Row] = [common | {"day": 0} | whole]
    fresh = fresh_by_day(history)
    for day in range(0, days - days % _DAYS_A_ROW, _DAYS_A_ROW):
        week = slice(day, day + _DAYS_A_ROW)
        used = history.orders[week].sum() / (bandwidth * _DAYS_A_ROW)
        of_week: Row = {"fresh_weighted": float(fresh[week].mean()) * 100.0, "used": float(used) * 100.0}
        rows.append(common | {"day": day + 1} | of_week)
    return rows


def crawl(crawler: Crawler, scheduler: Scheduler, bandwidth: float) -> CrawlHistory:
    """Crawl until the end of the year, a cycle a day."""
    answers, announced = crawler.crawl_first(), np.zeros(0, np.int64)
    for day in range(crawler.web.days):
        scheduler.receive(answers, announced)
        answers = crawler.follow(scheduler.order(day), day, bandwidth)
        announced = crawler.announce(day)
    return crawler.history()


def scheduler_named(name: str, crawler: Crawler, bandwidth: float, folder: Path) -> Scheduler:
    """Return a new scheduler of this name. opicflow's strategies keep their files in the folder."""
    if name == ROUND_ROBIN:
        return RoundRobin(crawler, bandwidth)
    if name == NUTCH:
        return NutchAdaptive(crawler, bandwidth)
    if name == STORMCRAWLER:
        return StormCrawlerAdaptive(crawler, bandwidth)
    if name == LAMBDA_CRAWL:
        return LambdaCrawl(crawler, bandwidth)
    if name == ORACLE:
        return Oracle(crawler, bandwidth, LONGEST_DAYS)
    options = ("--refresh-strategy", name, "--bandwidth", str(bandwidth), "--set", f"longest-interval={LONGEST_DAYS}")
    return CommandOrders(crawler.web, folder, options)


def warm_up_days(days: int) -> int:
    """Return how many days of so many are not measured: a sixth, and 60 at most."""
    return min(WARM_UP_DAYS, days // 6)
