"""Contents change as Poisson processes that are seen only where they are visited."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.lab.web.contents import Contents, Observations
from support.thorough import examples

DAY_MS = 86_400_000
START_MS = 1_767_225_600_000


def steady(pages: int, seed: int, per_day: float) -> Contents:
    """Pages that all change at one rate."""
    return Contents(pages, seed, per_day, decades=0.0)


def visit_all(contents: Contents, day: float) -> Observations:
    pages = len(contents.rates)
    return contents.visit(np.arange(pages), np.full(pages, START_MS + round(day * DAY_MS)))


def test_rates_are_log_normal_around_the_median_over_the_given_decades() -> None:
    logs = np.log10(Contents(100_000, 3, 0.2, decades=3.0).rates)
    assert np.median(logs) == pytest.approx(np.log10(0.2), abs=0.02)
    assert (np.abs(logs - np.log10(0.2)) < 1.5).mean() == pytest.approx(0.95, abs=0.003)
    assert (np.abs(logs - np.log10(0.2)) < 1.5 / 1.959964).mean() == pytest.approx(0.6827, abs=0.006)
    assert np.mean(logs - np.log10(0.2)) == pytest.approx(0, abs=0.01)
    assert (steady(10, 3, 0.2).rates == 0.2).all()


@pytest.mark.parametrize("days", [0.5, 3.0, 20.0])
def test_a_page_is_changed_with_the_probability_of_a_poisson_process(days: float) -> None:
    contents = steady(100_000, 1, 0.2)
    assert visit_all(contents, 0).changed.all()
    for visit in (1, 2):
        changed = visit_all(contents, visit * days).changed
        assert changed.mean() == pytest.approx(1 - np.exp(-0.2 * days), abs=0.006)


def test_the_last_change_lies_an_exponential_time_back_as_far_as_the_last_visit() -> None:
    contents = steady(100_000, 1, 0.2)
    first = visit_all(contents, 0)
    ages = (START_MS - first.last_modified_ms) / DAY_MS
    assert ages.mean() == pytest.approx(5, abs=0.06)
    assert (ages > 10).mean() == pytest.approx(np.exp(-2), abs=0.006)
    second = visit_all(contents, 4)
    age = 4 - (second.last_modified_ms - START_MS) / DAY_MS
    assert (age[second.changed] < 4).all() and (age >= 0).all()
    for back in (0.5, 1, 2, 3):
        assert (age < back).mean() == pytest.approx(1 - np.exp(-0.2 * back), abs=0.006)
    assert (second.last_modified_ms[~second.changed] == first.last_modified_ms[~second.changed]).all()


def test_past_changes_do_not_predict_later_ones() -> None:
    """Memorylessness: visits in between change neither the probability nor the time of changes."""
    often, rarely = steady(100_000, 1, 0.2), steady(100_000, 2, 0.2)
    visit_all(often, 0), visit_all(rarely, 0)
    changed = np.logical_or.reduce([visit_all(often, day).changed for day in (1, 1.5, 4)])
    at_end = visit_all(rarely, 4).changed
    assert changed.mean() == pytest.approx(at_end.mean(), abs=0.006)
    one, other = visit_all(often, 6).changed, visit_all(often, 8).changed
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(0, abs=0.015)


def test_a_digest_is_that_of_a_version() -> None:
    contents = steady(5_000, 1, 0.2)
    seen = [visit_all(contents, day) for day in range(10)]
    for before, after in pairwise(seen):
        assert ((before.digest == after.digest) == ~after.changed).all()
    versions = np.concatenate([found.digest[found.changed] for found in seen])
    assert len(np.unique(versions)) == len(versions)


@examples(30, 500)
@given(st.data())
def test_batches_and_the_visits_of_other_pages_change_nothing(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), min_size=1, max_size=40))
    numbers = np.array([page for page, _ in rows], np.int64)
    times = START_MS + np.cumsum([step for _, step in rows]) * DAY_MS // 4
    at_once = steady(5, 9, 0.3).visit(numbers, times)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    contents = steady(5, 9, 0.3)
    parts = [
        contents.visit(numbers[begin:end], times[begin:end])
        for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)
    ]
    for name in Observations._fields:
        assert np.concatenate([getattr(part, name) for part in parts]).tolist() == getattr(at_once, name).tolist()
    of_one = numbers == numbers[0]
    alone = steady(5, 9, 0.3).visit(numbers[of_one], times[of_one])
    for name in Observations._fields:
        assert getattr(alone, name).tolist() == getattr(at_once, name)[of_one].tolist()


def test_a_page_visited_twice_at_once_is_not_changed_the_second_time() -> None:
    looks = steady(1, 1, 1e6).visit(np.zeros(3, np.int64), np.full(3, START_MS))
    assert looks.changed.tolist() == [True, False, False]
    assert len(set(looks.digest.tolist())) == 1


def test_the_same_seed_gives_the_same_contents_and_another_seed_others() -> None:
    one, again, other = (Contents(1000, seed) for seed in (1, 1, 2))
    assert one.rates.tolist() == again.rates.tolist() != other.rates.tolist()
    looks = [visit_all(contents, 0) for contents in (one, again, other)]
    assert looks[0].digest.tolist() == looks[1].digest.tolist() != looks[2].digest.tolist()
    assert looks[0].last_modified_ms.tolist() == looks[1].last_modified_ms.tolist()


def test_the_pages_of_a_smaller_web_are_the_first_of_a_larger_one() -> None:
    small, large = Contents(10, 1), Contents(1000, 1)
    assert small.rates.tolist() == large.rates[:10].tolist()
    assert visit_all(small, 0).digest.tolist() == visit_all(large, 0).digest[:10].tolist()


def test_pages_that_never_change_are_as_old_as_the_clock() -> None:
    contents = steady(3, 1, 0.0)
    assert visit_all(contents, 0).last_modified_ms.tolist() == [0, 0, 0]
    assert not visit_all(contents, 10_000).changed.any()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Contents(-1, 0), "pages must not be negative, not -1"),
        (lambda: Contents(1, 0, -1.0), "median_per_day must be from 0 to 1000000, not -1.0"),
        (lambda: Contents(1, 0, float("nan")), "median_per_day must be"),
        (lambda: Contents(1, 0, 1.0, 13.0), "decades must be from 0 to 12, not 13.0"),
        (lambda: Contents(2, 0).visit(np.array([2]), np.array([1])), "numbers must be page numbers from 0 to 1"),
        (lambda: Contents(2, 0).visit(np.array([0]), np.array([1, 2])), "a time for each of 1 visits, not 2"),
        (lambda: Contents(2, 0).visit(np.array([0, 1]), np.array([2, 1])), "times_ms must not be negative, and ascend"),
        (lambda: Contents(2, 0).visit(np.array([0]), np.array([-1])), "times_ms must not be negative"),
    ],
)
def test_wrong_options_give_one_line_of_error(make, complaint) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        make()
    assert "\n" not in str(refusal.value)
