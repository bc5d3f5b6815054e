"""A link is joined with its page as the library of URLs does it, with or without a call of the library."""

from __future__ import annotations

import ada_url
from hypothesis import example, given
from hypothesis import strategies as st

from opicflow.connectors.files.html_links import LinkResolver

BASES = st.sampled_from(
    ["https://a.example/d/p?q", "http://u:w@B.example:80/", "http://127.0.0.1:8080/x", "https://a.example"]
)


@given(
    BASES, st.lists(st.text("/.aZ0-~!$&()*+,;=:@?%2e# \\'\"|^é", max_size=12).map(lambda path: f"/{path}"), max_size=4)
)
@example(
    "https://a.example/d/p", ["/a/b", "/a/../b", "//c/d", "/.a", "/a.", "/a/.", "/a//b", "/a?b/../c?%2e", "/%2e/a"]
)
def test_a_link_is_joined_as_the_library_does_it(base: str, links: list[str]) -> None:
    resolver = LinkResolver(base)
    for link in links:
        given = link.strip(" ")
        try:
            expected = ada_url.join_url(base, given)
        except ValueError:
            expected = given
        assert resolver.absolute(link) == expected
