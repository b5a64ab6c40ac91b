"""Mini-imagenet, as class folders and as csv splits beside one folder of images."""

import csv

import numpy as np
import pytest
from PIL import Image

from metaclust import DataError, DataWarning, load_dataset
from metaclust.data.datasets.mini_imagenet import read_mini_imagenet

CATEGORIES = {"n01": "train", "n02": "train", "n03": "val", "n04": "test"}


def save(path, category, number):
    """A photograph whose colour tells its category and its number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (100, 80), (int(category[1:]) * 50, number, 7)).save(path, quality=95)


def as_tables(folder, rows):
    for split in ("train", "val", "test"):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["filename", "label"])
            for category in (name for name, its in CATEGORIES.items() if its == split):
                for i in range(rows):
                    save(folder / "images" / f"{category}{i:08}.jpg", category, i)
                    writer.writerow([f"{category}{i:08}.jpg", category])


def as_folders(folder, rows):
    for category in CATEGORIES:
        for i in range(rows):
            save(folder / category / f"{category}{i:08}.jpg", category, i)


def as_split_folders(folder, rows):
    for category, split in CATEGORIES.items():
        for i in range(rows):
            save(folder / split / category / f"{category}{i:08}.jpg", category, i)


@pytest.mark.parametrize("write", [as_tables, as_folders, as_split_folders])
def test_it_has_101_photographs_of_each_category_at_84_pixels(write, tmp_path):
    write(tmp_path / "mini-imagenet", 103)
    data = load_dataset("mini-imagenet", tmp_path, progress=False)
    assert data.X.shape == (4 * 101, 3, 84, 84)
    assert data.X.dtype == np.uint8
    assert data.categories == list(CATEGORIES)
    assert (np.bincount(data.y) == 101).all()
    assert data.groups == (None if write is as_folders else list(CATEGORIES.values()))
    colour = data.X.reshape(len(data), 3, -1).mean(-1)
    assert np.abs(colour[:, 0] - 50 * (data.y + 1)).max() < 4
    again = load_dataset("mini-imagenet", tmp_path, progress=False)
    assert np.array_equal(data.X, again.X)


def test_the_folder_forms_give_the_same_rows(tmp_path):
    as_tables(tmp_path / "a", 8)
    as_split_folders(tmp_path / "b", 8)
    one, other = (read_mini_imagenet(tmp_path / name, size=16, rows=5, progress=False)[0] for name in "ab")
    assert np.array_equal(one.values, other.values)
    assert one.labels == other.labels


def test_another_seed_draws_other_photographs(tmp_path):
    as_folders(tmp_path, 20)
    draws = [read_mini_imagenet(tmp_path, size=8, rows=10, seed=seed, progress=False)[0].ids for seed in (0, 0, 1)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_categories_with_fewer_photographs_are_named_and_used(tmp_path):
    as_folders(tmp_path / "mini-imagenet", 3)
    with pytest.warns(DataWarning, match=r"4 categories have fewer than 101 images, all are used: 'n01', 'n02'"):
        data = load_dataset("mini-imagenet", tmp_path, size=32, progress=False)
    assert data.X.shape == (12, 3, 32, 32)


def test_listed_files_that_are_absent_are_named(tmp_path):
    as_tables(tmp_path, 3)
    (tmp_path / "images" / "n0100000001.jpg").unlink()
    with pytest.raises(DataError, match=r"lacks 1 of the 12 listed files: 'n0100000001.jpg'"):
        read_mini_imagenet(tmp_path, rows=3, progress=False)


def test_a_file_name_that_leads_out_of_the_folder_is_refused(tmp_path):
    as_tables(tmp_path, 2)
    (tmp_path / "val.csv").write_text("filename,label\n../secret.jpg,n03\n")
    with pytest.raises(DataError, match=r"'\.\./secret.jpg' leads out of images/"):
        read_mini_imagenet(tmp_path, rows=2, progress=False)


def test_an_empty_folder_is_answered_with_what_to_put_there(tmp_path):
    (tmp_path / "mini-imagenet").mkdir()
    with pytest.raises(DataError, match=r"holds no folder of images and no train\.csv"):
        load_dataset("mini-imagenet", tmp_path)
