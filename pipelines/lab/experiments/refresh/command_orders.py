"""Orders of opicflow itself: every day the installed command replays the log of the day before into a state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import orjson

from opicflow.pipelines.lab.experiments.installed_command import installed_command, run_quietly
from opicflow.pipelines.lab.experiments.refresh.crawler import DayOrders
from opicflow.pipelines.lab.experiments.refresh.living_web import NEVER, LivingWeb, ServerAnswers
from opicflow.schemas.arrays import Ints
from opicflow.schemas.dates import iso_time

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""The first day of the year."""
_BEGIN_SECOND = int(BEGIN.timestamp())


class CommandOrders:
    """The crawl orders that `opicflow replay LOG --state … --out … --now …` writes, a run of the command a day.

    A day without visits has no log: then time passes by `--now` alone.
    """

    def __init__(self, web: LivingWeb, folder: Path, options: Sequence[str]) -> None:
        self._web, self._folder = web, folder
        self._command = [
            "replay",
            "--runner",
            "local",
            "--state",
            str(folder / "state"),
            "--out",
            str(folder / "out"),
            *options,
        ]
        self._numbers = {url: number for number, url in enumerate(web.urls)}
        self._main = installed_command()
        self._lines: list[bytes] = []

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        """Keep the lines of the next log."""
        self._lines += log_lines(self._web, answers, announced)

    def order(self, day: int) -> DayOrders:
        """Run the command at the beginning of a day. Raises RuntimeError if it does not succeed."""
        logs = []
        if self._lines:
            log = self._folder / f"day-{day:04}.jsonl"
            log.write_bytes(b"\n".join(self._lines) + b"\n")
            logs, self._lines = [str(log)], []
        now = iso_time(1000 * (_BEGIN_SECOND + 86_400 * day))
        run_quietly(self._main, [*self._command, *logs, "--now", now, "--quiet", "--top", "0"])
        for log_path in logs:
            Path(log_path).unlink()
        lines = (self._folder / "out" / "crawl-orders.jsonl").read_bytes().splitlines()
        orders = [orjson.loads(line) for line in lines]
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
