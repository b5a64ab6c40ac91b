"""Downloads, from a server on this machine that can be told to misbehave."""

import hashlib
import io
import itertools
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclust.data.datasets import download as module
from metaclust.data.datasets.download import download
from metaclust.data.readers.archives import unpack
from metaclust.data.rows import DataError

CONTENT = bytes((i * i + i // 251) % 256 for i in range(40_000))
OTHER = CONTENT[::-1]
HALF = 20_000


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PART = f"file.bin.{sha(CONTENT)[:16]}.part"


class Handler(BaseHTTPRequestHandler):
    """Answers the n-th request in the n-th way of its server, and from then on in the last one."""

    server: "Server"

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        with self.server.lock:
            way = self.server.ways[min(len(self.server.ranges), len(self.server.ways) - 1)]
            self.server.ranges.append(asked)
            self.server.paths.append(self.path)
        way(self, int(asked[6:-1]) if asked else None)

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.release = threading.Event()
        """What the stalling answers wait for."""
        self.ways: list[Way] = [fine()]
        self.ranges: list[str | None] = []
        self.paths: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/file.bin"

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is what some of the tests are about."""


Way = Callable[[Handler, int | None], None]


def fine(content: bytes = CONTENT, until: int | None = None, then: Callable[[Handler], object] | None = None) -> Way:
    """The rest of the content, as it was asked for; with ``until``, it breaks off there, after ``then``."""

    def way(handler: Handler, start: int | None) -> None:
        if start is None:
            handler.head(200, Content_Length=len(content))
        elif start < len(content):
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            handler.head(206, Content_Length=len(content) - start, Content_Range=span)
        else:
            handler.head(416)
            return
        handler.wfile.write(content[start or 0 : until])
        if then is not None:
            handler.wfile.flush()
            then(handler)

    return way


def always(status: int, body: bytes = CONTENT, **headers: object) -> Way:
    """The same answer whatever was asked for."""

    def way(handler: Handler, _: int | None) -> None:
        handler.head(status, **headers)
        handler.wfile.write(body)

    return way


def chunked(body: bytes, whole: bool) -> Way:
    def way(handler: Handler, _: int | None) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.head(200, Transfer_Encoding="chunked", Connection="close")
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
        handler.wfile.write(b"0\r\n\r\n" if whole else b"fff\r\nbroken")

    return way


def hang_up(handler: Handler, _: int | None) -> None:
    """Nothing, not even a status."""


def dribble(handler: Handler, _: int | None) -> None:
    handler.head(200, Content_Length=len(CONTENT))
    for start in range(0, len(CONTENT), 999):
        handler.wfile.write(CONTENT[start : start + 999])
        handler.wfile.flush()
        time.sleep(0.001)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(module, "PAUSE", 0)
    monkeypatch.setenv("no_proxy", "*")
    running.release.clear()
    running.ways, running.ranges, running.paths = [fine()], [], []
    return running


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def get(server: Server, folder: Path, **options: object) -> Path:
    return download(server.url, folder / "file.bin", **{"sha256": sha(CONTENT), "progress": False} | options)


def refused(server: Server, folder: Path, match: str, **options: object) -> None:
    with pytest.raises(DataError, match=match):
        get(server, folder, **options)


@pytest.mark.parametrize("size", [None, len(CONTENT)])
@pytest.mark.parametrize(
    "way",
    [
        fine(),
        dribble,
        chunked(CONTENT, whole=True),
        always(200),
        always(200, CONTENT + b"more", Content_Length=len(CONTENT)),
    ],
    ids=["plain", "slow", "chunked", "no length", "more than announced"],
)
def test_a_file_is_fetched_with_one_request_and_nothing_lies_beside_it(server, tmp_path, way, size):
    server.ways = [way]
    folder = tmp_path / "new" / "folder"
    assert get(server, folder, size=size, progress=True) == folder / "file.bin"
    assert (folder / "file.bin").read_bytes() == CONTENT
    assert names(folder) == ["file.bin"]
    assert server.ranges == [None]


def test_an_empty_file_is_a_file(server, tmp_path):
    server.ways = [fine(b"")]
    assert get(server, tmp_path, sha256=sha(b""), size=0).read_bytes() == b""
    assert names(tmp_path) == ["file.bin"]


def test_a_file_that_is_there_is_taken_without_a_request_and_another_one_is_never_overwritten(
    server, tmp_path, monkeypatch
):
    # Nor is anything written, since the folder may be for reading only.
    monkeypatch.setattr(module, "part_file", lambda *_: pytest.fail("a part is not needed"))
    (tmp_path / "file.bin").write_bytes(CONTENT)
    assert get(server, tmp_path, sha256=sha(CONTENT).upper()).read_bytes() == CONTENT
    (tmp_path / "file.bin").write_bytes(OTHER)
    refused(server, tmp_path, f"is {sha(OTHER)}, not {sha(CONTENT)}.*Delete it")
    assert (tmp_path / "file.bin").read_bytes() == OTHER
    assert names(tmp_path) == ["file.bin"]
    assert server.ranges == []


def test_a_folder_in_the_place_of_the_target_is_refused(server, tmp_path):
    (tmp_path / "file.bin").mkdir()
    refused(server, tmp_path, "is not a file")
    assert server.ranges == []


@given(lengths=st.lists(st.integers(1, 9_000), max_size=4))
@settings(max_examples=15)
def test_wherever_connections_break_off_each_request_asks_for_the_rest_only(running, lengths):
    ends = list(itertools.accumulate(lengths))
    running.ranges, running.ways = [], [*(fine(until=end) for end in ends), fine()]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAUSE", 0)
        patch.setenv("no_proxy", "*")
        assert get(running, Path(name), tries=len(ends) + 1).read_bytes() == CONTENT
        assert names(Path(name)) == ["file.bin"]
    assert running.ranges == [None, *(f"bytes={end}-" for end in ends)]


@pytest.mark.parametrize("first", [hang_up, always(503), always(429), always(408)])
def test_a_server_that_is_busy_or_hangs_up_is_asked_again(server, tmp_path, first):
    server.ways = [first, first, fine()]
    assert get(server, tmp_path, tries=3).read_bytes() == CONTENT
    assert server.ranges == [None] * 3


def test_the_pauses_between_tries_grow(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(module, "PAUSE", 0.5)
    monkeypatch.setattr(module.time, "sleep", pauses.append)
    server.ways = [always(503)]
    refused(server, tmp_path, "503 Service Unavailable; tries=4.*download the file yourself.*file.bin")
    assert pauses == [0.5, 1.0, 2.0]
    assert names(tmp_path) == []


def test_chunks_that_break_off_are_taken_up_again(server, tmp_path):
    server.ways = [chunked(CONTENT[:HALF], whole=False), fine()]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges[0] is None
    # The last chunk was itself cut off; how much of it arrived is up to the reader.
    assert int(server.ranges[1][6:-1]) in (HALF, HALF + len("broken"))


def test_an_end_before_the_size_is_a_connection_that_broke_off(server, tmp_path):
    server.ways = [always(200, CONTENT[:HALF]), fine()]
    assert get(server, tmp_path, size=len(CONTENT)).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_server_that_stalls_is_asked_again_for_the_rest(server, tmp_path):
    server.ways = [
        lambda *_: server.release.wait(),
        fine(until=HALF, then=lambda _: server.release.wait()),
        fine(),
    ]
    assert get(server, tmp_path, timeout=1.0).read_bytes() == CONTENT
    assert server.ranges == [None, None, f"bytes={HALF}-"]


def test_a_call_that_gives_up_leaves_only_the_part_and_the_next_call_goes_on_from_there(server, tmp_path):
    server.ways = [fine(until=HALF), hang_up, fine()]
    refused(server, tmp_path, f"{server.url} could not be downloaded.*tries=2", tries=2)
    assert names(tmp_path) == [PART]
    assert (tmp_path / PART).read_bytes() == CONTENT[:HALF]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]
    assert server.ranges == [None, f"bytes={HALF}-", f"bytes={HALF}-"]


def test_a_call_that_gives_up_before_the_first_byte_leaves_nothing(server, tmp_path):
    server.ways = [fine(until=0)]
    refused(server, tmp_path, f"broke off after 0 of {len(CONTENT)} bytes")
    assert names(tmp_path) == []


def test_an_interrupt_leaves_only_the_part_and_the_next_call_goes_on_from_there(server, tmp_path, monkeypatch):
    class Interrupted(module.Waiting):
        def set(self, done: int) -> None:
            if done >= HALF:
                raise KeyboardInterrupt

    server.ways = [fine(until=HALF), fine()]
    with monkeypatch.context() as patch:
        patch.setattr(module, "Waiting", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            get(server, tmp_path)
    assert names(tmp_path) == [PART]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_the_part_belongs_to_its_content(server, tmp_path):
    server.ways = [fine(OTHER)]
    (tmp_path / PART).write_bytes(CONTENT[:HALF])
    assert get(server, tmp_path, sha256=sha(OTHER)).read_bytes() == OTHER
    assert server.ranges == [None]
    assert names(tmp_path) == ["file.bin", PART]


def test_a_part_that_is_whole_is_only_moved(server, tmp_path):
    (tmp_path / PART).write_bytes(CONTENT)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]
    assert server.ranges == []


@pytest.mark.parametrize(
    ("way", "requests"),
    [
        (always(200, Content_Length=len(CONTENT)), 1),
        (always(206, Content_Range=f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"), 2),
        (always(206, CONTENT[HALF + 1 :], Content_Range=f"bytes {HALF + 1}-{len(CONTENT) - 1}/{len(CONTENT)}"), 2),
        (always(206, CONTENT[HALF:]), 2),
        (always(206, CONTENT[HALF:], Content_Range=f"bytes {'9' * 5000}-9/9"), 2),
        (always(416, b""), 2),
    ],
    ids=["the whole file", "from 0", "one byte too far", "from nowhere", "from far beyond", "not satisfiable"],
)
def test_a_server_that_does_not_go_on_where_it_was_asked_to_is_started_over(server, tmp_path, way, requests):
    server.ways = [way, fine()]
    (tmp_path / PART).write_bytes(OTHER[:HALF])
    assert get(server, tmp_path, tries=1).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-", None][:requests]
    assert names(tmp_path) == ["file.bin"]


def test_a_server_that_never_goes_on_ends_after_the_tries(server, tmp_path):
    server.ways = [always(206, CONTENT[:HALF], Content_Range="bytes 7-9/10")]
    refused(server, tmp_path, "not asked for; tries=3", tries=3)
    server.ways = [always(200, CONTENT[:HALF], Content_Length=len(CONTENT))]
    refused(server, tmp_path, f"broke off after {HALF} of {len(CONTENT)} bytes; tries=3", tries=3)
    assert server.ranges == [None] * 4 + [f"bytes={HALF}-"] * 2


@pytest.mark.parametrize("last", [CONTENT, OTHER], ids=["right", "wrong"])
def test_a_part_of_another_file_is_thrown_away_and_the_file_fetched_whole_just_once(server, tmp_path, last):
    (tmp_path / PART).write_bytes(OTHER[:HALF])
    server.ways = [fine(), fine(last)]
    if last == CONTENT:
        assert get(server, tmp_path).read_bytes() == CONTENT
    else:
        refused(server, tmp_path, f"is {sha(OTHER)}, not {sha(CONTENT)}")
    assert names(tmp_path) == (["file.bin"] if last == CONTENT else [])
    assert server.ranges == [f"bytes={HALF}-", None]


def test_wrong_content_is_not_kept_and_not_asked_for_again(server, tmp_path):
    server.ways = [fine(OTHER)]
    refused(server, tmp_path, f"{server.url} .*is {sha(OTHER)}, not {sha(CONTENT)}")
    assert server.ranges == [None]
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "way",
    [fine(CONTENT + b"1"), chunked(CONTENT + b"1", whole=True), always(200, CONTENT + b"1")],
    ids=["announced", "chunked", "no length"],
)
def test_more_bytes_than_the_size_are_refused(server, tmp_path, way):
    server.ways = [way]
    refused(server, tmp_path, f"more than size={len(CONTENT)}", size=len(CONTENT))
    assert server.ranges == [None]
    assert names(tmp_path) == []


@pytest.mark.parametrize("announced", [{}, {"Content_Length": 10**15}], ids=["no length", "announced"])
def test_reading_stops_once_there_are_more_bytes_than_the_size(server, tmp_path, announced):
    """The server waits with the rest: reading on would time out and be tried again."""
    body = b"" if announced else CONTENT

    def way(handler: Handler, _: int | None) -> None:
        always(200, body, **announced)(handler, None)
        handler.wfile.flush()
        server.release.wait()

    server.ways = [way]
    refused(server, tmp_path, "more than size=100", size=100, timeout=10)
    assert server.ranges == [None]
    assert names(tmp_path) == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_file_that_is_not_to_be_had_is_asked_for_once(server, tmp_path, status):
    server.ways = [always(status, b"<html>")]
    refused(server, tmp_path, f"{server.url}: the server returned {status} .*yourself.*file.bin")
    assert server.ranges == [None]
    assert names(tmp_path) == []


def test_a_part_survives_a_file_that_is_gone(server, tmp_path):
    (tmp_path / PART).write_bytes(CONTENT[:HALF])
    server.ways = [always(404, b"<html>")]
    refused(server, tmp_path, "404")
    assert names(tmp_path) == [PART]


def test_a_redirection_is_followed_and_still_asks_for_the_rest_only(server, tmp_path):
    (tmp_path / PART).write_bytes(CONTENT[:HALF])
    server.ways = [always(302, b"", Location="/elsewhere"), fine()]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.paths == ["/file.bin", "/elsewhere"]
    assert server.ranges == [f"bytes={HALF}-"] * 2


@pytest.mark.parametrize("scheme", ["file", "ftp"])
def test_a_redirection_away_from_the_web_is_not_followed(server, tmp_path, scheme):
    (tmp_path / "secret").write_bytes(CONTENT)
    server.ways = [always(302, b"", Location=f"{scheme}://localhost{tmp_path}/secret")]
    refused(server, tmp_path, "not allowed|unknown url type", tries=1)
    assert names(tmp_path) == ["secret"]


def test_an_address_that_cannot_be_one_leads_nowhere(server, tmp_path):
    server.ways = [always(302, b"", Location="http://[nowhere/")]
    refused(server, tmp_path, f"{server.url} is not a valid address .*Check the url")
    with pytest.raises(DataError, match=r"is not a valid address .*Check the url"):
        download(f"http://{'a' * 70}.invalid/", tmp_path / "file.bin", sha256=sha(CONTENT), progress=False)
    assert names(tmp_path) == []


def test_no_connection_at_all_is_said_so(server, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"
    with pytest.raises(
        DataError, match=f"{url} cannot be reached: there is no connection.*Check the network.*yourself.*file.bin"
    ):
        download(url, tmp_path / "file.bin", sha256=sha(CONTENT), progress=False)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"url": "ftp://example.org/a"}, "url='ftp"),
        ({"url": "file:///etc/hosts"}, "url='file"),
        ({"url": "example.org/a"}, "url='example"),
        ({"url": "http:///a"}, "url="),
        ({"url": "http://a:b@example.org/a"}, "without spaces or a password"),
        ({"url": "http://example.org/a b"}, "url="),
        ({"url": "http://example.org/\r\nHost: b"}, "url="),
        ({"url": "http://example.org:port/"}, "url="),
        ({"url": "http://[::1/"}, "url="),
        ({"sha256": "abc"}, "sha256='abc': it must be 64"),
        ({"size": -1}, "size=-1"),
        ({"tries": 0}, "tries=0"),
        ({"timeout": 0.0}, "timeout=0.0"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(tmp_path, options, match):
    with pytest.raises(ValueError, match=re.escape(match)):
        download(**{"url": "http://example.org/a", "target": tmp_path / "a", "sha256": sha(b"")} | options)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_and_a_part_that_cannot_be_written_are_named(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    refused(server, tmp_path / "file", "file.bin cannot be written.*Make room")
    (tmp_path / PART).mkdir()
    refused(server, tmp_path, "file.bin cannot be written.*Make room")
    assert names(tmp_path) == ["file", PART]
    assert server.ranges == []


def test_a_target_that_appears_meanwhile_is_left_alone(server, tmp_path):
    server.ways = [lambda *request: ((tmp_path / "file.bin").write_bytes(OTHER), fine()(*request))]
    refused(server, tmp_path, "Delete it")
    assert (tmp_path / "file.bin").read_bytes() == OTHER
    (tmp_path / "file.bin").unlink()
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None]


def test_the_bytes_are_on_the_disk_before_the_file_is_there(server, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(module.os, "fsync", lambda file: seen.append((os.fstat(file).st_size, names(tmp_path))))
    get(server, tmp_path)
    assert seen == [(len(CONTENT), [PART.replace(".part", ".lock"), PART])]


def test_two_at_once_do_not_write_into_the_same_file(server, tmp_path):
    arrived = threading.Event()
    server.ways = [fine(until=HALF, then=lambda _: (arrived.set(), server.release.wait())), fine()]
    first = threading.Thread(target=get, args=(server, tmp_path))
    first.start()
    assert arrived.wait(60)
    assert get(server, tmp_path).read_bytes() == CONTENT
    server.release.set()
    first.join()
    # The second one fetched the whole file for itself; the first one went on, and found the file there.
    assert server.ranges == [None, None, f"bytes={HALF}-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]


def test_of_two_at_once_only_the_first_leaves_its_part(server, tmp_path):
    arrived = threading.Event()
    hold = fine(until=HALF, then=lambda _: (arrived.set(), server.release.wait()))
    server.ways = [hold, fine(until=HALF + 1), fine()]
    first = threading.Thread(target=get, args=(server, tmp_path))
    first.start()
    assert arrived.wait(60)
    refused(server, tmp_path, f"broke off after {HALF + 1}", tries=1)
    assert names(tmp_path) == [PART.replace(".part", ".lock"), PART]
    server.release.set()
    first.join()
    assert server.ranges == [None, None, f"bytes={HALF}-"]
    assert names(tmp_path) == ["file.bin"]


def test_a_lock_that_was_removed_by_its_holder_is_not_a_lock(server, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    lock = tmp_path / PART.replace(".part", ".lock")

    def overtaken(*_: object) -> None:
        lock.rename(tmp_path / "removed")
        lock.write_bytes(b"of someone else")

    monkeypatch.setattr(fcntl, "flock", overtaken)
    (tmp_path / PART).write_bytes(CONTENT[:HALF])
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None]
    assert names(tmp_path) == ["file.bin", lock.name, PART, "removed"]


def test_a_file_that_someone_else_has_just_finished_is_taken(server, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", lambda *_: (tmp_path / "file.bin").write_bytes(CONTENT))
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == []
    assert names(tmp_path) == ["file.bin"]


def test_many_at_once_all_get_the_file(server, tmp_path):
    server.ways = [fine(until=HALF), dribble, fine(until=HALF), dribble]
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(get(server, tmp_path, tries=8).read_bytes())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT] * 8
    assert names(tmp_path) == ["file.bin"]


def test_where_files_cannot_be_locked_nothing_is_left_either(server, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def unsupported(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    server.ways = [fine(until=HALF), fine()]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert names(tmp_path) == ["file.bin"]


def in_another_process(server: Server, folder: Path) -> subprocess.Popen[bytes]:
    """A process that has fetched a part of the file, and waits for the server to go on."""
    server.ways = [fine(until=HALF, then=lambda _: server.release.wait()), fine()]
    code = (
        "import sys; from pathlib import Path; from metaclust.data.datasets.download import download;"
        "download(sys.argv[1], Path(sys.argv[2]), sha256=sys.argv[3])"
    )
    arguments = [sys.executable, "-c", code, server.url, str(folder / "file.bin"), sha(CONTENT)]
    process = subprocess.Popen(arguments)  # noqa: S603
    while process.poll() is None and not ((folder / PART).exists() and (folder / PART).stat().st_size):
        time.sleep(0.01)
    assert process.poll() is None
    assert not (folder / "file.bin").exists()
    return process


def test_two_processes_at_once_do_not_write_into_the_same_file(server, tmp_path):
    process = in_another_process(server, tmp_path)
    assert get(server, tmp_path).read_bytes() == CONTENT
    server.release.set()
    assert process.wait() == 0
    assert server.ranges == [None, None, f"bytes={HALF}-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]


def test_a_process_that_was_killed_blocks_nobody_and_its_part_is_taken_up(server, tmp_path):
    process = in_another_process(server, tmp_path)
    process.kill()
    process.wait()
    have = (tmp_path / PART).stat().st_size
    assert 0 < have <= HALF
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={have}-"]
    assert names(tmp_path) == ["file.bin"]


@pytest.mark.parametrize(("member", "content"), [("../outside.txt", b"x"), ("bomb", bytes(2**25))])
def test_a_hostile_archive_is_fetched_but_not_unpacked(server, tmp_path, member, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("good.txt", b"good")
        archive.writestr(member, content)
    body = buffer.getvalue()
    server.ways = [fine(body)]
    folder = tmp_path / "data"
    archive_file = download(server.url, folder / "file.zip", sha256=sha(body), size=len(body), progress=False)
    with pytest.raises(DataError, match=re.escape(f"{member!r}") + "|the limit"):
        unpack(archive_file, folder / "unpacked")
    assert names(folder) == ["file.zip"]
    assert names(tmp_path) == ["data"]
