"""The sources of views; and the state of a replay, which is read again when a replay has finished in it."""

from __future__ import annotations

import base64
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import orjson

from opicflow.pipelines.replay.answers import read_answers
from opicflow.pipelines.replay.moments import Moments
from opicflow.pipelines.replay.reports import Sample
from opicflow.pipelines.replay.state import Run, StateFolder, read_ledger
from opicflow.pipelines.results.part_files import Parts
from opicflow.pipelines.results.record_columns import pages_of
from opicflow.pipelines.serve.page_table import PageTable
from opicflow.pipelines.serve.view import Moment, RejectExample, View
from opicflow.pipelines.serve.watchers import Watchers
from opicflow.pipelines.stages.outputs import REJECTS
from opicflow.schemas.errors import UserError
from opicflow.schemas.policy_json import policy_from_json
from opicflow.schemas.urls import NO_RULES, named_page

if TYPE_CHECKING:
    from opicflow.pipelines.ledger import Ledger, Plan
    from opicflow.pipelines.replay.state import State
    from opicflow.pipelines.results.reasons import Reasons
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.schemas.arrays import Floats

EXAMPLES_A_REASON = 10
MOST_REJECTS_READ = 100_000
"""The most rejects that are read to find examples of each reason."""


class PageSource(Protocol):
    """A source of views. All methods may be called by several threads at once."""

    can_explain: bool
    """Whether there is a ledger, which can explain the rank of a page."""

    def view(self) -> View:
        """The current view."""

    def canonical(self, url: str) -> str:
        """The canonical form of a URL that somebody typed. Raises a `UserError` if it is not a URL."""

    def reasons(self, page: int) -> Reasons | None:
        """Why a page has its rank and plan; None where the source does not know."""


@runtime_checkable
class LiveSource(PageSource, Protocol):
    """A source that changes by itself, and keeps only a part of all pages."""

    watchers: Watchers

    def look_for(self, url: str) -> str:
        """Keep a page from its next record on; returns sentences about the page until then."""

    def look_at(self, page: int) -> None:
        """Somebody looks at a page that is kept: note its importance from now on."""

    def close(self) -> None:
        """Stop reading."""


class RereadView:
    """A view that is read again when its source has changed: by a thread of its own, so that no request waits for it.

    `stamp` returns what differs after a change; None: nothing can be read now. `read` gets the view before, if there
    is one, and may return it again.
    """

    def __init__(self, stamp: Callable[[], object], read: Callable[[View | None], View]) -> None:
        self._stamp_now, self._read = stamp, read
        self._reading = threading.Lock()
        self._stamp: object = None
        self._view: View | None = None
        self._problem: UserError | None = None

    def get(self) -> View:
        """The view. The first call waits for it, later ones get the one before while another one is read."""
        stamp = self._stamp_now()
        if self._view is None:
            with self._reading:
                if self._view is None:
                    with _uncollected():
                        self._view, self._stamp = self._read(None), stamp
        elif stamp not in (None, self._stamp) and self._reading.acquire(blocking=False):
            threading.Thread(target=self._read_again, args=(stamp,), daemon=True).start()
        if self._problem is not None:
            raise self._problem
        return self._view

    def _read_again(self, stamp: object) -> None:
        try:
            with _uncollected():
                self._view, self._problem = self._read(self._view), None
        except UserError as problem:
            self._problem = problem
        finally:
            self._stamp = stamp
            self._reading.release()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the garbage collector off meanwhile: it would stop all threads and visit millions of sites."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class StateSource:
    """The state of a replay. Nothing is written or locked: a replay may be running in the folder."""

    can_explain = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rules: Rules | None = None
        self._shown = RereadView(self._stamp_now, self._read_finished)
        self._explaining = threading.Lock()
        self._ledger: tuple[View, Ledger, Floats | None, Plan] | None = None

    def view(self) -> View:
        """The current view: read again when a replay has finished. Until then viewers get the one before."""
        return self._shown.get()

    def canonical(self, url: str) -> str:
        """The canonical form of a URL, by the rules of the state."""
        return named_page(url, self._rules.urls if self._rules is not None else NO_RULES)

    def reasons(self, page: int) -> Reasons | None:
        """Why a page has its rank and plan. The ledger is restored for the first call, and kept."""
        from opicflow.pipelines.replay.final_plan import importance_for_plans
        from opicflow.pipelines.results.reasons import reasons_of

        view = self.view()
        with self._explaining:
            if self._ledger is None or self._ledger[0] is not view:
                self._ledger = None
                ledger, _ = read_ledger(self._path)
                importance = importance_for_plans(ledger)
                self._ledger = view, ledger, importance, ledger.preview(importance=importance)
            _, ledger, importance, planned = self._ledger
            if not np.any(planned.survey.pages == np.uint64(page)):
                return None
            return reasons_of(ledger, page, planned, importance)

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            status = (self._path / "state.json").stat()
        except OSError:  # the view before is better than none
            return None
        return status.st_mtime_ns, status.st_size

    def _read_finished(self, before: View | None) -> View:
        state = StateFolder(self._path).read_existing()
        is_replay = state.run is None or bool(state.run.logs)  # a frontier saves, and is never finished
        if before is not None and is_replay and not (state.run and state.run.finished):
            return before  # a checkpoint on the way has no answers
        return self._read(state).prepared()

    def _read(self, state: State) -> View:
        answers, self._rules = read_answers(self._path)
        gc.collect()  # the ledger, if they came from there
        table = PageTable.of(
            map(pages_of, answers.importance), map(pages_of, answers.schedules), [pages_of(answers.orders)]
        )
        run = state.run or Run()
        last = run.last
        rejects = _rejects(run)
        return View(
            title=title_of(run.logs),
            source=f"the state {self._path.name}",
            version=version("opicflow"),
            table=table,
            counts=_counts(run, sum(rejects.values())) if run.logs else {},  # a frontier does not count events
            plan=answers.plan,
            policies=tuple(map(policy_from_json, answers.policies)),
            known_read=last.pages_read if last else None,
            certificate=last.certificate if last and last.certificate is not None else table.moment.get("certificate"),
            drift=last.drift if last else None,
            refused_policies=len(run.refused_policies),
            history=moments(run.samples),
            idle=last.idle if last else {},
            rejects=rejects,
            examples=examples_of(
                orjson.loads(line) for part in Parts(self._path / "work", REJECTS) for line in part.splitlines()
            ),
            options=options_of(state.ledger),
            categories=self._rules.categories.names[: self._rules.categories.count],
            moments=Moments(self._path),
        )


def title_of(logs: Sequence[str]) -> str:
    """A crawl by the names of its logs, without their folders."""
    names = [log.rstrip("/").rpartition("/")[2] or log for log in logs]
    if not names:
        return "A crawl"
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} more logs"


def moments(samples: Iterable[Sample]) -> tuple[Moment, ...]:
    """The samples of a replay."""
    return tuple(
        Moment(one.time_ms, one.visits, one.pages, one.pages_read, one.idle_share, dict(one.top)) for one in samples
    )


def examples_of(records: Iterable[Mapping[str, Any]]) -> tuple[RejectExample, ...]:
    """The first rejects of each reason."""
    found: list[RejectExample] = []
    of_reasons: Counter[str] = Counter()
    for record in islice(records, MOST_REJECTS_READ):
        reason = record["reason"]
        of_reasons[reason] += 1
        if of_reasons[reason] <= EXAMPLES_A_REASON:
            where = f"{record['source']}, byte {record['offset']:,}"
            found.append(RejectExample(reason, record.get("detail", ""), where, _excerpt(record)))
    return tuple(found)


def _excerpt(record: Mapping[str, Any]) -> str:
    """The bytes of a reject as text: JSON has them as text or in base64, other formats as they are."""
    given = record.get("bytes")
    if isinstance(given, str):
        return given
    return (base64.b64decode(record["bytes_base64"]) if given is None else given).decode("utf-8", "backslashreplace")


def options_of(ledger: dict[str, Any]) -> list[tuple[str, str]]:
    """The options of a ledger that the pages show: names and values."""
    history, refresh = ledger["history"], ledger["refresh"]
    bandwidth, unread = refresh.get("bandwidth_per_day"), refresh["discovery_share"]
    return [
        ("history", str(history["policy"])),
        ("damping", f"{ledger['damping']:g}"),
        ("links", "remembered" if ledger["remember_links"] else "not remembered"),
        ("refresh strategy", str(refresh["strategy"])),
        ("bandwidth", "as many fetches as the crawl made" if bandwidth is None else f"{bandwidth:g} fetches a day"),
        ("cycle", f"{refresh['cycle_hours']:g} hours"),
        (
            "for unread pages",
            "as many as they are worth" if unread == "auto" else f"{100 * unread:g}% of the bandwidth",
        ),
    ]


def _rejects(run: Run) -> dict[str, int]:
    reasons = run.rejects + Counter(forgotten=run.total["forgotten"])
    return {reason: count for reason, count in reasons.most_common() if count}


def _counts(run: Run, rejects: int) -> dict[str, int | None]:
    total = run.total
    return {
        "events_read": total["events_read"],
        "visits": total["visits"] - total["duplicates"] - total["forgotten"],
        "announcements": total["announcements"],
        "rejects": rejects,
        "duplicates": total["duplicates"],
        "late": total["late"],
        "links": total["links"],
    }
