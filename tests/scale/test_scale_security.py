"""A stranger on the same machine cannot talk to the processes of a run, and they listen to no other machine."""

import os
import signal
import socket
import ssl
import stat
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from distributed import Client, Security

from metaclust import InfiniteGaussianMixture
from metaclust.scale import DaskEngine, cluster_shards, open_engine
from metaclust.scale.dask_engine import warn_if_open

PATIENCE = 20
"""Seconds after which a connection that is neither answered nor refused has failed the test."""
PAGES = ("/", "/status", "/info/main/workers.html", "/health", "/json/counts.json", "/metrics", "/statics/css/base.css")


def listening(engine: DaskEngine) -> set[tuple[str, int]]:
    """Return the addresses at which this process, which is the scheduler too, and the workers listen."""
    assert engine.client.submit(os.getpid).result() != os.getpid()
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = {one.laddr for process in family for one in process.net_connections("inet") if one.status == "LISTEN"}
    return {(address.ip, address.port) for address in found}


def comm_ports(engine: DaskEngine) -> list[int]:
    """Return the ports of the scheduler, the workers, and the processes that watch over them."""
    nannies = list(engine.cluster.workers.values())
    addresses = [engine.cluster.scheduler_address, *(x.address for x in nannies), *(x.worker_address for x in nannies)]
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    return [int(address.rpartition(":")[2]) for address in addresses]


def test_all_listen_to_this_machine_only(engine: DaskEngine) -> None:
    places = listening(engine)
    assert {port for _, port in places} >= set(comm_ports(engine))
    assert {host for host, _ in places} == {"127.0.0.1"}
    assert 8787 not in {port for _, port in places}


def killed_and_replaced(engine: DaskEngine) -> bool:
    """Kill a worker; return whether Dask starts another in time, which under load it sometimes does not."""
    (nanny, *_), before = engine.cluster.workers.values(), set(engine.client.nthreads())
    os.kill(nanny.pid, signal.SIGKILL)
    limit = time.monotonic() + 6 * PATIENCE
    while time.monotonic() < limit:
        now = set(engine.client.nthreads())
        if len(now) == len(before) and now != before:
            return True
        time.sleep(0.05)
    return False


def test_no_pages_are_served_even_by_a_worker_that_replaces_a_dead_one(engine: DaskEngine) -> None:
    if not killed_and_replaced(engine):
        pytest.skip("Dask has not replaced a worker that was killed: nothing to ask")
    assert answers_of(engine) == {404, None}


def answers_of(engine: DaskEngine) -> set[int | None]:
    """Return how each page is answered at any address: None where nothing speaks HTTP."""
    answers: set[int | None] = set()
    for host, port in listening(engine):
        for page in PAGES:
            try:
                urllib.request.urlopen(f"http://{host}:{port}{page}", timeout=PATIENCE).close()
                answers.add(200)
            except urllib.error.HTTPError as error:
                error.close()
                answers.add(error.code)
            except OSError:
                answers.add(None)
    return answers


def received(port: int, context: ssl.SSLContext) -> bytes:
    """Return the first bytes that a server sends to a client that does not check whom it talks to."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        # In TLS 1.3 a client learns that it was refused when it first reads.
        try:
            with context.wrap_socket(plain) as secure:
                return secure.recv(1)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_only_the_certificates_of_the_run_are_answered(engine: DaskEngine) -> None:
    for port in comm_ports(engine):
        for security in (engine.cluster.security, Security.temporary()):
            answer = received(port, security.get_connection_args("client")["ssl_context"])
            assert (answer != b"") == (security is engine.cluster.security)
        assert received(port, ssl.create_default_context()) == b""


def test_a_client_of_dask_cannot_connect_without_the_certificates(engine: DaskEngine) -> None:
    address = engine.cluster.scheduler_address
    for given, security in [(address, Security.temporary()), (address.replace("tls", "tcp"), None)]:
        with pytest.raises(OSError, match=r"TLS certificate does not match|closed|reset"):
            Client(given, security=security, timeout=PATIENCE, set_as_default=False)
    with Client(address, security=engine.cluster.security, set_as_default=False) as own:
        assert set(own.run(os.getpid).values()) <= {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.skipif(sys.platform == "win32", reason="without modes of files")
def test_the_folder_of_the_workers_is_private(engine: DaskEngine) -> None:
    scratch = Path(engine.scratch.name)
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    folders = engine.client.run(lambda dask_worker: dask_worker.local_directory)
    assert all(Path(folder).is_relative_to(scratch) for folder in folders.values())


def test_two_runs_have_different_keys(engine: DaskEngine) -> None:
    with DaskEngine(1) as other:
        assert other.cluster.security.tls_worker_key != engine.cluster.security.tls_worker_key
        scratch = Path(other.scratch.name)
    assert not scratch.exists()


def test_without_cryptography_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ImportError, match=r"needs cryptography: pip install 'metaclust\[scale\]', or use engine"):
        DaskEngine(1).__enter__()


def test_certificates_are_for_clusters_of_ones_own(shards: Path, tmp_path: Path) -> None:
    security = Security.temporary()
    with pytest.raises(ValueError, match="security applies to a cluster of your own: give its address"):
        open_engine("dask", 2, security=security)
    with pytest.raises(ValueError, match="omit workers, address and security"):
        open_engine("local", security=security)
    with pytest.raises(TypeError, match=r"security is bool: give a distributed\.Security"):
        open_engine("dask", None, "tls://127.0.0.1:1", True)
    with DaskEngine(1) as running, pytest.raises(ValueError, match="security apply to engines by name"):
        cluster_shards(InfiniteGaussianMixture(2), shards, tmp_path / "out", engine=running, security=security)


@pytest.mark.parametrize("address", ["tcp://10.0.0.7:8786", "head.cluster:8786", "ws://head:8786"])
def test_a_cluster_without_tls_is_warned_of(address: str) -> None:
    with pytest.warns(UserWarning, match="is without TLS: everybody who can reach that cluster can run code on it"):
        warn_if_open(address)


@pytest.mark.parametrize("address", ["tls://10.0.0.7:8786", "tcp://127.0.0.1:8786", "localhost:8786", "tcp://[::1]:1"])
def test_a_cluster_on_this_machine_or_with_tls_is_not(address: str) -> None:
    warn_if_open(address)
