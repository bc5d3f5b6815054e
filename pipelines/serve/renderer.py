"""Pages from templates. Every value is escaped; charts are Markup, which only `charts` makes."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opicflow.pipelines.serve import charts, wording
from opicflow.pipelines.serve.view import HISTORY_PAGES, Series, View

_PACKAGE = "opicflow.pipelines.serve"
_MOST_IN_REPORT = 25


def render(template: str, **values: object) -> str:
    """The page of a template with these values."""
    return _environment().get_template(template).render(**values)


def render_report(view: View) -> str:
    """Return a self-contained page: no script, nothing is loaded, and its content security policy forbids both."""
    style = static_file("style.css").decode("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    records = [view.table.record(row) for row in range(min(_MOST_IN_REPORT, len(view.table)))]
    return render("report.html", view=view, records=records, is_report=True, style=Markup(style), style_digest=digest)


@cache
def static_file(name: str) -> bytes:
    """A file that pages load from here."""
    return files(_PACKAGE).joinpath("static").joinpath(name).read_bytes()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "safe_text": _safe_text,
        "plain": wording.safe,
        "number": _number,
        "percent": _percent,
        "minute": _minute,
        "second": wording.second,
        "iso": wording.iso,
        "span": wording.span,
        "trend": wording.trend,
        "bound": wording.bound,
        "short": wording.short,
        "zip_with": lambda one, other: list(zip(one, other, strict=True)),
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "path_part": lambda text: quote(text, safe=""),
    }
    environment.globals |= {
        "charts": charts,
        "words": wording.WORDS,
        "decisions": wording.DECISIONS,
        "known_from": wording.KNOWN_FROM,
        "whys": wording.WHY,
        "filter_names": wording.FILTERS,
        "reasons": wording.REASONS,
        "shorten": wording.short,
        "as_percent": wording.percent,
        "Series": Series,
        "positions_of": lambda series: sorted({at for one in series for at, _ in one.points}),
        "history_pages": HISTORY_PAGES,
        "is_report": False,
    }
    return environment


def _visible(value: object) -> object:
    """Whatever a template writes has no invisible characters, even where it names no filter."""
    return wording.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _safe_text(text: str, most: int = wording.LONGEST_SHOWN) -> Markup:
    """Text from a crawl: cut, invisible characters shown, its direction kept to itself."""
    return Markup("<bdi>{}</bdi>").format(wording.safe(text, most))


def _number(value: float | None) -> Markup | str:
    """A number, which the script writes as the reader's locale does."""
    shown = wording.number(value)
    if value is None or "·" in shown or shown == "—":
        return shown
    return Markup('<data value="{!r}">{}</data>').format(value, shown)


def _percent(share: float | None) -> Markup | str:
    shown = wording.percent(share)
    if share is None or "·" in shown or shown == "—":
        return shown
    return Markup('<data value="{!r}" class="percent">{}</data>').format(share, shown)


def _minute(time_ms: float | None) -> Markup | str:
    at = wording.iso(time_ms)
    return Markup('<time datetime="{}">{}</time>').format(at, wording.minute(time_ms)) if at else "—"
