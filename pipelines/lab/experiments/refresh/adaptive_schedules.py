"""Schedules of other crawlers that adapt the interval of a page to whether it changed: Nutch's and StormCrawler's.

Their rules and defaults are those of the sources: Apache Nutch 1.23-SNAPSHOT (commit 7906941: AdaptiveFetchSchedule,
AbstractFetchSchedule, CrawlDbReducer, nutch-default.xml) and Apache StormCrawler 3.4.1-SNAPSHOT (commit 384e98c:
AdaptiveScheduler, DefaultScheduler, AbstractStatusUpdaterBolt, crawler-default.yaml). They learn from what a crawler
sees, and plan once a day.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.lab.experiments.refresh.competitors import (
    MODIFIED,
    UNMODIFIED,
    Allowance,
    SeenContents,
    most_urgent,
)
from opicflow.pipelines.lab.experiments.refresh.crawler import Crawler, DayOrders
from opicflow.pipelines.lab.experiments.refresh.living_web import DAY, NEVER, ServerAnswers
from opicflow.schemas.arrays import Floats, Ints

NUTCH, STORMCRAWLER = "Nutch adaptive", "StormCrawler adaptive"
_MINUTE = 60


@dataclass(frozen=True)
class NutchSettings:
    """Nutch's settings `db.fetch.schedule.adaptive.*`, `db.fetch.interval.*` and `db.fetch.retry.max`."""

    inc_rate: float = 0.4
    dec_rate: float = 0.2
    min_seconds: float = 60.0
    max_seconds: float = 365.0 * DAY
    sync_delta: bool = True
    sync_delta_rate: float = 0.3
    default_seconds: float = 30.0 * DAY
    longest_seconds: float = 90.0 * DAY
    """`db.fetch.interval.max`: a page with a longer interval starts again, with nine tenths of this one."""
    retry_seconds: float = float(DAY)
    """After a fetch that failed."""
    most_retries: int = 3
    """From so many failed fetches on a page counts as gone."""
    gone_growth: float = 1.5
    """How much longer the interval of a page becomes that was found gone."""


class NutchAdaptive:
    """Apache Nutch's AdaptiveFetchSchedule.

    A page that was modified gets an interval shorter by `dec_rate`, one that was not gets one longer by `inc_rate`.
    With `sync_delta`, an interval shorter than the time since a fetch saw the page modified becomes that time, and the
    next fetch comes earlier by the part `sync_delta_rate` of that time. Dates of servers are not used. A page is never
    dropped: after a fetch that fails it is tried the next day; when it is gone, after one and a half times its
    interval.

    Every day the pages that are due compete by score, here their true importance.
    """

    def __init__(self, crawler: Crawler, bandwidth: float, settings: NutchSettings | None = None) -> None:
        pages = crawler.web.pages
        self._crawler, self._settings = crawler, settings or NutchSettings()
        self._allowance = Allowance(bandwidth)
        self.intervals: Floats = np.full(pages, self._settings.default_seconds)
        self.due: Ints = np.full(pages, -NEVER)
        self._modified: Ints = np.full(pages, -NEVER)
        self._contents = SeenContents(pages)
        self._retries: Ints = np.zeros(pages, np.int64)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        self._learn_failures(answers)
        came = answers.came
        numbers, seconds = answers.numbers[came], answers.seconds[came]
        states = self._contents.take(numbers, answers.contents[came])
        intervals, due, modified = rescheduled(
            self.intervals[numbers], seconds, self._modified[numbers], states, self._settings
        )
        begins_again = intervals > self._settings.longest_seconds
        self.intervals[numbers] = np.where(begins_again, 0.9 * self._settings.longest_seconds, intervals)
        self.due[numbers] = due
        self._modified[numbers] = np.where(begins_again, -NEVER, modified)
        self._contents.forget(numbers[begins_again])
        self._retries[numbers] = 0

    def order(self, day: int) -> DayOrders:
        now, longest = day * DAY, self._settings.longest_seconds
        too_far = self.due - now > longest
        self.intervals[too_far] = np.minimum(self.intervals[too_far], 0.9 * longest)
        self.due[too_far] = now
        score = self._crawler.web.importance[day]
        return most_urgent(score, self._crawler.known & (self.due <= now), day, self._allowance.next())

    def _learn_failures(self, answers: ServerAnswers) -> None:
        settings = self._settings
        is_gone = (answers.statuses == 404) | (answers.statuses == 410)
        fails = ~answers.came & ~is_gone
        numbers = answers.numbers[fails]
        self._retries[numbers] += 1
        self.due[numbers] = answers.seconds[fails] + int(settings.retry_seconds)
        is_gone[fails] = self._retries[numbers] >= settings.most_retries
        numbers = answers.numbers[is_gone]
        longer = self.intervals[numbers] * settings.gone_growth
        longest = settings.longest_seconds
        self.intervals[numbers] = np.where(longer < longest, longer, 0.9 * longest)
        self.due[numbers] = answers.seconds[is_gone] + self.intervals[numbers].astype(np.int64)


def rescheduled(
    intervals: Floats, seconds: Ints, modified: Ints, states: Ints, settings: NutchSettings
) -> tuple[Floats, Ints, Ints]:
    """Return the new interval of each page that was fetched at this second, its next fetch, and when it was modified.

    `modified`: the fetch that saw it modified last; -NEVER: none did. `states`: `MODIFIED`, `UNMODIFIED`, or `UNKNOWN`
    at its first fetch.
    """
    seen = np.where((states == MODIFIED) | (modified == -NEVER), seconds, modified)
    longer = intervals * np.array([1.0, 1.0 - settings.dec_rate, 1.0 + settings.inc_rate])[states]
    since = np.zeros(len(longer))
    if settings.sync_delta:
        since = (seconds - seen).astype(np.float64)
        longer = np.maximum(longer, since)
    bounded = np.clip(longer, settings.min_seconds, settings.max_seconds)
    due = seconds + np.round(bounded - settings.sync_delta_rate * since).astype(np.int64)
    return bounded, due, np.where(states == UNMODIFIED, modified, seen)


@dataclass(frozen=True)
class StormCrawlerSettings:
    """StormCrawler's settings `scheduler.adaptive.fetchInterval.*`, `fetchInterval.*` and `max.fetch.errors`."""

    default_minutes: int = 1_440
    min_minutes: int = 60
    max_minutes: int = 20_160
    incr_rate: float = 0.5
    decr_rate: float = 0.5
    fetch_error_minutes: int = 120
    most_errors: int = 3
    """After so many failed fetches in a row a page is in error: by default it is never fetched again."""


class StormCrawlerAdaptive:
    """Apache StormCrawler's AdaptiveScheduler.

    A page that changed gets the mean of its interval and the shortest one, a page that did not gets one half longer.
    After an error its interval and signature are forgotten. Pages that are due are taken by the date they are due, as
    its spouts do.
    """

    def __init__(self, crawler: Crawler, bandwidth: float, settings: StormCrawlerSettings | None = None) -> None:
        pages = crawler.web.pages
        self._crawler, self._settings = crawler, settings or StormCrawlerSettings()
        self._allowance = Allowance(bandwidth)
        self.minutes: Ints = np.full(pages, self._settings.default_minutes)
        self.due: Ints = np.full(pages, -NEVER)
        self._contents = SeenContents(pages)
        self._errors: Ints = np.zeros(pages, np.int64)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        settings, came = self._settings, answers.came
        numbers = answers.numbers[~came]
        self._errors[numbers] += 1
        self.minutes[numbers] = settings.default_minutes
        self._contents.forget(numbers)
        self.due[numbers] = np.where(
            self._errors[numbers] < settings.most_errors,
            answers.seconds[~came] + settings.fetch_error_minutes * _MINUTE,
            NEVER,
        )
        numbers = answers.numbers[came]
        states = self._contents.take(numbers, answers.contents[came])
        self.minutes[numbers] = adapted(self.minutes[numbers], states, settings)
        self.due[numbers] = answers.seconds[came] + self.minutes[numbers] * _MINUTE
        self._errors[numbers] = 0

    def order(self, day: int) -> DayOrders:
        candidates = self._crawler.known & (self.due <= day * DAY)
        since = np.maximum(self.due, self._crawler.known_since)  # a page never read is due since it was found
        return most_urgent(-since.astype(np.float64), candidates, day, self._allowance.next())


def adapted(minutes: Ints, states: Ints, settings: StormCrawlerSettings) -> Ints:
    """Return the new interval of each page that was fetched, in whole minutes. `states` are as in `rescheduled`."""
    shorter = ((1.0 - settings.decr_rate) * minutes + settings.decr_rate * settings.min_minutes).astype(np.int64)
    longer = np.minimum((minutes * (1.0 + settings.incr_rate)).astype(np.int64), settings.max_minutes)
    chosen: Ints = np.select([states == MODIFIED, states == UNMODIFIED], [shorter, longer], settings.default_minutes)
    return chosen
