"""Omniglot from the official archives: downloaded or lying there, made into the files of a local copy."""

import hashlib
import io
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from metaclust import DataError, load_dataset
from metaclust.data.datasets import omniglot
from metaclust.data.datasets.omniglot import get_omniglot, read_omniglot

# As in the official archives: the number of a character runs over all alphabets, in another order than the names.
CHARACTERS = {
    "images_background.zip": [("Greek", "character01", 3), ("Greek", "character02", 4), ("Arcadian", "character01", 1)],
    "images_evaluation.zip": [("Tengwar", "character01", 970), ("Angelic", "character07", 965)],
}


def drawing(number: int, drawer: int) -> np.ndarray:
    """1 where there is ink."""
    return (np.random.default_rng([number, drawer]).random((105, 105)) < 0.1).astype(np.uint8)


def png(ink: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray((1 - ink) * 255).convert("1").save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """Archives like the official ones, with their checksums in place of those."""
    folder = tmp_path / "served"
    folder.mkdir()
    known = {}
    for name, characters in CHARACTERS.items():
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for alphabet, character, number in characters:
                for drawer in range(1, 4):
                    member = f"{name[:-4]}/{alphabet}/{character}/{number:04}_{drawer:02}.png"
                    archive.writestr(member, png(drawing(number, drawer)))
        content = (folder / name).read_bytes()
        known[name] = (hashlib.sha256(content).hexdigest(), len(content))
    monkeypatch.setattr(omniglot, "ARCHIVES", known)
    return folder


@pytest.fixture
def url(archives, monkeypatch):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(archives)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(omniglot, "URL", f"http://127.0.0.1:{server.server_port}/")
    yield omniglot.URL
    server.shutdown()
    thread.join()
    server.server_close()


def check(folder):
    """Every drawing is where its number says, at both sizes."""
    images, labels, names, alphabets = read_omniglot(folder, "both", 105)
    assert names == [
        "Arcadian/character01",
        "Greek/character01",
        "Greek/character02",
        "Angelic/character07",
        "Tengwar/character01",
    ]
    assert alphabets == ["Arcadian", "Greek", "Greek", "Angelic", "Tengwar"]
    assert labels.tolist() == np.repeat(np.arange(5), 3).tolist()
    expected = np.stack([drawing(number, drawer) * 255 for number in (1, 3, 4, 965, 970) for drawer in (1, 2, 3)])
    assert np.array_equal(images[:, 0], expected)
    small, *_ = read_omniglot(folder, "both", 28)
    # 105 / 28 = 3.75: four pixels by four take in 15 x 15 of the original, but for pixels on the border of two.
    mean = expected.reshape(15, 7, 15, 7, 15).mean((2, 4))
    assert np.abs(small[:, 0].reshape(15, 7, 4, 7, 4).mean((2, 4)) - mean).max() < 4
    assert read_omniglot(folder, "evaluation", 28)[2] == names[3:]


def test_it_is_downloaded_checked_and_made_into_two_files_and_nothing_else_is_left(url, tmp_path):
    folder = tmp_path / "data" / "omniglot"
    get_omniglot(folder, url, progress=False)
    assert sorted(file.name for file in folder.iterdir()) == ["omniglot_105_packed.npz", "omniglot_28.npz"]
    check(folder)


def test_a_copy_that_is_there_is_not_downloaded_again(url, archives, tmp_path):
    folder = tmp_path / "omniglot"
    get_omniglot(folder, url, progress=False)
    for archive in archives.iterdir():
        archive.unlink()
    get_omniglot(folder, url, progress=False)
    check(folder)


def test_archives_that_lie_in_the_folder_are_used_and_kept(archives, tmp_path):
    folder = tmp_path / "root" / "omniglot"
    folder.mkdir(parents=True)
    for archive in archives.iterdir():
        (folder / archive.name).write_bytes(archive.read_bytes())
    data = load_dataset("omniglot", tmp_path / "root", part="both", size=105, progress=False)
    assert data.X.shape == (15, 1, 105, 105)
    assert {"images_background.zip", "images_evaluation.zip"} < {file.name for file in folder.iterdir()}
    check(folder)


def test_a_wrong_checksum_leaves_no_copy_behind(url, archives, tmp_path):
    name = "images_evaluation.zip"
    content = bytearray((archives / name).read_bytes())
    content[100] ^= 1
    (archives / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        get_omniglot(tmp_path / "omniglot", url, progress=False)
    assert [file.name for file in (tmp_path / "omniglot").iterdir()] == ["images_background.zip"]


def test_archives_without_drawings_are_refused(archives, tmp_path, monkeypatch):
    folder = tmp_path / "omniglot"
    folder.mkdir()
    known = {}
    for name in CHARACTERS:
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("readme.txt", "nothing")
        content = (folder / name).read_bytes()
        known[name] = (hashlib.sha256(content).hexdigest(), len(content))
    monkeypatch.setattr(omniglot, "ARCHIVES", known)
    with pytest.raises(DataError, match=r"no drawings \(\.png\)"):
        get_omniglot(folder, progress=False)
    assert sorted(file.name for file in folder.iterdir()) == sorted(CHARACTERS)


def test_load_dataset_downloads_only_when_asked(url, tmp_path, monkeypatch):
    monkeypatch.delenv("METACLUST_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="metaclust data get omniglot"):
        load_dataset("omniglot", tmp_path)
    assert not (tmp_path / "omniglot").exists()
    data = load_dataset("omniglot", tmp_path, download=True, progress=False)
    assert len(data) == 9
    assert data.groups == ["Arcadian", "Greek", "Greek"]
