"""Files that are made to do harm: each is refused with a DataError that says what to do, or read as sound rows."""

import gzip
import inspect
import io
import json
import os
import subprocess
import sys
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from metaclust.data import files, parquet_footer
from metaclust.data.readers.decoding import decode_image
from metaclust.data.readers.images import read_image_folder
from metaclust.data.readers.sources import read_data
from metaclust.data.rows import DataError, Rows
from metaclust.data.streams import NpyStream, ParquetStream, encode_to_file, joined, row_stream
from metaclust.mixture.estimator import InfiniteGaussianMixture
from metaclust.scale.shards import shard_paths


def read(path: Path, **options: Any) -> Rows:
    return read_data(path, progress=False, **options)


def header_of(shape: Any, descr: Any = "<f8") -> bytes:
    """Return the beginning of a .npy file, whatever it says."""
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".jsonl", ".npy", ".npz", ".parquet"])
def test_pipes_and_devices_are_refused_and_not_waited_for(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"zero{ending}").symlink_to("/dev/zero")
    for name in (f"pipe{ending}", f"zero{ending}"):
        with pytest.raises(DataError, match=rf"{name}: it is not a file but a pipe, a socket or a device"):
            read(tmp_path / name)
        if ending in (".npy", ".parquet"):
            with pytest.raises(DataError, match=rf"{name}: it is not a file but a pipe"):
                InfiniteGaussianMixture().fit(tmp_path / name)


def packed_zeros(ending: str, path: Path) -> Path:
    """Write a file of many equal values, which compresses several hundred times."""
    path = path / f"rows{ending}"
    if ending == ".csv.gz":
        path.write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * 500_000))
    elif ending == ".npz":
        np.savez_compressed(path, X=np.zeros((500_000, 1)))
    else:
        pl.DataFrame({"a": np.zeros(500_000)}).write_parquet(path)
    return path


@pytest.mark.parametrize("ending", [".csv.gz", ".npz", ".parquet"])
def test_what_a_file_holds_is_limited_by_bytes_and_by_ratio(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed_zeros(ending, tmp_path)
    assert len(read(path)) == 500_000
    with pytest.raises(
        DataError, match=rf"rows{ending} holds .* above the limit \(100,000\).*max_bytes= \(--max-bytes\)"
    ):
        read(path, max_bytes=100_000)
    monkeypatch.setattr(files, "FLOOR", 100_000)
    with pytest.raises(DataError, match=rf"above the limit for a file of {path.stat().st_size:,} bytes"):
        read(path)
    assert len(read(path, max_bytes=10_000_000)) == 500_000
    monkeypatch.setattr(files, "half_of_memory", lambda: 1000)
    with pytest.raises(DataError, match=r"above half of the memory of this machine \(1,000\)"):
        read(path)


def test_a_limit_must_be_a_whole_number() -> None:
    with pytest.raises(ValueError, match="max_bytes=0: it must be a whole number of 1 or more"):
        read_data("rows.csv", max_bytes=0)


def test_a_table_of_few_cells_in_many_columns_is_not_blown_up(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(",".join(f"c{i}" for i in range(20_000)) + "\n" + "1\n" * 20_000)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({f"c{i}": i}) + "\n" for i in range(10_000)))
    for name in ("rows.csv", "rows.jsonl"):
        with pytest.raises(DataError, match=rf"{name} holds [\d,]+ bytes of data or more"):
            read(tmp_path / name)


def test_a_csv_that_is_compressed_within_is_refused_and_one_that_looks_so_is_read(tmp_path: Path) -> None:
    content = gzip.compress(b"a,b\n1,2\n")
    (tmp_path / "rows.csv").write_bytes(content)
    (tmp_path / "twice.csv.gz").write_bytes(gzip.compress(content))
    for name in ("rows.csv", "twice.csv.gz"):
        with pytest.raises(DataError, match=rf"{name} cannot be read: what should be text is compressed"):
            read(tmp_path / name)
    (tmp_path / "powers.csv").write_text("x^2,y\n1,2\n3,4\n")
    assert read(tmp_path / "powers.csv").columns == ("x^2", "y")


def test_columns_and_shards_with_the_same_name_are_found_among_very_many(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(60_000)]
    (tmp_path / "rows.csv").write_text(",".join([*names, "c7"]) + "\n" + ",".join(["1"] * 60_001) + "\n")
    with pytest.raises(DataError, match="the header names 'c7' more than once"):
        read(tmp_path / "rows.csv")
    with pytest.raises(DataError, match="several shards are called 'c7'"):
        shard_paths([*(f"{name}.npy" for name in names), "other/c7.npy"])


@pytest.mark.parametrize("cell", ["0.5", "NA", "word"])
def test_a_very_wide_table_is_read(cell: str, tmp_path: Path) -> None:
    count = 20_000
    lines = [",".join(f"column {i}" for i in range(count)), ",".join([cell] * count), ",".join(["2"] * count)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    rows = read(tmp_path / "rows.csv", missing="mean")
    assert rows.kind == ("text" if cell == "word" else "vectors")
    assert np.shape(rows.values) == ((2,) if cell == "word" else (2, count))


def test_strings_that_are_numbers_are_found_in_each_column_by_itself(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b,c,d\n1,x,NA,\n?,y,5,\n3,z,6,\n")
    rows = read(tmp_path / "rows.csv", missing="mean")
    assert rows.columns == ("a", "c")
    assert np.array_equal(rows.values, [[1, np.nan], [np.nan, 5], [3, 6]], equal_nan=True)


BAD_TABLES: dict[str, tuple[str, bytes, str]] = {
    "nested json": ("rows.jsonl", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "line 1 is nested more than"),
    "open json": ("rows.jsonl", b'{"a": 1}\n' + b'{"a":' * 50_000 + b"\n", "line 2 is nested more than 32 deep"),
    "long name": ("rows.csv", b"a," + b"b" * 140_000 + b"\n1,2\n", "header has a name that is too long"),
    "open quote": ("rows.csv", b'a,"b\n' + b"1,2\n" * 40_000, "rows.csv cannot be read"),
    "utf-16": ("rows.csv", "a,label\n1,x\n".encode("utf-16-le"), "line 1 holds a NUL byte, so it is UTF-16"),
    "utf-16 json": ("rows.jsonl", '{"a": 1}\n'.encode("utf-16-be"), "line 1 holds a NUL byte, so it is UTF-16"),
    "NUL": ("rows.csv", b"a,b\n1,2\n\0,4\n", "line 3 holds a NUL byte"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_odd_texts_are_refused_with_a_remedy(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / name)
    assert len(str(caught.value)) < 400


def test_a_long_text_and_brackets_in_texts_are_no_nesting(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"text": "[{" * 500 + '"\\'}) + "\n" + json.dumps({"text": "a"}) + "\n"
    )
    assert read(tmp_path / "rows.jsonl").values == ["[{" * 500 + '"\\', "a"]
    (tmp_path / "rows.csv").write_text("text\n\n" + "word " * 40_000 + "\n\nshort\n")
    assert [len(text) for text in read(tmp_path / "rows.csv").values] == [200_000, 5]


ODD_HEADERS: dict[str, tuple[bytes, str]] = {
    "beyond memory": (header_of((10**15, 8)), r"its header says 64,000,000,000,000,000 bytes of values"),
    "negative": (header_of((-3, 2)), r"its header says shape \(-3, 2\)"),
    "short": (header_of((3, 2)) + bytes(47), r"48 bytes of values \(shape \(3, 2\)\), but it holds 47"),
    "long": (header_of((3, 2)) + bytes(49), "1 bytes follow its values: save one array to a file"),
    "no size": (header_of((10**12,), "<U0"), "holds <U0 values"),
    "objects": (header_of((2,), "|O"), "Object arrays cannot be loaded, for they could run code"),
    "structured": (header_of((2,), [("a", "<f8")]) + bytes(16), "save numbers or strings"),
    "nested": (b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000, "its header is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("ending", [".npy", ".npz"])
@pytest.mark.parametrize(("content", "message"), ODD_HEADERS.values(), ids=ODD_HEADERS)
def test_odd_headers_of_arrays_are_refused(content: bytes, message: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{ending}"
    if ending == ".npy":
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"rows.npy is not a .npy file of numbers.*{message}"):
            row_stream(path).count()
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert "allow_pickle" not in str(caught.value)


def test_an_encrypted_npz_and_one_with_absurd_sizes_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez(file, X=np.eye(3))
    for offset, value, message in (
        (8, 1, "'X' in it is encrypted"),
        (24, 2**31, r"rows.npz holds 2,147,483,648 bytes"),
    ):
        content = bytearray(file.getvalue())
        place = content.index(b"PK\x01\x02") + offset
        content[place : place + 4] = (
            int.to_bytes(value, 4, "little") if offset == 24 else bytes([value, 0]) + content[place + 2 : place + 4]
        )
        (tmp_path / "rows.npz").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read(tmp_path / "rows.npz")


def test_strings_of_what_are_not_characters_are_refused(tmp_path: Path) -> None:
    for code in (0xD800, 0x110000, 0xFFFFFFFF):
        array = np.array([[97, code], [98, 99]], np.uint32).view("<U2").reshape(-1)
        np.save(tmp_path / "texts.npy", array)
        with pytest.raises(DataError, match=r"texts.npy: strings hold values that are not characters"):
            read(tmp_path / "texts.npy")


def test_columns_that_cannot_be_ids_labels_or_texts_are_named(tmp_path: Path) -> None:
    odd = {
        "bytes": [b"\xff\xfe", b"\x80"],
        "waits": [timedelta(1), timedelta(2)],
        "lists": [[1], [2]],
        "structs": [{"a": 1}] * 2,
    }
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"x": [1.0, 2.0], **odd}).write_parquet(path)
    assert read(path, columns=["x"]).columns == ("x",)
    for option, what in (("ids", "id"), ("label", "label"), ("text", "text")):
        for name in odd:
            if name == "waits":
                continue
            with pytest.raises(DataError, match=rf"the {what} column '{name}' holds"):
                read(path, **({option: name} | ({} if option == "text" else {"columns": ["x"]})))


TRUNCATE = """
import os, sys
import numpy as np
from metaclust.data import streams
from metaclust.data.rows import DataError
from metaclust.mixture.estimator import InfiniteGaussianMixture
streams.WINDOW = 1 << 12
read = streams.read_rows
def cut(file, header, first, count):
    if first >= 1000:
        os.truncate(sys.argv[1], 20_000)
    return read(file, header, first, count)
streams.read_rows = cut
try:
    InfiniteGaussianMixture().fit(sys.argv[1])
except DataError as error:
    print(error)
"""


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error_and_no_bus_error(order: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.asarray(np.random.default_rng(0).normal(size=(20_000, 4)), order=order))
    done = subprocess.run([sys.executable, "-c", TRUNCATE, str(path)], capture_output=True, text=True, check=True)  # noqa: S603
    assert (
        "rows.npy is not a .npy file of numbers, or it is cut short: it became shorter while it was read" in done.stdout
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_of_a_file_are_its_rows(order: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaclust.data.streams.WINDOW", 100)
    for kind in ("<f8", ">f4", "<i2", "?", "<f2"):
        values = np.asarray((np.arange(39.0).reshape(13, 3) % 5).astype(kind), order=order)
        np.save(tmp_path / "rows.npy", values)
        stream = NpyStream(tmp_path / "rows.npy")
        assert stream.shape() == (13, 3)
        read_back = np.concatenate([block.numpy() for block in stream.arrays()])
        assert np.array_equal(read_back, values.astype(read_back.dtype))


def test_rows_that_change_between_passes_are_an_error() -> None:
    for parts in ([np.zeros(2)], [np.zeros(2), np.zeros(2)]):
        with pytest.raises(DataError, match=rf"X had 3 rows and now has {2 * len(parts)}: rows must not change"):
            joined(parts, 3)


def test_encoded_rows_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    values = np.arange(60_000.0).reshape(20_000, 3)
    stream = encode_to_file(values, lambda rows: rows * 2, tmp_path / "z.npy")
    assert np.array_equal(np.load(tmp_path / "z.npy"), values * 2)
    with pytest.raises(DataError, match="encoder returned rows of 1 columns after rows of 3"):
        encode_to_file(values, lambda rows: rows if float(rows[0, 0]) == 0 else rows[:, :1], tmp_path / "z.npy")
    assert stream.count() == 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["z.npy"]


def test_a_parquet_file_that_is_cut_short_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"x": np.random.default_rng(0).normal(size=1000)}).write_parquet(path)
    content = path.read_bytes()
    for damaged in (content[:100] + content[-300:], content[:-50], b"PAR1", b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"rows.parquet"):
            list(ParquetStream(path).arrays())
        with pytest.raises(DataError, match=r"rows.parquet"):
            read(path)


def test_ordinary_parquet_files_pass_the_check_of_their_pages(tmp_path: Path) -> None:
    count = 3000
    lists, structs = [[1.0, 2.0, 3.0], [], None] * (count // 3), [{"a": 1, "b": "x"}] * count
    frame = pl.DataFrame({"x": np.arange(count), "text": [f"t{i % 9}" for i in range(count)], "l": lists, "s": structs})
    options: list[dict[str, Any]] = [
        {"row_group_size": 100}, {"data_page_size": 100}, {"statistics": "full"}, {"compression": "snappy"},
        {"compression": "gzip"}, {"compression": "uncompressed"},
    ]  # fmt: skip
    for option in options:
        frame.write_parquet(tmp_path / "rows.parquet", **option)
        assert read(tmp_path / "rows.parquet", text="text").values == frame["text"].to_list()
        stream = ParquetStream(tmp_path / "rows.parquet", ("x",))
        assert torch.cat(list(stream.arrays())).flatten().tolist() == list(range(count))


def test_the_footer_of_a_parquet_file_is_parsed_once_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed, read_footer = [], parquet_footer.read_footer

    def counted(file: Any, size: int) -> Any:
        parsed.append(size)
        return read_footer(file, size)

    monkeypatch.setattr(parquet_footer, "read_footer", counted)
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"x": np.arange(50.0)}).write_parquet(path)
    for _ in range(2):
        assert torch.cat(list(ParquetStream(path).arrays())).flatten().tolist() == list(range(50))
        assert ParquetStream(path).count() == ParquetStream(path).rows() == 50
        assert ParquetStream(path).names() == ["x"]
    assert len(parsed) == 1
    assert len(read(path)) == 50
    assert len(parsed) == 2
    pl.DataFrame({"x": np.arange(70.0)}).write_parquet(path)
    assert ParquetStream(path).count() == 70
    # The pages are not checked for a count, so that they are before values are read.
    assert torch.cat(list(ParquetStream(path).arrays())).flatten().tolist() == list(range(70))
    assert len(parsed) == 4


def test_a_parquet_file_whose_schema_has_more_columns_than_its_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}).write_parquet(path, statistics=False)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    # A list of three structs (the root with two children, x, y) becomes one of four (the root with three, x, y, z).
    root, y = b"\x19\x3cH\x04root\x15\x04\x00", b"\x15\n%\x02\x18\x01y\x00"
    assert root in footer
    assert y in footer
    more = footer.replace(root, b"\x19\x4cH\x04root\x15\x06\x00").replace(y, y + y.replace(b"y", b"z"))
    path.write_bytes(content[: -8 - length] + more + len(more).to_bytes(4, "little") + b"PAR1")
    for reading in (read, lambda path: list(ParquetStream(path).arrays())):
        with pytest.raises(DataError, match=r"its footer or a page is damaged"):
            reading(path)


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8)).save(path)
    return path


def test_folders_that_link_to_each_other_are_read_once(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        picture(tmp_path / "data" / name / "0.png")
        picture(tmp_path / "data" / name / "1.png")
        for other in ("a", "b", "c"):
            (tmp_path / "data" / name / f"to_{other}").symlink_to(tmp_path / "data" / other)
    (tmp_path / "data" / "0_first").symlink_to(tmp_path / "data" / "c")
    rows = read_image_folder(tmp_path / "data", progress=False)
    assert rows.ids == ["a/0.png", "a/1.png", "b/0.png", "b/1.png", "c/0.png", "c/1.png"]


def test_empty_folders_are_named_by_the_outermost(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "deep" / "0.png")
    (tmp_path / "e" / "f" / "g").mkdir(parents=True)
    (tmp_path / "a" / "h").mkdir()
    with pytest.warns(UserWarning, match="category folders without images: 'a/h', 'e'$"):
        read_image_folder(tmp_path, progress=False)


def test_very_deep_folders_are_no_recursion(tmp_path: Path) -> None:
    place = tmp_path
    for _ in range(300):
        place = place / "d"
        place.mkdir()
    picture(place / "0.png")
    usual = sys.getrecursionlimit()
    # As if they were three times as deep: a path of more parts is too long for most systems.
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        rows = read_image_folder(tmp_path, progress=False)
    finally:
        sys.setrecursionlimit(usual)
    assert rows.ids == ["d/" * 300 + "0.png"]


def test_images_beyond_the_limit_of_bytes_are_refused(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "0.png")
    with pytest.raises(DataError, match=r"holds 30,000,000 bytes of data or more, above the limit \(1,000,000\)"):
        read_data(tmp_path, size=(5000, 2000), channels=3, max_bytes=1_000_000, progress=False)
    with pytest.raises(DataError, match="it has 8 x 8 pixels, more than the limit of 10"):
        decode_image(tmp_path / "a" / "0.png", 2, 2, 1, max_pixels=10)
