"""What each shard has, as status and audit of a stream show it, and when other boundaries are worth a rebuild."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from opicflow.connectors.flink.rest import FlinkCluster
from opicflow.pipelines.stream.loads import Load, advice, busiest, spread_in_words, table
from support.commands import command


def loads(*pages: int) -> list[Load]:
    return [Load(shard, number, 10 * number, 100 * number) for shard, number in enumerate(pages)]


def test_the_busiest_shard_is_compared_with_the_mean() -> None:
    assert busiest([10, 30, 20]) == (1, 1.5)
    assert busiest([0, 0]) == (0, 0.0)
    assert busiest([7]) == (0, 1.0)


def test_the_spread_names_both_shards() -> None:
    some = [Load(0, 10, 5, 1), Load(1, 30, 1, 1)]
    assert spread_in_words(some) == (
        "shard 1 has the most pages, 1.50 times the mean; shard 0 the most visits, 1.67 times"
    )


@pytest.mark.parametrize(
    ("pages", "advised"),
    [
        ((100_000, 100_000), ""),
        ((150_000, 50_000), ""),
        ((160_000, 40_000), "dividing is worth it: shard 0 has 1.6 times the mean of pages"),
        ((400, 10), ""),
        ((900_000,), ""),
        ((), ""),
    ],
)
def test_dividing_is_advised_where_a_large_shard_has_much_more_than_the_mean(
    pages: tuple[int, ...], advised: str
) -> None:
    assert advice(loads(*pages)).startswith(advised) and bool(advice(loads(*pages))) == bool(advised)


def test_the_table_has_a_row_for_each_shard() -> None:
    assert table([Load(3, 1_000_000, 20, 7_400_000)]) == [
        "  shard        pages       visits       MB",
        "      3    1,000,000           20      7.4",
    ]


METRICS = {
    **{f"pages_shard_{shard}": float(pages) for shard, pages in enumerate((90_000, 10_000))},
    **{f"visits_shard_{shard}": float(visits) for shard, visits in enumerate((5_000, 5_000))},
    **{f"bytes_shard_{shard}": float(size) for shard, size in enumerate((9_000_000, 1_000_000))},
    "unsettled_shard_0": 1.0,
    "unsettled_shard_1": 0.0,
    "certificate_per_million_shard_0": 50.0,
    "certificate_per_million_shard_1": 80.0,
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with a stream of two shards."""
    job = SimpleNamespace(id="1f", name="opicflow", state="RUNNING")
    details = SimpleNamespace(job=job, runs=True, restarts=0, trouble=())
    answers: dict[str, Any] = {
        "find": job,
        "details": details,
        "checkpoints": SimpleNamespace(completed=3, failed=0, last=None),
        "beam_metrics": METRICS,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(FlinkCluster, name, lambda self, *arguments, answer=answer: answer)


def test_the_status_says_how_evenly_pages_are_spread(cluster: None) -> None:
    lines = command("stream", "status").out.splitlines()
    assert "load         shard 0 has the most pages, 1.80 times the mean; shard 0 the most visits, 1.00 times" in lines
    assert "note         dividing is worth it: shard 0 has 1.8 times the mean of pages, and all shards wait for it" in (
        "\n".join(lines)
    )
    assert "settled      no, in 1 of 2 shards: while pages are visited again, its errors fall" in lines
    assert "certificate  all errors of importance together are at most 8e-05" in lines


def test_the_status_shows_a_row_for_each_shard_on_request(cluster: None) -> None:
    assert "        pages       visits" not in command("stream", "status").out
    out = command("stream", "status", "--shard-table").out
    assert "  shard        pages       visits       MB\n      0       90,000        5,000      9.0\n" in out
    found = json.loads(command("stream", "status", "--json").out)["loads"]
    assert found == [
        {"shard": 0, "pages": 90_000, "visits": 5_000, "bytes": 9_000_000},
        {"shard": 1, "pages": 10_000, "visits": 5_000, "bytes": 1_000_000},
    ]
