"""The HTML page: the template with styles, script and data inlined."""

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
from metaclust.report.cards import ClusterCard
from metaclust.report.content import Content
from metaclust.report.headline import alternatives, certainty, data_description, headline, metrics
from metaclust.report.palette import colours
from metaclust.report.points import map_data
from metaclust.report.projection import Projection
from metaclust.report.wording import counted, number, percent, shortened

OPEN_CARDS = 30
"""Number of cards that are open at first."""
MAX_CATEGORIES = 40
"""Largest number of categories in the contingency table."""
LABEL_DISTANCE = 24
"""Smallest distance of two labels in the chart."""
SCRIPTS = ("map.js", "gestures.js", "page.js")


@dataclass(frozen=True)
class CrossTable:
    """Contingency table of known categories and clusters; the largest categories, ordered by their main cluster."""

    names: list[str]
    counts: NDArray[np.int64]
    """(categories, clusters)"""
    omitted: int


def page(
    clustering: Clustering, content: Content, projection: Projection, cards: Sequence[ClusterCard], title: str | None
) -> str:
    """Return the whole HTML file."""
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
    data = data_description(clustering, content)
    light, dark = colours(clustering.n_clusters)
    return environment.get_template("report.html.j2").render(
        title=title or ": ".join(part for part in (data.split(": ")[0], headline(clustering)) if part),
        eyebrow=title or data,
        data=data if title else "",
        headline=headline(clustering),
        certainty=certainty(clustering),
        chart=chart(clustering),
        metrics=metrics(clustering),
        rows=len(clustering),
        clusters=clustering.n_clusters,
        unsure=int(clustering.unsure.sum()),
        outliers=int(clustering.outlier.sum()),
        layout=content.layout,
        categories=clustering.categories is not None,
        projection=projection,
        cut=content.characters_on_map(projection.rows.tolist()),
        sections=sections(cards),
        cards=cards,
        open_cards=OPEN_CARDS,
        colours=list(zip(light, dark, strict=True)),
        table=cross_table(clustering),
        about=listing(clustering.about),
        # The package's own files, and JSON that cannot close its element.
        css=Markup(read("report.css")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        map_json=Markup(json_for_html(map_data(clustering, content, projection))),  # noqa: S704
    )


def read(name: str) -> str:
    return resources.files("metaclust.report").joinpath("templates", name).read_text(encoding="utf-8")


def json_for_html(value: Any) -> str:
    r"""Return JSON that cannot close a script element, open a comment or break a line.

    >>> json_for_html("</script><!--") == r'"\u003c/script\u003e\u003c!--"'
    True
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"})


def sections(cards: Sequence[ClusterCard]) -> list[dict[str, Any]]:
    """Return the cards of new clusters and those of known categories, or one section if there are only new ones."""
    known, new = [card for card in cards if not card.is_new], [card for card in cards if card.is_new]
    if not known:
        return [{"id": "all", "title": "Clusters", "note": "", "cards": new}]
    found = [
        {
            "id": "new",
            "title": f"New ({len(new)})",
            "note": "Clusters of rows that are of no category the model was trained on.",
            "cards": new,
        },
        {
            "id": "known",
            "title": f"Known categories ({len(known)})",
            "note": "Categories that the model was trained on, found again in these rows.",
            "cards": known,
        },
    ]
    return [section for section in found if section["cards"]]


def chart(clustering: Clustering) -> dict[str, Any] | None:
    """Return the best fit of each number of clusters as points in a drawing of 300 by 96; None if there is only one."""
    answers = alternatives(clustering)
    if len(answers) < 2:
        return None
    first, last = answers[0].clusters, answers[-1].clusters
    worst = max(answer.worse for answer in answers) or 1.0
    points: list[dict[str, Any]] = [
        {
            "x": round(14 + 272 * (answer.clusters - first) / (last - first), 1),
            "y": round(10 + 76 * answer.worse / worst, 1),
            "answer": answer,
        }
        for answer in answers
    ]
    best = min(points, key=lambda point: point["answer"].worse)["x"]
    for point in points:
        # Label the best point, and the ends unless they are too near to it.
        end = point["answer"].clusters in (first, last)
        point["labelled"] = point["x"] == best or (end and abs(point["x"] - best) >= LABEL_DISTANCE)
    return {"points": points, "worst": max(answers, key=lambda answer: answer.worse)}


def breakable(name: str) -> Markup:
    """Return an escaped name that may be broken after an underscore.

    >>> breakable("mean_of_<b>")
    Markup('mean_<wbr>of_<wbr>&lt;b&gt;')
    """
    return Markup("_<wbr>").join(name.split("_"))


def cross_table(clustering: Clustering) -> CrossTable | None:
    """Return the contingency table; None without known categories."""
    if clustering.categories is None:
        return None
    names, numbers = np.unique(np.array(clustering.categories, dtype=object), return_inverse=True)
    counts = np.zeros((len(names), clustering.n_clusters), np.int64)
    np.add.at(counts, (numbers, clustering.labels), 1)
    kept = np.sort(np.argsort(-counts.sum(1), kind="stable")[:MAX_CATEGORIES])
    kept = kept[np.lexsort((-counts[kept].max(1), counts[kept].argmax(1)))]
    return CrossTable([shortened(names[i], 60) for i in kept.tolist()], counts[kept], len(names) - len(kept))


def listing(about: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return pairs of a name and a text or a nested list of pairs."""
    return [(str(name).replace("_", " "), entry(value)) for name, value in about.items()]


def entry(value: Any) -> Any:
    if isinstance(value, Mapping):
        return listing(value)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(str(part) for part in value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)
