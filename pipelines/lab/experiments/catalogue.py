"""All experiments by name, in the order in which they are run and reported."""

from __future__ import annotations

from opicflow.pipelines.lab.experiments.communities.catalogue import COMMUNITIES
from opicflow.pipelines.lab.experiments.discovery.catalogue import DISCOVERY
from opicflow.pipelines.lab.experiments.importance.catalogue import IMPORTANCE
from opicflow.pipelines.lab.experiments.loop.catalogue import LOOP
from opicflow.pipelines.lab.experiments.manipulation.catalogue import MANIPULATION
from opicflow.pipelines.lab.experiments.refresh.catalogue import REFRESH
from opicflow.pipelines.lab.experiments.sites.catalogue import SITES

EXPERIMENTS = {one.name: one for one in (*IMPORTANCE, DISCOVERY, MANIPULATION, SITES, LOOP, *REFRESH, *COMMUNITIES)}
