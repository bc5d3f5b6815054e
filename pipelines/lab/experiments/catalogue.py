"""All experiments by name, in the order in which they are run and reported."""

from __future__ import annotations

from opicflow.pipelines.lab.experiments.communities.community_experiments import COMMUNITIES
from opicflow.pipelines.lab.experiments.discovery.discovery_experiment import DISCOVERY
from opicflow.pipelines.lab.experiments.importance.convergence_experiments import CONVERGENCE
from opicflow.pipelines.lab.experiments.importance.extension_experiments import EXTENSIONS
from opicflow.pipelines.lab.experiments.importance.window_experiments import WINDOWS
from opicflow.pipelines.lab.experiments.loop.loop_experiment import loop
from opicflow.pipelines.lab.experiments.manipulation.manipulation_experiment import MANIPULATION
from opicflow.pipelines.lab.experiments.refresh.loop_refresh import loop_refresh
from opicflow.pipelines.lab.experiments.sites.sites_experiment import SITES

_ALL = (*CONVERGENCE, *WINDOWS, *EXTENSIONS, DISCOVERY, MANIPULATION, SITES, loop(), loop_refresh(), *COMMUNITIES)
EXPERIMENTS = {one.name: one for one in _ALL}
