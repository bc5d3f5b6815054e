"""What every test shares: hypothesis profiles, and the seed of simulations."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The same examples in every run, so that a failure is never a matter of luck; `make soak` looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("OPICFLOW_HYPOTHESIS", "ci"))


@pytest.fixture
def seed() -> int:
    """The seed of a simulation: OPICFLOW_SEED, or 0. Printed, so that a failure shows it."""
    chosen = int(os.environ.get("OPICFLOW_SEED", "0"))
    print(f"seed {chosen}: run it again with OPICFLOW_SEED={chosen}, or make soak SEED={chosen}")
    return chosen
