"""The named data sets."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import metaclust
from metaclust import load_dataset
from metaclust.data.datasets.cards import CARDS
from metaclust.data.datasets.places import available
from metaclust.data.readers.npy import load_arrays

ICONS = Path(metaclust.__file__).parent / "data" / "datasets" / "icons"
BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
ROOT = Path(os.environ.get("METACLUST_DATA", BESIDE))
needs_omniglot = pytest.mark.skipif(
    not (ROOT / "omniglot" / "omniglot_28.npz").is_file(),
    reason="no copy of Omniglot: set METACLUST_DATA to the folder that holds omniglot/omniglot_28.npz",
)


def test_the_icons_are_11499_drawings_of_419_concepts():
    data = load_dataset("icons")
    assert data.X.shape == (11499, 1, 32, 32)
    assert data.X.dtype == np.uint8
    assert (data.X.min(), data.X.max()) == (0, 255)
    assert data.y.shape == (11499,)
    assert data.y.dtype == np.int64
    assert len(data) == 11499
    assert len(set(data.categories)) == len(data.categories) == 419


def test_every_concept_has_15_icons_or_more():
    counts = np.bincount(load_dataset("icons").y)
    assert len(counts) == 419
    assert counts.min() >= 15


def test_every_icon_has_ink_and_no_two_are_the_same_drawing():
    images = load_dataset("icons").X.reshape(11499, -1)
    assert images.max(1).min() > 128
    assert len({image.tobytes() for image in images}) == 11499


def test_the_licences_list_each_of_the_76_sets_with_its_licence_and_its_number_of_icons():
    arrays = load_arrays(ICONS / "icons_32.npz", ("icon_set", "icon_set_names", "icon_set_licence"))
    counts = np.bincount(arrays["icon_set"], minlength=76)
    expected = [
        [str(name), str(licence), str(count)]
        for name, licence, count in zip(arrays["icon_set_names"], arrays["icon_set_licence"], counts, strict=True)
    ]
    text = (ICONS / "LICENCES.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert len(expected) == 76
    assert sorted(rows[2:]) == sorted(expected)


def test_the_digits_are_scikit_learns():
    data, digits = load_dataset("digits"), load_digits()
    assert data.X.shape == (1797, 1, 8, 8)
    assert np.array_equal(np.rint(data.X[:, 0] * (16 / 255)), digits.images)
    assert np.array_equal(data.y, digits.target)


@needs_omniglot
@pytest.mark.parametrize("size", [28, 105])
@pytest.mark.parametrize(
    ("part", "characters", "alphabets"), [("background", 964, 30), ("evaluation", 659, 20), ("both", 1623, 50)]
)
def test_omniglot_has_20_drawings_of_each_character(part, characters, alphabets, size):
    data = load_dataset("omniglot", ROOT, part=part, size=size)
    assert data.X.shape == (20 * characters, 1, size, size)
    assert data.X.dtype == np.uint8
    assert set(np.unique(data.X[:100])) == {0, 255} if size == 105 else data.X.max() == 255
    assert (np.bincount(data.y) == 20).all()
    assert len(set(data.categories)) == len(data.categories) == characters
    assert len(set(data.groups)) == alphabets
    assert all(name.startswith(f"{group}/") for name, group in zip(data.categories, data.groups, strict=True))


@needs_omniglot
def test_the_sizes_of_omniglot_are_the_same_drawings():
    small, large = (load_dataset("omniglot", ROOT, size=size) for size in (28, 105))
    assert np.array_equal(small.y, large.y)
    ink = [data.X.reshape(len(data), -1).mean(1) for data in (small, large)]
    assert np.corrcoef(*ink)[0, 1] > 0.99


@pytest.mark.parametrize("name", [name for name in CARDS if CARDS[name].rows and name != "mini-imagenet"])
def test_every_data_set_has_the_rows_and_categories_of_its_card(name):
    if available(name, ROOT) is None:
        pytest.skip(f"no copy of {name}: set METACLUST_DATA to the folder that holds {CARDS[name].folder}/")
    data = load_dataset(name, ROOT, part="both" if name == "omniglot" else "background", progress=False)
    assert (len(data), len(data.categories)) == (data.card.rows, data.card.categories)
    assert data.kind == data.card.kind
    assert len(data.X) == len(data.y)
    assert np.array_equal(np.unique(data.y), np.arange(len(data.categories)))
    rows = data.rows()
    assert len(rows) == len(data)
    assert rows.labels[-1] == data.categories[data.y[-1]]


@pytest.mark.parametrize("name", CARDS)
def test_every_card_says_where_from_and_under_which_licence(name):
    card = CARDS[name]
    assert card.name == name
    assert all(len(text) > 3 for text in (card.about, card.source, card.licence, card.citation, card.how))


@pytest.mark.parametrize(("name", "least"), [("patent", 100), ("dmoz", 300)])
def test_the_papers_text_sets_are_bags_of_words_by_its_rules(name, least, tmp_path):
    generator = np.random.default_rng(0)
    words = np.array([f"word{i:03}" for i in range(2 * least)])
    texts, labels = [], []
    for i in range(least + 20):
        # The last ten documents are too short, and category "few" has nine rows.
        size = least - 1 if i >= least + 10 else least + 5
        texts.append(" ".join([*words[:size], *generator.choice(words[size:], 3)]))
        labels.append("few" if i < 9 else f"c{i % 3}")
    (tmp_path / name).mkdir()
    with gzip.open(tmp_path / name / "data.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(
            json.dumps({"text": text, "label": label}) + "\n" for text, label in zip(texts, labels, strict=True)
        )
    data = load_dataset(name, tmp_path)
    frequency = {word: sum(word in set(text.split()) for text in texts) for word in words}
    vocabulary = sorted(word for word in words if frequency[word] >= least)
    assert list(data.columns) == vocabulary
    kept = [
        i for i, text in enumerate(texts) if len(set(text.split()) & set(vocabulary)) >= least and labels[i] != "few"
    ]
    assert len(data) == len(kept)
    counts = np.array([[texts[i].split().count(word) for word in vocabulary] for i in kept])
    assert np.array_equal(data.X.toarray(), counts)
    assert [data.categories[i] for i in data.y] == [labels[i] for i in kept]
    assert data.kind == "vectors"


@needs_omniglot
def test_the_two_parts_of_omniglot_make_the_whole():
    background, evaluation, both = (
        load_dataset("omniglot", ROOT, part=p) for p in ("background", "evaluation", "both")
    )
    assert not set(background.categories) & set(evaluation.categories)
    assert set(background.categories) | set(evaluation.categories) == set(both.categories)
    for part in (background, evaluation):
        name = part.categories[7]
        drawings = both.X[both.y == both.categories.index(name)]
        assert np.array_equal(part.X[part.y == 7], drawings)


@needs_omniglot
def test_the_environment_names_the_folder_of_local_data_sets(monkeypatch):
    monkeypatch.setenv("METACLUST_DATA", str(ROOT))
    assert len(load_dataset("omniglot")) == 20 * 964


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(
        ValueError, match="name='mnist' is not a data set: choose one of icons, digits, omniglot, mini-imagenet"
    ):
        load_dataset("mnist")


@pytest.mark.usefixtures("_without_type_checks")
def test_an_unknown_part_is_answered_with_the_known_ones(tmp_path):
    (tmp_path / "omniglot").mkdir()
    with pytest.raises(ValueError, match="part='test': choose 'background', 'evaluation' or 'both'"):
        load_dataset("omniglot", tmp_path, part="test")


@pytest.mark.parametrize("name", ["omniglot", "mini-imagenet", "dmoz", "patent", "clinc150", "caltech101", "grocery"])
def test_what_is_not_here_is_answered_with_where_to_get_it_and_where_to_put_it(name, tmp_path, monkeypatch):
    monkeypatch.delenv("METACLUST_DATA", raising=False)
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset(name, tmp_path)
    for part in (name, CARDS[name].source, str(tmp_path / CARDS[name].folder), "root=", "METACLUST_DATA"):
        assert part in str(caught.value)


def test_without_a_root_the_users_data_folder_is_looked_in(tmp_path, monkeypatch):
    monkeypatch.delenv("METACLUST_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: tmp_path / name)
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "metaclust" / "omniglot")):
        load_dataset("omniglot")
    folder = tmp_path / "metaclust" / "omniglot"
    folder.mkdir(parents=True)
    small_omniglot(folder / "omniglot_28.npz")
    assert len(load_dataset("omniglot")) == 4


def test_a_folder_without_the_file_is_named(tmp_path):
    (tmp_path / "omniglot").mkdir()
    with pytest.raises(FileNotFoundError, match=r"there is no omniglot_28.npz in"):
        load_dataset("omniglot", tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"part": "evaluation"}, "only omniglot has parts"), ({"size": 28}, "one size only")],
)
def test_options_of_another_data_set_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        load_dataset("icons", **options)


def small_omniglot(path, **changes):
    arrays = {
        "images": np.random.default_rng(0).integers(0, 3, (6, 28, 28), np.uint8),
        "labels": np.repeat(np.arange(3), 2),
        "class_names": np.array(["x/a", "x/b", "y/c"]),
        "class_part": np.array(["background", "evaluation", "background"]),
        "class_alphabet": np.array(["x", "x", "y"]),
    }
    np.savez_compressed(path, **{**arrays, **changes})


def cut_short(path):
    small_omniglot(path)
    path.write_bytes(path.read_bytes()[:-200])


def damaged(path):
    small_omniglot(path)
    content = bytearray(path.read_bytes())
    content[80:140] = b"\xff" * 60
    path.write_bytes(content)


def without_labels(path):
    np.savez(path, images=np.zeros((6, 28, 28), np.uint8))


def objects(path):
    small_omniglot(path, class_names=np.array(["x/a", "x/b", {"c": 1}], dtype=object))


def one_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


BROKEN = {
    "cut short": (cut_short, "cut short"),
    "damaged": (damaged, "cut short"),
    "empty": (Path.touch, "cut short"),
    "text": (lambda path: path.write_text("images, labels\n"), "is not the .npz file"),
    "one array": (one_array, "is not the .npz file"),
    "without labels": (without_labels, "is not the .npz file.*labels"),
    "with objects": (objects, "is not the .npz file.*[Oo]bject arrays"),
}


@pytest.mark.parametrize(("write", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_refused_with_its_name_and_the_reason(tmp_path, write, message):
    (tmp_path / "omniglot").mkdir()
    write(tmp_path / "omniglot" / "omniglot_28.npz")
    with pytest.raises(ValueError, match=rf"omniglot_28.npz .*{message}"):
        load_dataset("omniglot", tmp_path)


def test_labels_are_numbered_within_the_part(tmp_path):
    (tmp_path / "omniglot").mkdir()
    small_omniglot(tmp_path / "omniglot" / "omniglot_28.npz")
    data = load_dataset("omniglot", tmp_path)
    assert data.categories == ["x/a", "y/c"]
    assert data.groups == ["x", "y"]
    assert data.y.tolist() == [0, 0, 1, 1]
