"""Sites of URLs get numbers in the order in which they occur."""

from __future__ import annotations

import pytest

from opicflow.schemas.sites import SITE_KINDS, SiteNumbering


def test_many_sites_get_numbers_in_their_order() -> None:
    urls = [f"https://h{number * 7919 % 150_000}.example{number % 3}.com/{number}" for number in range(200_000)]
    for by in SITE_KINDS:
        numbering = SiteNumbering(by)
        found = numbering.number_all(urls)
        hosts = [url.split("/")[2] for url in urls]
        names = hosts if by == "host" else [host.partition(".")[2] for host in hosts]
        known = list(dict.fromkeys(names))
        assert numbering.names() == known
        order = {name: number for number, name in enumerate(known)}
        assert found.tolist() == [order[name] for name in names]
        assert numbering.names([1, 0]) == [known[1], known[0]]


@pytest.mark.parametrize(
    "text, host",
    [
        ("https://a.example/x?y#z", "a.example"),
        ("https://a.example?x", "a.example"),
        ("a.example", "a.example"),
        ("a.example:80/x", "a.example:80"),
        ("http://[::1]:80/", "[::1]:80"),
        ("", None),
        ("https://", None),
    ],
)
def test_hosts_of_urls_and_of_plain_hosts(text: str, host: str | None) -> None:
    numbering = SiteNumbering("host")
    assert numbering.number_all([text]).tolist() == [-1 if host is None else 0]
    assert numbering.names() == ([] if host is None else [host])
