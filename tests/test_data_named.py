"""The named data sets."""

import os
from pathlib import Path

import numpy as np
import pytest

import metaclust
from metaclust import load_dataset
from metaclust.data.named import read_arrays

ICONS = Path(metaclust.__file__).parent / "data" / "icons"
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
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
    arrays = read_arrays(ICONS / "icons_32.npz", ("icon_set", "icon_set_names", "icon_set_licence"))
    counts = np.bincount(arrays["icon_set"], minlength=76)
    expected = [
        [str(name), str(licence), str(count)]
        for name, licence, count in zip(arrays["icon_set_names"], arrays["icon_set_licence"], counts, strict=True)
    ]
    text = (ICONS / "LICENCES.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert len(expected) == 76
    assert sorted(rows[2:]) == sorted(expected)


@needs_omniglot
@pytest.mark.parametrize(("part", "characters"), [("background", 964), ("evaluation", 659), ("both", 1623)])
def test_omniglot_has_20_drawings_of_each_character(part, characters):
    data = load_dataset("omniglot", ROOT, part=part)
    assert data.X.shape == (20 * characters, 1, 28, 28)
    assert data.X.dtype == np.uint8
    assert (np.bincount(data.y) == 20).all()
    assert len(set(data.categories)) == len(data.categories) == characters


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
    with pytest.raises(ValueError, match="name='mnist' is not a data set: choose one of icons, omniglot"):
        load_dataset("mnist")


@pytest.mark.usefixtures("_without_type_checks")
def test_an_unknown_part_is_answered_with_the_known_ones(tmp_path):
    (tmp_path / "omniglot").mkdir()
    with pytest.raises(ValueError, match="part='test': choose 'background', 'evaluation' or 'both'"):
        load_dataset("omniglot", tmp_path, part="test")


def test_without_a_folder_the_error_says_how_to_name_one(monkeypatch):
    monkeypatch.delenv("METACLUST_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"pass root=.*or set METACLUST_DATA"):
        load_dataset("omniglot")


def test_a_folder_without_the_data_set_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"root='.*' holds no folder omniglot/"):
        load_dataset("omniglot", tmp_path)
    (tmp_path / "omniglot").mkdir()
    with pytest.raises(FileNotFoundError, match=r"there is no omniglot_28.npz in"):
        load_dataset("omniglot", tmp_path)


def small_omniglot(path, **changes):
    arrays = {
        "images": np.random.default_rng(0).integers(0, 3, (6, 28, 28), np.uint8),
        "labels": np.repeat(np.arange(3), 2),
        "class_names": np.array(["a", "b", "c"]),
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
    small_omniglot(path, class_names=np.array(["a", "b", {"c": 1}], dtype=object))


def one_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


BROKEN = {
    "cut short": (cut_short, "cut short"),
    "damaged": (damaged, "cut short"),
    "empty": (Path.touch, "cut short"),
    "text": (lambda path: path.write_text("images, labels\n"), "is not the data set"),
    "one array": (one_array, "is not the data set"),
    "without labels": (without_labels, "is not the data set.*labels"),
    "with objects": (objects, "is not the data set.*[Oo]bject arrays"),
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
    assert data.y.tolist() == [0, 0, 1, 1]
