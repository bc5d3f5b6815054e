"""docs/guides/serve.md names every option and address of `opicflow serve`, and its pictures are there and small."""

from __future__ import annotations

import re

from opicflow.pipelines.cli.parser import build_parser
from opicflow.pipelines.serve.json_api import ENDPOINTS
from opicflow.pipelines.serve.page_table import MOST_LOOKED_AT
from opicflow.pipelines.serve.web_app import web_app
from support.paths import TOP
from support.views import GivenView

GUIDE = (TOP / "docs" / "guides" / "serve.md").read_text(encoding="utf-8")


def test_the_guide_names_every_option() -> None:
    words = build_parser(("serve",)).format_help()
    assert "serve" in words
    parser = build_parser(("serve",))._subparsers
    assert parser is not None
    (commands,) = (action for action in parser._group_actions if action.choices)
    options = {name for action in commands.choices["serve"]._actions for name in action.option_strings}  # type: ignore
    named = set(re.findall(r"^\| `(--[a-z-]+)", GUIDE, re.MULTILINE))
    assert named == {name for name in options if name.startswith("--")} - {"--help", "--config"}


def test_the_guide_names_every_address_for_programs() -> None:
    named = set(re.findall(r"`(/[a-z./]*)", GUIDE))
    assert {one.path for one in ENDPOINTS} | {"/metrics", "/healthz", "/api", "/api/openapi.json"} <= named
    there = {getattr(route, "path", "") for route in web_app(GivenView()).routes}
    assert named - there == set()


def test_the_guide_states_the_limit_of_a_search() -> None:
    assert f"{MOST_LOOKED_AT:,} URLs" in GUIDE


def test_pictures_are_there_and_small() -> None:
    shown = re.findall(r"!\[[^]]+\]\(\.\./pictures/([a-z-]+\.png)\)", GUIDE)
    assert len(shown) == 4
    for picture in (TOP / "docs" / "pictures").glob("*.png"):
        assert picture.stat().st_size < 60_000
    assert all((TOP / "docs" / "pictures" / name).is_file() for name in shown)
