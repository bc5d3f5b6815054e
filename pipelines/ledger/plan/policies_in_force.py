"""The policies that a ledger has accepted: checked against its pages, kept while they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opicflow.pipelines.ledger.cash.certified.residuals import change_rules
from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY, check_certified_rules
from opicflow.pipelines.ledger.entries import RemovalReason
from opicflow.pipelines.ledger.errors import ConfigRefused
from opicflow.pipelines.ledger.pages.layout import P_CERTIFIED
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.ledger.plan.removal import FOR_EVER, Removal
from opicflow.pipelines.refresh import policies
from opicflow.pipelines.refresh.policies import Policies, Prefixes, Subscribers
from opicflow.schemas.arrays import Ids
from opicflow.schemas.policy_json import PolicyRefused, policy_from_json, policy_to_json
from opicflow.schemas.records import Policy

BUDGET_FIELDS = ("fetches_per_second", "discovery_share", "refresh_policy")
"""The fields of a policy that change the budget, by their stored names."""

_REQUESTED_SECONDS = 30 * SECONDS_PER_DAY
"""A request to fetch pages now ends after so long."""


class PoliciesInForce:
    """Accepts policies one by one and carries out what each demands at once; keeps the rest for plans."""

    def __init__(
        self,
        stated: Policies,
        budget: dict[str, Any],
        categories: int,
        room: Room,
        reader: Reader,
        removal: Removal,
    ) -> None:
        self.budget = budget
        """The values that policies have set, by the names in `BUDGET_FIELDS`."""
        self.forgetting: list[tuple[Prefixes, int]] = []
        """The prefixes whose pages are forgotten, and until which second."""
        self._categories = categories
        self._room = room
        self._reader = reader
        self._removal = removal
        self._hold(stated)

    @property
    def stated(self) -> Policies:
        """All policies that hold."""
        return self._stated

    @property
    def has_subscriptions(self) -> bool:
        """Whether anybody subscribed to the changes of any page."""
        return policies.has_subscriptions(self._stated)

    def subscribers(self, pages: Ids) -> Subscribers:
        """Return the subscribers to the changes of pages; pages that are not known have none."""
        slots = self._reader.slots_of(pages)
        found = policies.subscribers(self._stated, self._room.book.urls, self._room.table.url_start[slots], pages)
        return found._replace(rows=np.where(slots >= 0, found.rows, 0))

    def accept(self, given: Policy, second: int, refresh_per_day: Callable[[], float | None]) -> None:
        """A policy holds from this second on. Raises `PolicyRefused` for an impossible one, which changes nothing.

        `refresh_per_day` returns the fetches that pins may take; None = no limit was given.
        """
        policy = policy_from_json(policy_to_json(given))  # as a snapshot restores it
        policies.check(policy, self._categories)
        if self._room.book.modes[0].policy == P_CERTIFIED:
            try:
                check_certified_rules(policy.damping, policy.link_bonus_per_1024)
            except ConfigRefused as problem:
                raise PolicyRefused(str(problem)) from None
        self._check_not_forgotten(policy)
        stated = self._stated.add(policy, second)
        if policy.refresh_interval_seconds is not None:
            self._check_pins(stated, refresh_per_day())
        self._hold(stated)
        self.budget.update({name: v for name in BUDGET_FIELDS if (v := getattr(policy, name)) is not None})
        change_rules(self._room, policy.damping, policy.class_weights, policy.link_bonus_per_1024)
        if policy.drop or policy.forget:
            pages = self._pages_of(policy)
            if policy.forget:
                self._removal.forget(pages, _until(policy))
            else:
                self._removal.drop(pages, RemovalReason.DROPPED)

    def forget_pages(self, pages: tuple[int, ...]) -> None:
        """Forget pages for ever, with the policies for their URLs."""
        if not pages:
            return
        stated, ids = self._stated, frozenset(pages)
        for one in stated:
            if one.policy.url is not None and stated.page_ids.of(one.policy.url) in ids:
                stated = stated.add(Policy(url=one.policy.url, forget=True), 0)
        self._hold(stated)
        self._removal.forget(np.array(pages, np.uint64), FOR_EVER)

    def expire(self, second: int) -> None:
        """End the policies that held up to this second, and the requests that are too old."""
        left = self._stated.expire(1000 * second).without_requests_before(second - _REQUESTED_SECONDS)
        if left is not self._stated:
            self._hold(left)

    def _hold(self, stated: Policies) -> None:
        self._stated = stated
        self.forgetting = [
            (policies.prefixes_of((one.policy,)), _until(one.policy))
            for one in stated
            if one.policy.forget and one.policy.url is None
        ]

    def _pages_of(self, policy: Policy) -> Ids:
        """The page of a policy's URL, known or not; the known pages of its host or prefix."""
        if policy.url is not None:
            return self._stated.page_ids.of_all([policy.url])
        ids, slots = self._reader.live()
        room = self._room
        prefixes = policies.prefixes_of((policy,))
        return ids[policies.matches(prefixes, room.book.urls, room.table.url_start[slots])]

    def _check_not_forgotten(self, policy: Policy) -> None:
        """Refuse a policy for a forgotten page: it would bring the URL back."""
        if (
            policy.url is not None
            and not policy.forget
            and self._removal.is_forgotten(self._stated.page_ids.of(policy.url))
        ):
            raise PolicyRefused("url is a page that was forgotten: publish for pages that may be known")

    def _check_pins(self, stated: Policies, refresh_per_day: float | None) -> None:
        """Refuse pins that together need more fetches than there are for refreshing."""
        if refresh_per_day is None:
            return
        ids, slots = self._reader.live()
        room = self._room
        classes = room.table.pages["class_"][slots]
        is_read = (classes & 1) == 1
        intervals = policies.directives(
            stated, room.book.urls, room.table.url_start[slots], ids, (classes >> 1).astype(np.uint8)
        ).interval_seconds
        pinned = float((SECONDS_PER_DAY / intervals[(intervals > 0) & is_read]).sum())
        if pinned > refresh_per_day:
            raise PolicyRefused(
                f"pins would take {pinned:.6g} of the {refresh_per_day:.6g} fetches a day that there are for "
                "refreshing: give a longer interval, fewer pages or more bandwidth"
            )


def _until(policy: Policy) -> int:
    """The second from which the pages that a policy forgets may be learnt again."""
    return FOR_EVER if policy.expires_at_ms is None else -(-policy.expires_at_ms // 1000)
