"""The report in a browser: pointing, picking, searching, zooming, light and dark, small screens and paper."""

import io
import os
import shutil
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import numpy as np
import pytest
from PIL import Image
from test_report import HOSTILE, made, with_values

from metaclust.data.rows import Rows
from metaclust.report import projection, write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome is installed")


@pytest.fixture(scope="module")
def browser():
    # Chromium has no sandbox for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()


@pytest.fixture(autouse=True)
def _plain_map(monkeypatch):
    """Principal components: the rows are where the test puts them."""
    monkeypatch.setattr(projection, "MIN_ROWS_FOR_TSNE", 10**9)


@pytest.fixture
def show(browser, tmp_path):
    """Opens the report of a clustering; afterwards nothing may have gone wrong or have been asked of the network."""
    wrong, contexts = [], []

    def opened(clustering, width=1280, height=800, **options):
        settings = {"reduced_motion": "reduce", "viewport": {"width": width, "height": height}, **options}
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or wrong.append(asked.url))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        path = write_report(clustering, tmp_path / "report.html", force=True, progress=False)
        page.goto(path.as_uri())
        until(page, "metaclustMap.width > 0")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def until(page, expression):
    """Waits until it is true; the browser's own way of waiting is what the report forbids."""
    for _ in range(400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    pytest.fail(f"never true: {expression}")


def place(page, row):
    """Where a row is in the window; the map is scrolled into view."""
    page.locator("#map").scroll_into_view_if_needed()
    x, y = page.evaluate("row => metaclustMap.place(row)", row)
    box = page.locator("#map").bounding_box()
    return box["x"] + x, box["y"] + y


def hover(page, row):
    page.mouse.move(*place(page, row))
    return page.locator("#tip")


def opacity(page, row):
    """Of the map where a row is, from 0 to 255, without the numbers that are written on it."""
    script = """row => {
        metaclustMap.labels = [];
        metaclustMap.draw();
        const [x, y] = metaclustMap.place(row).map((value) => value * devicePixelRatio);
        return metaclustMap.context.getImageData(Math.round(x), Math.round(y), 1, 1).data[3];
    }"""
    return page.evaluate(script, row)


def apart(n=9, k=3, kind="text", **changes):
    """A clustering whose rows are far from each other on the map: on a ring."""
    angle = np.arange(n) * 2 * np.pi / n
    z = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    return replace(made(n, k, kind), representations=np.pad(z, ((0, 0), (0, 4))), **changes)


def picked(page):
    """Which clusters are picked out in the legend, and which of the cards are."""
    chips = page.locator(".chip[aria-pressed=true]").evaluate_all("all => all.map((one) => one.dataset.cluster)")
    cards = page.locator(".card.picked").evaluate_all("all => all.map((one) => one.dataset.cluster)")
    return chips, cards


def top(page, selector):
    return page.locator(selector).evaluate("element => element.getBoundingClientRect().top")


def test_pointing_at_a_row_shows_its_text_id_category_and_confidence(show):
    clustering = apart()
    page = show(clustering)
    assert not page.locator("#tip").is_visible()
    for row in (0, 4, 8):
        said = hover(page, row).inner_text()
        assert f"number{row} topic{row // 3} shared" in said
        assert f"row-{row}\n" in said
        assert f"kind {row // 3}" in said
        assert f"Cluster {row // 3}, confidence {clustering.confidence[row]:.0%}" in said
    page.mouse.move(*np.add(place(page, 0), 60))
    assert not page.locator("#tip").is_visible()


def test_pointing_at_an_image_shows_its_pixels(show):
    clustering = apart(kind="images")
    page = show(clustering)
    for row in (1, 7):
        hover(page, row)
        shot = np.asarray(Image.open(io.BytesIO(page.locator(".picture").screenshot())).convert("L"))
        assert shot.shape == (72, 60)
        difference = shot[3::6, 3::6].astype(int) - clustering.rows.values[row, 0]
        # The corners are round.
        assert np.abs(difference[1:-1, 1:-1]).max() <= 1


def test_pointing_at_a_vector_shows_numbers_with_the_names_of_their_columns(show):
    clustering = apart(kind="vectors")
    values = np.arange(45, dtype=np.float32).reshape(9, 5) ** 2
    page = show(with_values(clustering, values))
    assert " ".join(hover(page, 2).locator("dl").inner_text().split()) == "a 100 b 121 c 144 d 169 e 196"


def test_a_click_on_a_row_picks_out_its_cluster_and_scrolls_to_its_card_and_a_second_takes_it_back(show):
    page = show(apart(30, 10))
    assert min(opacity(page, row) for row in range(30)) > 200
    page.mouse.click(*place(page, 22))
    assert picked(page) == (["7"], ["7"])
    assert -1 <= top(page, "#cluster-7") <= 40
    assert all((opacity(page, row) > 200) == (row // 3 == 7) for row in range(0, 30, 2))
    page.mouse.click(*place(page, 21))
    assert picked(page) == ([], [])
    assert min(opacity(page, row) for row in range(30)) > 200


def test_legend_and_cards_pick_out_their_clusters_too(show):
    page = show(apart(30, 10))
    page.locator(".chip").nth(4).click()
    assert picked(page) == (["4"], ["4"])
    assert -1 <= top(page, "#cluster-4") <= 40
    page.locator("#cluster-5 .pick").click()
    assert picked(page) == (["5"], ["5"])
    assert page.locator("#cluster-5 .pick").get_attribute("aria-pressed") == "true"
    page.locator("#cluster-6 h4").first.click()
    assert picked(page) == (["6"], ["6"])
    page.locator("#clear").click()
    assert picked(page) == ([], [])
    assert not page.locator("#clear").is_visible()


def test_a_closed_card_opens_when_its_cluster_is_picked(show):
    page = show(apart(80, 40))
    card = page.locator("#cluster-35")
    assert card.get_attribute("open") is None
    page.locator(".chip").nth(35).click()
    assert card.get_attribute("open") is not None
    assert card.locator(".texts").first.is_visible()
    page.locator("#cluster-36 summary").click()
    assert picked(page) == (["36"], ["36"])
    page.locator("#cluster-36 summary").click()
    assert picked(page) == ([], [])
    assert page.locator("#cluster-36").get_attribute("open") is None


def test_search_finds_texts_ids_and_categories(show):
    page = show(apart())
    for words, found in (("NUMBER4", [4]), ("row-7", [7]), ("kind 1", [3, 4, 5]), ("nothing", [])):
        page.locator("#search").fill(words)
        assert page.locator("#said").inner_text() == f"{len(found)} of 9 rows match"
        assert [row for row in range(9) if opacity(page, row) > 200] == found
    page.keyboard.press("Escape")
    assert page.locator("#search").input_value() == ""
    assert not page.locator("#said").is_visible()
    assert min(opacity(page, row) for row in range(9)) > 200


def test_keys_go_from_row_to_row_pick_and_clear(show):
    page = show(apart(8, 4))
    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    first = page.evaluate("metaclustMap.hover")
    assert first >= 0
    seen = {first}
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowUp"):
        before, was = page.evaluate("[metaclustMap.hover, metaclustMap.place(metaclustMap.hover)]")
        page.keyboard.press(key)
        after, now = page.evaluate("[metaclustMap.hover, metaclustMap.place(metaclustMap.hover)]")
        axis, sign = (0 if key in ("ArrowLeft", "ArrowRight") else 1), (-1 if key in ("ArrowLeft", "ArrowUp") else 1)
        assert after == before or sign * (now[axis] - was[axis]) > 0
        seen.add(after)
    assert len(seen) >= 4
    row = page.evaluate("metaclustMap.hover")
    assert f"row-{row}" in page.locator("#spoken").inner_text()
    page.keyboard.press("Enter")
    assert picked(page)[0] == [str(row // 2)]
    page.keyboard.press("Escape")
    assert picked(page) == ([], [])
    assert not page.locator("#tip").is_visible()


def test_a_row_is_hidden_by_scrolling_the_map_away_and_not_by_a_scroll_before_it_was_shown(show):
    page = show(apart(8, 4), 800)
    # Its answer comes two frames later, when the page has been told that it was scrolled.
    script = """(by) => new Promise((done) => {
        scrollBy(0, by);
        if (by > 50) metaclustMap.step(1, 0);
        requestAnimationFrame(() => requestAnimationFrame(() => done([metaclustMap.hover, scrollY])));
    })"""
    assert page.evaluate(script, 200) == [page.evaluate("metaclustMap.labels[0].point"), 200]
    assert page.evaluate(script, 40) == [-1, 240]


def test_the_map_zooms_moves_and_goes_back(show):
    page = show(apart())
    start = np.array(place(page, 0))
    middle = place(page, 4)
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    until(page, "metaclustMap.view.zoom > 1.5")
    # What is under the pointer stays there.
    np.testing.assert_allclose(place(page, 4), middle, atol=1)
    page.mouse.down()
    page.mouse.move(middle[0] + 50, middle[1] - 30, steps=5)
    page.mouse.up()
    np.testing.assert_allclose(place(page, 4), np.add(middle, (50, -30)), atol=6)
    assert picked(page) == ([], [])
    page.locator("#zoom-all").click()
    np.testing.assert_allclose(place(page, 0), start, atol=1)
    zoom = page.evaluate("metaclustMap.view.zoom")
    page.mouse.move(*middle)
    page.mouse.wheel(0, 150)
    until(page, "scrollY > 0")
    assert page.evaluate("metaclustMap.view.zoom") == zoom


def test_a_finger_first_sees_a_row_and_then_picks_its_cluster(show):
    page = show(apart(), 390, 844, has_touch=True, is_mobile=True)
    at = place(page, 5)
    page.touchscreen.tap(*at)
    assert "number5" in page.locator("#tip").inner_text()
    box = page.locator("#tip").bounding_box()
    assert box["x"] > at[0] or box["y"] > at[1] or box["x"] + box["width"] < at[0] or box["y"] + box["height"] < at[1]
    assert picked(page) == ([], [])
    page.touchscreen.tap(*at)
    assert picked(page) == (["1"], ["1"])
    assert -1 <= top(page, "#cluster-1") <= 40
    page.locator("#cluster-1 .to-map").tap()
    until(page, "Math.abs(document.getElementById('map-panel').getBoundingClientRect().top) < 40")
    assert picked(page) == (["1"], ["1"])


def test_pictures_can_take_the_place_of_dots(show):
    clustering = apart(kind="images")
    page = show(with_values(clustering, np.full_like(clustering.rows.values, 255)))
    page.locator("#pictures").click()
    assert page.locator("#pictures").get_attribute("aria-pressed") == "true"
    script = """(() => {
        const [x, y] = metaclustMap.place(0);
        return metaclustMap.context.getImageData(Math.round(x) + 5, Math.round(y) + 5, 1, 1).data.every((v) => v > 220);
    })()"""
    until(page, script)


def test_light_and_dark_follow_the_system_and_the_button(show):
    def light(page):
        return int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]")) > 128

    def colour(page):
        return page.evaluate("metaclustMap.colours().colours[0]")

    for scheme in ("light", "dark"):
        page = show(apart(), color_scheme=scheme)
        assert light(page) == (scheme == "light")
        first = colour(page)
        page.locator("#theme").click()
        assert light(page) == (scheme == "dark")
        assert colour(page) != first
        page.locator("#theme").click()
        assert (light(page), colour(page)) == (scheme == "light", first)


@pytest.mark.parametrize("kind", ["text", "images", "vectors", "ids"])
def test_a_phone_never_scrolls_sideways(show, kind):
    clustering = made(120, 40, "text" if kind == "ids" else kind)
    long = "x" * 400
    ids = [f"{long}{i}" for i in range(120)]
    data = replace(clustering.rows, ids=ids, source=long, columns=tuple(f"{long}{i}" for i in range(5)))
    if kind == "text":
        data = replace(data, values=[f"{long}{i % 7} {i}" for i in range(120)])
    categories = [f"{long}{i % 45}" for i in range(120)]
    rows = None if kind == "ids" else data
    page = show(replace(clustering, ids=ids, rows=rows, categories=categories, about={long: {long: long}}), 390, 844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.evaluate("document.querySelectorAll('details').forEach((card) => { card.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    hover(page, 60)
    box = page.locator("#tip").bounding_box()
    assert 0 <= box["x"] <= 390 - box["width"]


def test_text_that_looks_like_a_script_is_shown_and_not_run(show):
    clustering = apart(3, 1)
    hostile = with_values(clustering, HOSTILE, ids=HOSTILE)
    page = show(replace(hostile, ids=HOSTILE, categories=HOSTILE, about={HOSTILE[0]: HOSTILE[1]}))
    for row in (0, 1):
        assert hover(page, row).locator(".tip-text").inner_text() == HOSTILE[row]
    assert page.locator("img").count() == 0
    assert page.locator("#cluster-0 .text").all_inner_texts()[:3].count(HOSTILE[0]) == 1


INTRUDER = """address => new Promise((done) => {
    document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = true" }));
    document.body.append(Object.assign(new Image(), { onerror: done, src: address + "picture.png" }));
})"""


def test_the_browser_refuses_scripts_and_addresses_that_are_not_the_reports(browser, tmp_path):
    path = write_report(apart(), tmp_path / "report.html", progress=False)
    asked = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Listening) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        page = browser.new_page()
        # The server does hear what is not forbidden.
        page.goto(address)
        assert "/" in asked
        page.goto(path.as_uri())
        page.evaluate(INTRUDER, address)
        assert page.evaluate("window.ran") is None
        page.close()
        server.shutdown()
    assert "/picture.png" not in asked


def test_paper_is_light_and_shows_every_card(show):
    page = show(apart(80, 40), color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("details[open]").count() == 10
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#search").is_visible()
    assert not page.locator("#theme").is_visible()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") is None


@pytest.mark.parametrize(("n", "k"), [(1, 1), (40, 1), (300, 100)])
def test_one_row_one_cluster_and_a_hundred_clusters_open(show, n, k):
    page = show(made(n, k, rows=n > 1))
    assert page.locator(".card").count() == k
    assert "row-0" in hover(page, 0).inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_a_name_in_every_script_of_the_world_is_shown_as_it_is(show):
    texts = ["שלום עולם", "你好世界", "😀 emoji", "e\u0301 combining"]
    clustering = apart(4, 1)
    page = show(replace(clustering, rows=Rows("text", texts, clustering.ids), categories=None))
    for row, text in enumerate(texts):
        assert hover(page, row).locator(".tip-text").inner_text() == text
