"""What several experiments on importance share: cells of tables, claims, sources."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opicflow.pipelines.lab.experiments.experiment import Claim
from opicflow.pipelines.lab.experiments.importance.convergence import CERTIFIED, PRINTED
from opicflow.pipelines.lab.experiments.tables import Rows, mean, pair, short

PAPER, ABSTRACT = "paper 002, 4.2", "abstract 000, 4"
CERTIFIED_PAGE = "docs/decisions/certified.md"

ALL_AND_TOP = pair("everywhere", "top")
"""A cell of the errors of all pages, and of the most important tenth."""


def proven(rows: Rows) -> str:
    """The certificate, and the distance from the exact ranks of the graph seen that it bounds."""
    certificate, distance = mean(rows, "certificate"), mean(rows, "distance")
    return "-" if np.isnan(certificate) else f"{short(certificate)} / {short(distance)}"


def certificate_claim(rows: Rows) -> Claim:
    """Return the claim that a certificate bounds what it is to bound."""
    chosen = [row for row in rows if float(row.get("certificate", "nan")) >= 0]
    ratios = [float(row["certificate"]) / max(float(row["distance"]), 1e-12) for row in chosen]
    measured = f"{short(min(ratios))} to {short(max(ratios))} times it, in {len(ratios)} comparisons"
    return Claim(
        "The certificate is never below the true distance.", CERTIFIED_PAGE, measured, min(ratios) >= 1, CERTIFIED
    )


def judged_as_printed(printed: Sequence[Claim], ours: Sequence[Claim]) -> list[Claim]:
    """Return the claims of a paper as judged by the printed algorithm, with what the project's own policies do."""
    return [
        claim._replace(algorithm=PRINTED, ours=f"{own.measured}: {own.verdict}")
        for claim, own in zip(printed, ours, strict=True)
    ]


def about_equal(one: float, other: float, factor: float = 1.5) -> bool:
    """Whether two numbers differ by this factor at most."""
    return max(one, other) <= factor * min(one, other)
