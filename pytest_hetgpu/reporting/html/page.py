"""The pages of a run and of many nights: a template for each, with its style, its scripts and its data.

Charts are drawn by plotly. Its script is compressed in the page, and the browser unpacks it for the first visible
chart. So are the measurements of many nights. So a page of thousands of cells opens at once.
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

SCRIPTS = (
    "dom.js",
    "store.js",
    "matrix.js",
    "charts.js",
    "timeline.js",
    "cell.js",
    "sections.js",
    "scaling.js",
    "filters.js",
    "main.js",
)
NIGHT_SCRIPTS = (
    "dom.js",
    "store.js",
    "charts.js",
    "filters.js",
    "night_grid.js",
    "night_cell.js",
    "night_keys.js",
    "nights.js",
)
"""The scripts of the page of nights."""


def render(facts: Mapping[str, Any]) -> str:
    """Render `index.html` from the result of `page_data`."""
    scripts = Markup("\n").join(_read_asset(name) for name in SCRIPTS)
    return template().render(
        facts=facts,
        style=_read_asset("style.css"),
        script=scripts,
        charts=packed_charts() if any({"series", "timeline"} & cell.keys() for cell in facts["cells"]) else "",
    )


def render_nights(facts: Mapping[str, Any]) -> str:
    """Render the page of nights from the result of `nights_data`."""
    return template("nights.html.j2").render(
        facts={name: value for name, value in facts.items() if name != "numbers"},
        numbers=_packed(json.dumps(facts["numbers"], separators=(",", ":"), allow_nan=False).encode("ascii"), 9),
        style=_read_asset("style.css"),
        script=Markup("\n").join(_read_asset(name) for name in NIGHT_SCRIPTS),
        charts=packed_charts() if any("speeds" in cell for cell in facts["cells"]) else "",
    )


@cache
def template(name: str = "index.html.j2") -> Template:
    """Return the template of a page, compiled once."""
    loader = PackageLoader("pytest_hetgpu.reporting.html", "assets")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return made.get_template(name)


def _read_asset(name: str) -> Markup:
    text = (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own files; the data of a run goes through `tojson`, which leaves no markup


@cache
def packed_charts() -> str:
    """Return plotly's script, gzip in base64; "" if it is not installed: then the page has tables instead of charts."""
    spec = importlib.util.find_spec("plotly")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        script = Path(place) / "package_data" / "plotly.min.js"
        if script.is_file():
            return _packed(script.read_bytes(), 4)
    return ""


def _packed(data: bytes, level: int) -> str:
    return base64.b64encode(gzip.compress(data, level, mtime=0)).decode("ascii")
