"""Which policies hold for a page."""

from __future__ import annotations

from collections.abc import Iterable

from opicflow.pipelines.refresh.policies import governs
from opicflow.pipelines.results.policy_words import in_words
from opicflow.schemas.policy_json import policy_to_json
from opicflow.schemas.records import Policy


def policies_of_page(policies: Iterable[Policy], url: str, host: str, category: int) -> list[dict[str, object]]:
    """Return the policies in force that are about a page, or about the whole crawl, the latest first.

    Each has its `sentence`, and `holds`: of rules about pages the latest governs, and earlier ones wait behind it.
    """
    found, is_governed = [], False
    for policy in reversed(list(policies)):
        if _is_about(policy, url, host, category):
            holds = not (governs(policy) and is_governed)
            is_governed |= governs(policy)
            found.append({"sentence": in_words(policy), "holds": holds, "policy": policy_to_json(policy)})
    return found


def _is_about(policy: Policy, url: str, host: str, category: int) -> bool:
    return (
        policy.url in (None, url)
        and policy.host in (None, host)
        and (policy.url_prefix is None or url.startswith(policy.url_prefix))
        and policy.category in (None, category)
    )
