"""The report as a file: what it says, what it shows of the rows, and that nothing in it can do harm."""

import base64
import hashlib
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scipy import sparse
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from metaclust.data.kinds import KINDS, DataKind
from metaclust.data.rows import DataError, Rows
from metaclust.inference.result import Clustering, Start
from metaclust.mixture.components import Components
from metaclust.report import projection, write_report
from metaclust.report.distinctive import ColumnStatistics, distinctive_words
from metaclust.report.headline import alternatives, certainty, metrics
from metaclust.report.palette import colours
from metaclust.report.projection import positions, sampled

HOSTILE = ["<script>alert(1)</script>", '"></td><img src=x onerror=alert(1)>', "</script><!-- \u2028 & {{ 7 * 7 }}"]


def made(n=60, k=3, kind="text", *, rows=True, categories=True, seed=0, spread=0.5, **changes):
    """A clustering of ``n`` rows of a kind, with clusters around random means."""
    rng = np.random.default_rng(seed)
    labels = np.sort(np.arange(n) % k).astype(np.int64)
    means = 4 * rng.normal(size=(k, 6))
    z = (means[labels] + spread * rng.normal(size=(n, 6))).astype(np.float32)
    probabilities = np.full((n, k), 0.3 / k) + (0.7 - 0.4 * rng.random(n)[:, None]) * np.eye(k)[labels]
    probabilities /= probabilities.sum(1, keepdims=True)
    if kind == "images":
        values = rng.integers(0, 256, (n, 1, 12, 10), dtype=np.uint8)
    elif kind == "vectors":
        values = (z @ rng.normal(size=(6, 5))).astype(np.float32)
    else:
        values = [f"number{i} topic{label} shared" for i, label in enumerate(labels)]
    columns = tuple("abcde") if kind == "vectors" else ()
    data = Rows(kind, values, [f"row-{i}" for i in range(n)], None, columns, "things.csv")
    given = {
        "labels": labels,
        "confidence": probabilities.max(1),
        "representations": z,
        "components": Components(np.full(k, 1 / k), means, np.ones(k), np.zeros(k)),
        "bound": -5.0 * n,
        "starts": (Start(k, -5.0 * n), Start(k, -5.2 * n), Start(k + 1, -5.6 * n)),
        "ids": data.ids,
        "threshold": 0.5,
        "categories": [f"kind {label}" for label in labels] if categories else None,
        "about": {"data": data.source, "kind": kind, "rows": n, "versions": {"metaclust": "1.2.3"}},
        "rows": data if rows else None,
    }
    return Clustering(**{**given, **changes})


def with_values(clustering, values, **changes):
    return replace(clustering, rows=replace(clustering.rows, values=values, **changes))


class Page(HTMLParser):
    """The elements of a page with their attributes and the text inside them, in their order."""

    VOID = frozenset(("wbr", "meta", "link", "input", "img", "br", "line", "polyline", "circle"))

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag=None, **wanted):
        """Elements by tag and attributes; ``class_`` is one of their classes."""
        one = wanted.pop("class_", None)
        return [
            element
            for element in self.elements
            if (tag is None or element["tag"] == tag)
            and (one is None or one in (element.get("class") or "").split())
            and all(element.get(name) == value for name, value in wanted.items())
        ]

    def one(self, **wanted):
        (found,) = self.all(**wanted)
        return found

    @property
    def map(self):
        return json.loads(self.one(id="map-data")["text"])


@pytest.fixture
def report(tmp_path):
    """Writes a report and reads the page."""

    def write(clustering, **options):
        path = write_report(clustering, tmp_path / "report.html", force=True, progress=False, **options)
        return Page(path.read_text(encoding="utf-8"))

    return write


@pytest.fixture
def _quick_map(monkeypatch):
    """Principal components in place of t-SNE, for tests that do not look at the map."""
    monkeypatch.setattr(projection, "MIN_ROWS_FOR_TSNE", 10**9)


def pixels(uri):
    head, content = uri.split(",")
    assert head in ("data:image/png;base64", "data:image/jpeg;base64")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


# The page


def test_what_a_person_sees_comes_in_order(report):
    page = report(made())
    order = [page.elements.index(page.one(id=name)) for name in ("found", "map", "clusters", "table-title")]
    assert order == sorted(order)
    assert page.one(id="found")["text"] == "60 rows, 3 clusters"
    assert [heading["text"] for heading in page.all("h2")] == [
        "Map",
        "Clusters",
        "Clusters and known categories",
        "How to read it",
        "How it was made",
    ]
    assert "things.csv: texts" in page.one(class_="eyebrow")["text"]
    assert page.all("title")[0]["text"] == "things.csv: 60 rows, 3 clusters"
    assert "1.2.3" in page.all("dl", class_="about")[0]["text"]


def test_a_title_takes_the_place_of_the_data(report):
    page = report(made(), title="Tickets & complaints")
    assert page.all("title")[0]["text"] == page.one(class_="eyebrow")["text"] == "Tickets & complaints"
    assert "things.csv" in page.one(class_="headline")["text"]


@pytest.mark.usefixtures("_quick_map")
def test_every_cluster_has_a_card_and_a_legend_entry_and_those_beyond_thirty_are_closed(report):
    page = report(made(300, 100))
    cards = page.all(class_="card")
    assert [card["id"] for card in cards] == [f"cluster-{i}" for i in range(100)]
    assert [card["tag"] for card in cards] == ["article"] * 30 + ["details"] * 70
    assert all("open" not in card for card in cards)
    assert [chip["data-cluster"] for chip in page.all(class_="chip")] == [str(i) for i in range(100)]
    assert "3 rows" in cards[99]["text"]
    assert "1%" in cards[99]["text"]


@pytest.mark.parametrize("kind", ["text", "images", "vectors"])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (40, 1), (40, 4)])
def test_any_kind_of_rows_few_or_many_is_reported(report, kind, rows, n, k):
    page = report(made(n, k, kind, rows=rows))
    assert page.one(id="found")["text"].startswith(f"{n} row{'s' * (n > 1)}, {k} cluster{'s' * (k > 1)}")
    assert page.map["id"] == [f"row-{i}" for i in range(n)]
    assert [page.map[part] is not None for part in ("text", "sheets", "numbers")] == [
        rows and kind == part for part in ("text", "images", "vectors")
    ]
    assert ("row-" in page.one(id="cluster-0")["text"]) == (not rows or kind == "vectors")


@pytest.mark.usefixtures("_without_type_checks")
def test_rows_of_a_kind_without_content_are_shown_by_their_ids(report, monkeypatch):
    films = DataKind("films", "film", "films", "strings", "bytes", {"": "vectors"})
    monkeypatch.setitem(KINDS, "films", films)
    clustering = made(40, 4)
    page = report(with_values(clustering, [b"\x00\x01"] * 40, kind="films"))
    assert page.one(class_="eyebrow")["text"] == "things.csv: films"
    shown = {item["text"] for item in page.all("span", class_="text")}
    assert len(shown) > 20
    assert shown <= set(clustering.ids)
    assert [page.map[part] for part in ("text", "sheets", "numbers", "columns")] == [None, None, None, []]


def test_an_empty_cluster_is_pointed_out(report):
    clustering = made(40, 3)
    labels = np.where(clustering.labels == 2, 1, clustering.labels)
    page = report(replace(clustering, labels=labels, about={**clustering.about, "assigned": True}))
    assert "No row is assigned to this cluster" in page.one(id="cluster-2")["text"]
    assert "found in other rows" in page.one(class_="headline")["text"]


def test_rows_without_known_categories_have_no_scores_and_no_table(report):
    page = report(made(categories=False))
    assert not page.all(class_="cross")
    assert [term["text"] for term in page.all("dt") if term["text"] in ("ARI", "NMI", "ACC", "K error")] == []
    assert page.map["category"] is None


# Safety


def test_hostile_text_stays_text_wherever_it_comes_from(report):
    clustering = made(30, 2, "text")
    values = [HOSTILE[i % 3] for i in range(30)]
    ids = [f"{text} {i}" for i, text in enumerate(values)]
    hostile = replace(
        with_values(clustering, values, ids=ids, source=HOSTILE[0]),
        ids=ids,
        categories=values,
        about={HOSTILE[1]: {HOSTILE[2]: HOSTILE[0]}, "data": HOSTILE[1]},
    )
    for page in (report(hostile, title=HOSTILE[1]), report(replace(hostile, rows=None))):
        assert len(page.all("script")) == 2
        assert not page.all("img")
        assert not [name for element in page.elements for name in element if name.startswith("on")]
        assert page.map["id"] == ids
        assert HOSTILE[0] in page.one(class_="cross")["text"]
    page = report(hostile)
    assert page.map["text"][:2] == HOSTILE[:2]
    assert page.map["text"][2] == "</script><!-- & {{ 7 * 7 }}"
    assert {item["text"] for item in page.all("span", class_="text")} == set(page.map["text"])


def test_hostile_names_of_columns_stay_text(report):
    clustering = made(30, 2, "vectors")
    page = report(with_values(clustering, clustering.rows.values, columns=(*HOSTILE, "d", "e")))
    assert len(page.all("script")) == 2
    assert not page.all("img")
    assert HOSTILE[1] in [cell["text"] for cell in page.all("th")]
    assert set(page.map["columns"]) == {*HOSTILE, "d", "e"}


def test_nothing_is_loaded_and_only_the_reports_own_script_may_run(report):
    page = report(made(60, 3, "images"))
    policy = page.one(**{"http-equiv": "Content-Security-Policy"})["content"]
    script = page.all("script")[-1]["text"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    assert "img-src data:" in policy
    loads = [element[name] for element in page.elements for name in ("src", "href") if element.get(name)]
    assert len(loads) > 40
    assert all(load.startswith(("data:", "#")) for load in loads)
    styles = page.one(tag="style")["text"]
    assert "url(" not in styles
    assert "@import" not in styles


def test_text_that_has_no_utf8_and_no_words_is_reported(report):
    page = report(with_values(made(3, 1), ["\ud800 half", "", " \n\t "]))
    assert page.map["text"] == ["? half", "", ""]


# The file


def test_the_same_clustering_gives_the_same_bytes_with_any_number_of_threads(tmp_path):
    clustering = made(200, 5, spread=3.0)
    first = write_report(clustering, tmp_path / "a.html", progress=False).read_bytes()
    with threadpool_limits(2):
        assert write_report(clustering, tmp_path / "b.html").read_bytes() == first
    assert b"t-SNE" in first


def test_an_existing_file_is_kept_unless_forced(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=rf"{re.escape(str(path))}.*force=True"):
        write_report(made(), path)
    assert path.read_text() == "mine"
    assert write_report(made(), path, force=True) == path
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; create it first"):
        write_report(made(), tmp_path / "nowhere" / "report.html")
    with pytest.raises(IsADirectoryError, match="is a folder: give the path of a file"):
        write_report(made(), tmp_path, force=True)


def test_a_report_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(made(), path, force=True)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_rows_that_were_not_clustered_are_refused(tmp_path):
    clustering = made()
    with pytest.raises(DataError, match="rows has 59 rows, but 60 were clustered"):
        write_report(replace(clustering, rows=clustering.rows.take(range(59))), tmp_path / "a.html")
    with pytest.raises(DataError, match=r"rows.ids\[0\] is 'row-59', but 'row-0' was clustered there"):
        write_report(replace(clustering, rows=clustering.rows.take(range(59, -1, -1))), tmp_path / "a.html")
    with pytest.raises(ValueError, match="map_rows=0: it must be 1 or more"):
        write_report(clustering, tmp_path / "a.html", map_rows=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_quick_map")
@pytest.mark.parametrize("kind", ["images", "text"])
def test_fifty_thousand_rows_stay_under_fifteen_megabytes(tmp_path, kind):
    rng = np.random.default_rng(0)
    n, k = 50_000, 100
    clustering = made(n, k, "text")
    if kind == "images":
        # Noise, which no format makes small.
        noise = np.lib.stride_tricks.sliding_window_view(rng.integers(0, 256, n + 3 * 40 * 40, dtype=np.uint8), 4800)
        data = replace(clustering.rows, kind="images", values=noise[:n].reshape(n, 3, 40, 40))
    else:
        words = [f"{'wörd' * 10}{i}" for i in range(3000)]
        data = replace(
            clustering.rows, values=[" ".join(words[i] for i in row) for row in rng.integers(0, 3000, (n, 8)).tolist()]
        )
    path = write_report(replace(clustering, rows=data), tmp_path / "report.html", progress=False)
    assert 500_000 < path.stat().st_size < 15_000_000
    page = Page(path.read_text(encoding="utf-8"))
    assert len(page.map["id"]) == 3000
    assert "3,000 of 50,000 rows are on the map" in page.one(id="map-panel")["text"]


# The map


def test_the_map_holds_the_right_row_at_each_point(report):
    clustering = made(500, 7, "text")
    page = report(clustering, map_rows=90)
    shown = [int(name.removeprefix("row-")) for name in page.map["id"]]
    assert len(shown) == 90
    assert page.map["text"] == [clustering.rows.values[i] for i in shown]
    assert page.map["cluster"] == clustering.labels[shown].tolist()
    assert page.map["unsure"] == clustering.unsure[shown].astype(int).tolist()
    assert [page.map["categories"][i] for i in page.map["category"]] == [clustering.categories[i] for i in shown]
    # Well separated clusters are apart on the map: nearest neighbours are of the same cluster.
    points = np.array([page.map["x"], page.map["y"]]).T
    distance = np.square(points[:, None] - points).sum(-1) + 10**12 * np.eye(90, dtype=int)
    nearest = distance.argmin(1)
    assert (clustering.labels[shown] == clustering.labels[shown][nearest]).mean() > 0.95


@pytest.mark.usefixtures("_quick_map")
def test_pictures_of_the_map_are_those_of_its_rows(report):
    clustering = made(1100, 4, "images")
    data = report(clustering, map_rows=1050).map
    sheets = data["sheets"]
    shown = [int(name.removeprefix("row-")) for name in data["id"]]
    assert (sheets["width"], sheets["height"], len(sheets["images"])) == (10, 12, 2)
    opened = [pixels(sheet) for sheet in sheets["images"]]
    for place in (0, 31, 32, 1023, 1024, 1049):
        line, column = divmod(place % 1024, 32)
        y, x = line * sheets["down"], column * sheets["across"]
        tile = opened[place // 1024][y : y + 12, x : x + 10]
        assert np.array_equal(tile, clustering.rows.values[shown[place], 0])


def test_large_colour_pictures_are_made_small_and_keep_their_proportions(report):
    ramp = np.linspace(0, 255, 200).astype(np.uint8)
    values = np.broadcast_to(ramp, (20, 3, 100, 200)).copy()
    values[10:, 1:] = 0
    page = report(with_values(made(20, 2, "images"), values))
    sheets = page.map["sheets"]
    assert (sheets["width"], sheets["height"]) == (64, 32)
    small = pixels(page.all("img")[0]["src"]).astype(float)
    assert small.shape == (32, 64, 3)
    np.testing.assert_allclose(small[16, :, 0], np.linspace(0, 255, 64), atol=6)


def test_thinning_keeps_every_cluster_and_the_proportions():
    sizes = np.array([40_000, 9_000, 900, 60, 30, 8, 2])
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(7), sizes)).astype(np.int64)
    rows = sampled(labels, 3000)
    kept = np.bincount(labels[rows], minlength=7)
    assert len(rows) == len(set(rows.tolist())) == 3000
    assert np.array_equal(rows, sampled(labels, 3000))
    assert kept[5:].tolist() == [8, 2]
    assert kept.min() >= 2
    assert kept[3] >= 20
    assert kept[4] >= 20
    assert kept[0] / kept[1] == pytest.approx(40 / 9, rel=0.05)
    # Drawn from all over the cluster, not from its beginning.
    assert np.median(rows[labels[rows] == 0]) == pytest.approx(len(labels) / 2, rel=0.1)
    assert np.array_equal(sampled(labels[:50], 50), np.arange(50))


def test_fewer_places_than_clusters_give_one_row_of_each():
    labels = np.repeat(np.arange(50), 3).astype(np.int64)
    assert np.array_equal(np.bincount(labels[sampled(labels, 10)]), np.ones(50))


def test_few_or_equal_or_one_dimensional_rows_are_placed_by_principal_components():
    rng = np.random.default_rng(0)
    few = rng.normal(size=(9, 4)).astype(np.float32)
    found, method = positions(few)
    assert method == "principal components"
    expected = PCA(2).fit_transform(few.astype(np.float64))
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)
    for rows in (np.ones((30, 4), np.float32), rng.normal(size=(30, 1)).astype(np.float32), few[:1], few[:2]):
        found, method = positions(rows)
        assert method == "principal components"
        assert found.shape == (len(rows), 2)
        assert np.isfinite(found).all()
    assert positions(rng.normal(size=(30, 4)).astype(np.float32))[1] == "t-SNE"


def test_equal_rows_are_in_the_middle_of_the_map(report):
    clustering = made(30, 1)
    page = report(replace(clustering, representations=np.ones_like(clustering.representations)))
    assert set(page.map["x"]) == set(page.map["y"]) == {page.map["grid"] // 2}


def test_long_texts_are_cut_on_the_map_and_that_is_said(report):
    clustering = made(12, 2)
    said = "Only the first 300 characters of long texts are shown and searched"
    assert said not in report(clustering).one(id="map-panel")["text"]
    page = report(with_values(clustering, [*clustering.rows.values[:-1], "many words " * 1000]))
    assert said in page.one(id="map-panel")["text"]
    assert len(page.map["text"][-1]) in (299, 300)
    assert page.map["text"][-1].startswith("many words many")
    assert page.map["text"][-1].endswith("…")


# Distinctive features


def test_distinctive_words_are_those_of_a_count_by_hand(report):
    rng = np.random.default_rng(1)
    labels = np.sort(rng.integers(0, 3, 90)).astype(np.int64)
    vocabulary = [f"{letter}{letter}{i}" for letter in "abcdef" for i in range(4)]
    texts = []
    for label in labels:
        weights = np.where(np.arange(24) // 8 == label, 4.0, 1.0)
        texts.append("x, A " + " ".join(rng.choice(vocabulary, 6, p=weights / weights.sum())).upper())
    for cluster, words in enumerate(distinctive_words(texts, labels, 3, most=5)):
        inside = [set(text.lower().split()) for text, label in zip(texts, labels, strict=True) if label == cluster]
        outside = [set(text.lower().split()) for text, label in zip(texts, labels, strict=True) if label != cluster]
        scores = {}
        for word in vocabulary:
            a, b = sum(word in text for text in inside), sum(word in text for text in outside)
            cells = (a + 0.5, len(inside) - a + 0.5, b + 0.5, len(outside) - b + 0.5)
            odds = math.log(cells[0] * cells[3] / cells[1] / cells[2])
            scores[word] = (odds / math.sqrt(sum(1 / cell for cell in cells)), a / len(inside), b / len(outside))
        expected = sorted((word for word in scores if scores[word][0] >= 2), key=lambda w: (-round(scores[w][0], 9), w))
        assert expected
        assert [word.word for word in words] == expected[:5]
        for word in words:
            assert (word.here, word.elsewhere) == pytest.approx(scores[word.word][1:])


def test_words_of_a_card_come_from_its_own_texts_and_never_have_one_letter(report):
    clustering = made(90, 3)
    texts = [f"a {'bcd'[label]} topic{label} shared" for label in clustering.labels]
    page = report(with_values(clustering, texts))
    assert [item["text"] for item in page.all("li") if item.get("title", "").startswith("In ")] == [
        "topic0",
        "topic1",
        "topic2",
    ]


def test_distinctive_columns_are_those_of_a_mean_by_hand_with_and_without_gaps():
    rng = np.random.default_rng(2)
    labels = np.sort(rng.integers(0, 3, 80)).astype(np.int64)
    values = rng.normal(size=(80, 7)) * np.arange(1, 8) + 50 * (rng.random((80, 7)) < 0.2)
    values[:, 3] = 1e6
    values[labels == 1, 5] += 12
    gaps = values.copy()
    gaps[rng.random((80, 7)) < 0.2] = np.nan
    for rows in (values, gaps):
        table = ColumnStatistics.of(rows.astype(np.float32), labels, 3)
        for cluster in range(3):
            away = (np.nanmean(rows[labels == cluster], 0) - np.nanmean(rows, 0)) / np.nanstd(rows, 0).clip(1e-9)
            away[3] = 0
            found = table.distinctive(cluster, 4)
            assert [column.index for column in found] == np.argsort(-np.abs(away))[:4].tolist()
            assert [column.deviations for column in found] == pytest.approx(away[[c.index for c in found]], rel=1e-4)
    thin = np.where(rng.random((80, 7)) < 0.7, 0, values).astype(np.float32)
    dense, same = ColumnStatistics.of(thin, labels, 3), ColumnStatistics.of(sparse.csr_array(thin), labels, 3)
    np.testing.assert_allclose(same.means, dense.means, rtol=1e-6)
    np.testing.assert_allclose(same.deviation, dense.deviation, rtol=1e-6)


def test_sparse_vectors_and_missing_cells_are_shown(report):
    clustering = made(30, 2, "vectors")
    values = np.where(np.abs(clustering.rows.values) < 2, 0, clustering.rows.values)
    thin = report(with_values(clustering, sparse.csr_array(values)))
    full = report(with_values(clustering, values))
    assert thin.map["numbers"] == full.map["numbers"]
    values[:, 1:] = np.nan
    values[:, 0] = np.arange(30)
    values[clustering.typical(0, 1), 0] = np.nan
    page = report(with_values(clustering, values))
    assert {page.map["columns"][i]: value for i, value in page.map["numbers"][29]}["a"] == "29"
    assert "\N{EN DASH}" in [cell["text"] for cell in page.all("td")]


# Cards, table, headline


def test_cards_show_the_most_typical_and_the_least_sure_rows(report):
    clustering = made(120, 3, "images")
    page = report(clustering)
    shown = page.all("img")
    assert len(shown) == 3 * 21
    for cluster in range(3):
        wanted = [*clustering.typical(cluster, 14), *clustering.least_sure(cluster, 7)]
        for image, row in zip(shown[21 * cluster :], wanted, strict=False):
            assert np.array_equal(pixels(image["src"]), clustering.rows.values[row, 0])
            assert image["alt"] == clustering.ids[row]
            assert image["title"].startswith(f"row-{row}, kind {cluster}, confidence ")


def test_a_single_cluster_has_no_least_sure_rows(report):
    assert [heading["text"] for heading in report(made(40, 1)).all("h4")] == ["Categories", "Most typical"]
    assert [heading["text"] for heading in report(made(1, 1)).all("h4")] == ["Categories", "The only row"]


def test_numbers_below_the_chart_are_not_on_each_other(report):
    starts = tuple(Start(k, -100.0 - abs(k - 3)) for k in (1, 3, 20, 60))
    assert [number["text"] for number in report(made(60, 3, starts=starts)).all("text")] == ["3", "60"]


@pytest.mark.usefixtures("_quick_map")
def test_the_table_counts_rows_and_names_the_largest_forty_categories(report):
    rng = np.random.default_rng(0)
    clustering = made(900, 6)
    numbers = np.concatenate([np.arange(55), rng.integers(0, 45, 845)])
    page = report(replace(clustering, categories=[f"c{i:02}" for i in numbers]))
    table = page.one(class_="cross")["text"]
    assert (
        "The 40 largest categories are shown; 15 smaller ones are omitted"
        in page.elements[page.elements.index(page.one(id="table-title")) + 1]["text"]
    )
    start = page.elements.index(page.one(class_="cross"))
    cells = [element for element in page.elements[start:] if element["tag"] in ("th", "td")]
    names = [cell for cell in cells if cell.get("scope") == "row"]
    assert len(names) == 40
    for name in names[::13]:
        at = cells.index(name)
        counts = [int(cell["text"] or 0) for cell in cells[at + 1 : at + 8]]
        expected = [int(((numbers == int(name["text"][1:])) & (clustering.labels == k)).sum()) for k in range(6)]
        assert counts == [*expected, sum(expected)]
    assert "c54" not in table


def test_scores_are_those_of_the_clustering_and_explained(report):
    rng = np.random.default_rng(0)
    clustering = replace(made(200, 4), threshold=0.7, categories=[f"c{i}" for i in rng.integers(0, 6, 200)])
    scores = clustering.scores()
    shown = {metric.name: metric for metric in metrics(clustering)}
    assert shown["ARI"].value == f"{scores['ari']:.2f}"
    assert shown["NMI"].value == f"{scores['nmi']:.2f}"
    assert shown["ACC"].value == f"{scores['acc']:.2f}"
    assert shown["K error"].value == "\N{MINUS SIGN}2"
    assert 10 < clustering.unsure.sum() < 190
    assert shown["Unsure"].description == f"{clustering.unsure.sum()} rows below 70% confidence"
    chance = replace(made(40, 2), categories=["ab"[i % 2] for i in range(40)])
    assert -0.05 < chance.scores()["ari"] < 0
    assert metrics(chance)[2].value in ("\N{MINUS SIGN}0.02", "\N{MINUS SIGN}0.03")
    titles = [element["title"] for element in report(clustering).all("div") if "title" in element]
    assert titles == [metric.explanation for metric in shown.values()]


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (
            [(8, -10)] * 7 + [(7, -160), (7, -70), (9, -500)],
            "7 of 10 candidates have 8 clusters; the next best number, 7 clusters",
        ),
        ([(8, -10), (7, -70)], "clusters, fits worse by 0.60 per row."),
        (
            [(8, -10), (1, -10.5)],
            "1 of 2 candidates has 8 clusters; the next best number, 1 cluster, fits worse by less than 0.01 per row.",
        ),
        ([(8, -10)] * 3, "All 3 candidates have 8 clusters."),
        ([(8, -10)], "The only candidate has 8 clusters, so there is nothing to compare it with."),
        ([(10, -10), (8, -20)], "Of the 10 clusters of the best candidate, 8 are left"),
        ([], ""),
    ],
)
def test_how_sure_the_number_of_clusters_is_in_words(starts, expected):
    clustering = made(100, 8, starts=tuple(Start(k, float(bound)) for k, bound in starts))
    assert expected in " ".join(certainty(clustering))


def test_clusters_that_are_all_in_use_are_pointed_out():
    said = "All 8 clusters that were allowed are in use"
    assert said in " ".join(certainty(made(100, 8, about={"max_clusters": 8})))
    assert said not in " ".join(certainty(made(100, 8, about={"max_clusters": 9})))


def test_rows_that_were_assigned_are_not_what_the_bounds_are_divided_by():
    starts = (Start(3, -100.0), Start(4, -130.0))
    assert alternatives(made(60, 3, starts=starts))[1].words == "4 clusters: worse by 0.50 per row (1 candidate)"
    assigned = made(60, 3, starts=starts, about={"assigned": True})
    assert alternatives(assigned)[1].words == "4 clusters: worse by 30 in total (1 candidate)"


# Colours


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """OKLab of linear RGB."""
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
    axes = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])
    return axes @ np.cbrt(cones @ rgb.clip(0))


# Machado, Oliveira and Fernandes (2009), severity 1: full sight, and without red, green and blue cones.
SIGHTS = [
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
]


@pytest.mark.parametrize("page", [0, 1])
def test_the_first_ten_colours_stay_apart_for_colour_blind_eyes_and_all_are_visible(page):
    shown = colours(100)[page]
    assert len(set(shown)) == 100
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in shown)
    for sight in SIGHTS:
        seen = np.array([lab(sight @ linear(colour)) for colour in shown[:10]])
        # Those of Okabe and Ito are 0.076 apart by the same measure.
        assert (np.linalg.norm(seen[:, None] - seen, axis=-1) + np.eye(10)).min() > 0.07
    paper = [0.2126, 0.7152, 0.0722] @ linear(("#ffffff", "#1a1d22")[page])
    for colour in shown:
        light = [0.2126, 0.7152, 0.0722] @ linear(colour)
        assert (max(light, paper) + 0.05) / (min(light, paper) + 0.05) > (2.1, 3.0)[page]


@pytest.mark.usefixtures("_quick_map")
def test_new_clusters_and_known_categories_have_a_section_each(report):
    names = [HOSTILE[0], "refunds", "new 1"]
    page = report(made(names=names, is_new=np.array([True, False, True])))
    heads = [element["id"] for element in page.all(class_="section-head")]
    assert heads == ["section-new", "section-known"]
    order = [e.get("id") for e in page.elements if e.get("id") in (*heads, "cluster-0", "cluster-1", "cluster-2")]
    assert order == ["section-new", "cluster-0", "cluster-2", "section-known", "cluster-1"]
    # Shortened, and text in any case.
    assert [element["text"] for element in page.all("p", class_="name")] == [names[0], names[2], names[1]]
    assert not [element for element in page.all("script") if "alert" in element["text"]]
    assert "3 clusters, 2 of them new" in page.one(tag="h1")["text"]
    assert page.all(class_="section-head") != []
    assert report(made()).all(class_="section-head") == []
