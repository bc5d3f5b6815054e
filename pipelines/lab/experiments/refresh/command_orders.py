"""Orders of opicflow itself: every day the installed command replays the log of the day before into a state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import orjson

from opicflow.pipelines.lab.experiments.installed_command import DailyReplays
from opicflow.pipelines.lab.experiments.refresh.crawler import DayOrders
from opicflow.pipelines.lab.experiments.refresh.living_web import NEVER, LivingWeb, ServerAnswers
from opicflow.schemas.arrays import Ints

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""The first day of the year."""
_BEGIN_SECOND = int(BEGIN.timestamp())


class CommandOrders:
    """The crawl orders that `opicflow replay LOG --state … --out … --now …` writes, a run of the command a day."""

    def __init__(self, web: LivingWeb, folder: Path, options: Sequence[str]) -> None:
        self._web, self._replays = web, DailyReplays(folder, options)
        self._numbers = {url: number for number, url in enumerate(web.urls)}
        self._lines: list[bytes] = []

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        """Keep the lines of the next log."""
        self._lines += log_lines(self._web, answers, announced)

    def order(self, day: int) -> DayOrders:
        """Run the command at the beginning of a day. Raises RuntimeError if it does not succeed."""
        orders = self._replays.orders(self._lines, 1000 * (_BEGIN_SECOND + 86_400 * day))
        self._lines = []
        return DayOrders(
            np.array([self._numbers[order["url"]] for order in orders], np.int64),
            np.array([-(-order["not_before"] // 1000) - _BEGIN_SECOND for order in orders], np.int64),
        )


def log_lines(web: LivingWeb, answers: ServerAnswers, announced: Ints) -> list[bytes]:
    """Return the events of a crawl log: an announcement for each page, and a visit for each answer."""
    lines = [orjson.dumps({"kind": "announce", "url": web.urls[number]}) for number in announced.tolist()]
    columns = (answers.numbers, answers.seconds, answers.statuses, answers.contents, answers.modified)
    for number, second, status, content, modified in zip(*(column.tolist() for column in columns), strict=True):
        event: dict[str, object] = {
            "url": web.urls[number],
            "fetched_at": (_BEGIN_SECOND + second) * 1000,
            "status": status,
        }
        if status == 200:
            event["digest"] = f"{number}-{content}"
            event["links"] = [web.urls[target] for target in web.links(number, content).tolist()]
            if modified < NEVER:
                event["last_modified"] = (_BEGIN_SECOND + modified) * 1000
        lines.append(orjson.dumps(event))
    return lines
