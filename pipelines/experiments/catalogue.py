"""All experiments by name, in the order in which they are run and reported."""

from __future__ import annotations

from opicflow.pipelines.experiments.communities.catalogue import COMMUNITIES
from opicflow.pipelines.experiments.importance.catalogue import IMPORTANCE

EXPERIMENTS = {one.name: one for one in (*IMPORTANCE, *COMMUNITIES)}
