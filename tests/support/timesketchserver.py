# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A server that answers Timesketch's own client as a server of Timesketch does, and keeps the events."""

from __future__ import annotations

import contextlib
import email
import http.server
import json
import threading
from typing import Any, Dict, Iterator, List

_LOGIN = b'<input id="csrf_token" value="token">'
_SKETCH = {"id": 1, "name": "case", "my_permissions": '["read", "write"]'}
_UPLOADED = {"id": 1, "searchindex": {"index_name": "stub"}}


class TimesketchServer(http.server.ThreadingHTTPServer):
    """The server.

    Attributes:
        events: all events that were sent
        forms: the fields of the form that logged in
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events: List[Dict[str, Any]] = []
        self.forms: List[bytes] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: TimesketchServer

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            self._answer({"objects": [_SKETCH], "meta": {}})
        else:
            self._send(200, "text/html", _LOGIN)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/login/"):
            self.server.forms.append(body)
            self._send(302, "text/html", b"", "/")
            return
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        for part in email.message_from_bytes(head + body).walk():
            if part.get_param("name", header="Content-Disposition") == "events":
                content = part.get_payload(decode=True)
                assert isinstance(content, bytes)
                self.server.events += [json.loads(line) for line in content.splitlines()]
        self._answer({"objects": [_UPLOADED], "meta": {}})

    def _answer(self, value: Dict[str, Any]) -> None:
        self._send(200, "application/json", json.dumps(value).encode())

    def _send(self, status: int, kind: str, content: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running() -> Iterator[TimesketchServer]:
    """Yields a server that listens."""
    with TimesketchServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
