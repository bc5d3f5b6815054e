"""Whether the figures of a replay can be trusted: the checks of the light."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.books import MOST_REJECTED, Check, proven_ranks

if TYPE_CHECKING:
    from opicflow.pipelines.serve.view import View


def checks_of_replay(view: View) -> Iterator[Check]:
    """Yield the checks of a view of a state or of results."""
    yield _cash(view.drift)
    yield _events(view.lost_events, view.counts.get("events_read"))
    if view.rejected_part:
        detail = f"{wording.percent(view.rejected_part)} of the events could not be used"
        yield Check("Rejects", view.rejected_part < MOST_REJECTED, detail)
    if view.refused_policies:
        yield Check("Policies", False, f"{view.refused_policies:,} were refused")
    yield _estimated_ranks(view) if view.certificate is None else proven_ranks(view.certificate)
    if view.plan.get("why"):
        yield Check("Plan", bool(view.plan.get("feasible")), str(view.plan["why"]))


def _cash(drift: int | None) -> Check:
    if drift is None:
        return Check("Cash", None, "these files do not say whether cash is missing")
    if drift:
        return Check("Cash", False, f"{drift:,} units are missing: this is a bug, please report it")
    return Check("Cash", True, "not one unit of cash is missing")


def _events(lost: int | None, read: int | None) -> Check:
    if lost is None or read is None:
        return Check("Events", None, "how many were read is not known")
    if lost:
        return Check("Events", False, f"{lost:,} of {read:,} are in no count")
    return Check("Events", True, f"all {read:,} that were read are accounted for")


def _estimated_ranks(view: View) -> Check:
    detail = "estimated, without a proof"
    if view.default_histories:
        part = view.default_histories / max(len(view.table), 1)
        detail += f"; {wording.percent(part)} of the pages were visited too rarely to be measured"
    return Check("Ranks", None, detail)
