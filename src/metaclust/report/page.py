"""The page: the template filled in, with styles, script and data inside it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from metaclust.inference.result import Clustering
from metaclust.report.cards import Card
from metaclust.report.headline import alternatives, data_words, figures, headline, sureness
from metaclust.report.palette import colours
from metaclust.report.points import TEXT, map_data
from metaclust.report.projection import Projection
from metaclust.report.wording import counted, number, percent, shortened

OPEN_CARDS = 30
"""Cards after these are closed until they are asked for."""
MOST_CATEGORIES = 40
"""Categories in the table of clusters against categories."""
ROOM = 24
"""How far apart two numbers of clusters are in the chart, so as not to be on each other."""
SCRIPTS = ("map.js", "gestures.js", "page.js")


@dataclass(frozen=True)
class CrossTable:
    """Rows of known categories by cluster: the largest categories, those of the first clusters first."""

    names: list[str]
    counts: NDArray[np.int64]
    """(categories, clusters)"""
    left_out: int


def page(clustering: Clustering, projection: Projection, cards: Sequence[Card], title: str | None) -> str:
    """The whole HTML file."""
    environment = Environment(
        loader=PackageLoader("metaclust.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "number": number, "breakable": breakable}
    environment.globals |= {"counted": counted}
    script = "\n".join(read(name) for name in SCRIPTS)
    data = data_words(clustering)
    light, dark = colours(clustering.n_clusters)
    return environment.get_template("report.html.j2").render(
        title=title or ": ".join(part for part in (data.split(": ")[0], headline(clustering)) if part),
        eyebrow=title or data,
        data=data if title else "",
        headline=headline(clustering),
        sureness=sureness(clustering),
        chart=chart(clustering),
        figures=figures(clustering),
        rows=len(clustering),
        clusters=clustering.n_clusters,
        unsure=int(clustering.unsure.sum()),
        kind="ids" if clustering.rows is None else clustering.rows.kind,
        categories=clustering.categories is not None,
        projection=projection,
        cut=shown_characters(clustering, projection),
        cards=cards,
        open_cards=OPEN_CARDS,
        colours=list(zip(light, dark, strict=True)),
        table=cross_table(clustering),
        about=listing(clustering.about),
        # These are the package's own files, and JSON that cannot end the element it is in.
        css=Markup(read("report.css")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        map_json=Markup(json_for_html(map_data(clustering, projection))),  # noqa: S704
    )


def shown_characters(clustering: Clustering, projection: Projection) -> int:
    """How many characters of a text are on the map; 0 if none of its texts is longer."""
    texts = None if clustering.rows is None else clustering.rows.values
    cut = isinstance(texts, list) and any(len(texts[i]) > TEXT for i in projection.rows.tolist())
    return TEXT if cut else 0


def read(name: str) -> str:
    return resources.files("metaclust.report").joinpath("templates", name).read_text(encoding="utf-8")


def json_for_html(value: Any) -> str:
    r"""JSON in which nothing can end a script element, begin a comment or end a line of a script.

    >>> json_for_html("</script><!--") == r'"\u003c/script\u003e\u003c!--"'
    True
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"})


def chart(clustering: Clustering) -> dict[str, Any] | None:
    """The best bound of each number of clusters as places in a drawing of 300 by 96; None if there is one number."""
    found = alternatives(clustering)
    if len(found) < 2:
        return None
    first, last = found[0].clusters, found[-1].clusters
    worst = max(answer.worse for answer in found) or 1.0
    points: list[dict[str, Any]] = [
        {
            "x": round(14 + 272 * (answer.clusters - first) / (last - first), 1),
            "y": round(10 + 76 * answer.worse / worst, 1),
            "answer": answer,
        }
        for answer in found
    ]
    best = next(point["x"] for point in points if point["answer"].worse == 0)
    for point in points:
        # The ends and the best have their number below them, unless an end is so near that it would be on the best's.
        end = point["answer"].clusters in (first, last)
        point["labelled"] = point["x"] == best or (end and abs(point["x"] - best) >= ROOM)
    return {"points": points, "worst": max(found, key=lambda answer: answer.worse)}


def breakable(name: str) -> Markup:
    """A name that may go on in the next line after an underscore, escaped.

    >>> breakable("mean_of_<b>")
    Markup('mean_<wbr>of_<wbr>&lt;b&gt;')
    """
    return Markup("_<wbr>").join(name.split("_"))


def cross_table(clustering: Clustering) -> CrossTable | None:
    """None where no categories are known."""
    if clustering.categories is None:
        return None
    names, numbers = np.unique(np.array(clustering.categories, dtype=object), return_inverse=True)
    counts = np.zeros((len(names), clustering.n_clusters), np.int64)
    np.add.at(counts, (numbers, clustering.labels), 1)
    kept = np.sort(np.argsort(-counts.sum(1), kind="stable")[:MOST_CATEGORIES])
    kept = kept[np.lexsort((-counts[kept].max(1), counts[kept].argmax(1)))]
    return CrossTable([shortened(names[i], 60) for i in kept.tolist()], counts[kept], len(names) - len(kept))


def listing(about: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and what they stand for: a text, or a listing again."""
    return [(str(name).replace("_", " "), entry(value)) for name, value in about.items()]


def entry(value: Any) -> Any:
    if isinstance(value, Mapping):
        return listing(value)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(str(part) for part in value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)
