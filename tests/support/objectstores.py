# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Test servers of object stores: moto speaks S3, and azurite speaks Azure Blob Storage."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from typing import Any, Callable, Dict, Iterator, Tuple

import pytest

from .fleetrun import wait

Variables = Dict[str, str]
"""The variables by which a process finds a server."""

_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every azurite, from its documentation."""


@contextlib.contextmanager
def s3(folder: pathlib.Path) -> Iterator[Variables]:
    """Yields the variables of a server that speaks S3; skips the test where there is none."""
    pytest.importorskip("moto")
    with _server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]) as port:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "name",
            "AWS_SECRET_ACCESS_KEY": "word",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


def s3_bucket(variables: Variables, name: str) -> None:
    """Makes a bucket."""
    from pyarrow import fs

    store = fs.S3FileSystem(endpoint_override=variables["AWS_ENDPOINT_URL"], allow_bucket_creation=True)
    store.create_dir(name)


@contextlib.contextmanager
def az(folder: pathlib.Path) -> Iterator[Variables]:
    """The same for Azure Blob Storage."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("needs azurite: npm install -g azurite")
    options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location", str(folder)]
    with _server([program, *options, "--blobPort"]) as port:
        yield {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ALLOW_HTTP": "true",
        }


def az_container(variables: Variables, name: str) -> None:
    """Makes a container. Source: Microsoft Learn, "Create Container" and "Authorize with Shared Key"."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{header}:{value}\n" for header, value in headers.items())
    text = "PUT" + "\n" * 12 + f"{signed}/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
    server = urllib.parse.urlsplit(variables["AZURITE_BLOB_STORAGE_URL"]).netloc
    # Volatility changes what urllib.request opens for the whole process: nothing when it is offline.
    with contextlib.closing(http.client.HTTPConnection(server)) as connection:
        connection.request("PUT", f"/{_ACCOUNT}/{name}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == http.client.CREATED, answer.reason


STORES: Dict[str, Tuple[Callable[..., object], Callable[[Variables, str], None]]] = {
    "s3": (s3, s3_bucket),
    "az": (az, az_container),
}
"""By scheme: a server, and a function that makes a bucket in it."""


@contextlib.contextmanager
def _server(command: "list[str]") -> Iterator[int]:
    """Yields the port at which a program listens, the last word of its command line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with subprocess.Popen(
        [*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait(lambda: _listens(port) or process.poll() is not None)
            assert process.poll() is None, "the server has ended"
            yield port
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", params=STORES)
def server(request: Any, tmp_path_factory: Any) -> Iterator[Tuple[str, Dict[str, str]]]:
    """The scheme of an object store, and the variables by which a process finds it."""
    start: Any = STORES[request.param][0]
    with start(tmp_path_factory.mktemp("store")) as variables:
        yield request.param, variables


@pytest.fixture
def bucket(server: Tuple[str, Dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake that does not exist yet, in a bucket."""
    scheme, variables = server
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    name = f"bucket{time.monotonic_ns()}"
    STORES[scheme][1](variables, name)
    return f"{scheme}://{name}/cases/lake"
