"""A process keeps one object of a class for a run, until the run is closed."""

from __future__ import annotations

import pytest

from opicflow.connectors.runs import close_run, closing_run, find_kept, kept

closed: list[str] = []


class Ledgers:
    def __init__(self, name: str = "ledgers") -> None:
        self.name = name

    def close(self) -> None:
        closed.append(self.name)


class Broken(Ledgers):
    def close(self) -> None:
        super().close()
        raise ValueError(self.name)


@pytest.fixture(autouse=True)
def nothing_closed() -> None:
    closed.clear()


def test_a_run_has_one_object_of_a_class_and_shares_it_with_no_other_run() -> None:
    with closing_run("one"), closing_run("other"):
        assert find_kept("one", Ledgers) is None
        made = kept("one", Ledgers, "made")
        assert made.name == "made"
        assert kept("one", Ledgers, "not made") is made is find_kept("one", Ledgers)
        assert kept("other", Ledgers) is not made


def test_a_closed_run_has_closed_all_and_begins_anew() -> None:
    first = kept("run", Ledgers, "first")
    kept("run", Broken, "broken")
    with closing_run("beside"):
        kept("beside", Ledgers, "beside")
        with pytest.raises(ValueError, match="broken"):
            close_run("run")
        assert closed == ["broken", "first"], "the newest first, and one that fails keeps no other open"
        assert find_kept("run", Ledgers) is None
        with closing_run("run"):
            assert kept("run", Ledgers) is not first
    assert closed == ["broken", "first", "ledgers", "beside"]
    close_run("run")
    assert len(closed) == 4
