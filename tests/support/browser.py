# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A headless Chromium without network, driven through a pipe by its DevTools protocol.

with Browser(folder) as browser:
    page = browser.open(path)
    page.run("document.title")
    page.key("Enter")
    page.png(folder / "page.png")
    assert page.faults == [] and page.requests == [path.as_uri()]
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import types
from typing import Any, Dict, List, Optional, Tuple, Type

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
    *("--disable-sync", "--metrics-recording-only", "--mute-audio", "--disable-dev-shm-usage"),
    # No name is found, and no address is reached but through a proxy that is not there.
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9"),
    *("--remote-debugging-pipe", "--hide-scrollbars", "--force-device-scale-factor=1"),
)
_READ = 1 << 16

KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Tab": ("Tab", 9, ""),
    "f": ("KeyF", 70, "f"),
    "/": ("Slash", 191, "/"),
}


def program() -> str:
    """Returns the browser's program; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None or os.name == "nt":
        pytest.skip(f"no program {', '.join(PROGRAMS)} is there (Debian: apt install chromium)")
    return found


class Browser:
    """A browser with an empty profile, which ends with the block.

    Args:
        folder: an empty folder for the profile
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._number = 0
        self._rest = b""
        self._pages: Dict[str, Page] = {}

    def __enter__(self) -> Browser:
        read_commands, self._write = os.pipe()
        self._read, write_answers = os.pipe()
        # The browser reads commands from 3 and writes answers to 4.
        script = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
        command = [program(), *_FLAGS, f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, *command],
            pass_fds=(read_commands, write_answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, HOME=str(self._folder)),
        )
        os.close(read_commands)
        os.close(write_answers)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        os.write(self._write, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def open(self, path: pathlib.Path, width: int = 1200, height: int = 900, fragment: str = "") -> Page:
        """Opens a file in a new page and waits until it is loaded.

        Args:
            path: of an HTML file
            width, height: of the page, in pixels
            fragment: what follows the path, such as `#profile`
        """
        target = self.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.size(width, height)
        # What lies behind another page is not drawn, and hears of no scrolling.
        page.ask("Page.bringToFront")
        page.ask("Page.navigate", {"url": path.as_uri() + fragment})
        while not page.loaded:
            self._take()
        return page

    def ask(self, method: str, options: Optional[Dict[str, Any]] = None, session: str = "") -> Dict[str, Any]:
        """Sends a command and returns its answer."""
        self._number += 1
        message: Dict[str, Any] = {"id": self._number, "method": method, "params": options or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._take()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def _take(self) -> Dict[str, Any]:
        """Returns the next message; events go to their page."""
        pieces = [self._rest]
        while b"\0" not in pieces[-1]:
            data = os.read(self._read, _READ)
            if not data:
                raise AssertionError(f"the browser has ended with {self._process.wait()}")
            pieces.append(data)
        text, _, self._rest = b"".join(pieces).partition(b"\0")
        message: Dict[str, Any] = json.loads(text)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.event(message["method"], message["params"])
        return message


class Page:
    """A page of the browser.

    Attributes:
        loaded: whether it is
        faults: errors and warnings of its console, exceptions, breaches of its policy
        requests: the addresses that it asked for
    """

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.loaded = False
        self.faults: List[str] = []
        self.requests: List[str] = []
        self._browser, self._session, self._target = browser, session, target

    def ask(self, method: str, options: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        return self._browser.ask(method, options, self._session)

    def event(self, method: str, options: Dict[str, Any]) -> None:
        """Takes note of an event."""
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(options["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(options["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and options["type"] in ("error", "warning", "assert"):
            self.faults.append(json.dumps(options["args"]))
        elif method == "Log.entryAdded" and options["entry"]["level"] in ("error", "warning"):
            self.faults.append(options["entry"]["text"])

    def run(self, code: str) -> Any:
        """Returns the value of an expression, or what it promises."""
        options = {"expression": code, "returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", options)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def size(self, width: int, height: int) -> None:
        """Sets the size of the page, in pixels."""
        options = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", options)

    def media(self, scheme: str = "light", kind: str = "screen") -> None:
        """Sets `prefers-color-scheme` and the medium."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", {"media": kind, "features": features})

    def key(self, name: str) -> None:
        """Presses a key of KEYS."""
        code, number, text = KEYS[name]
        key = {"key": name, "code": code, "windowsVirtualKeyCode": number}
        self.ask("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **key})
        self.ask("Input.dispatchKeyEvent", {"type": "keyUp", **key})

    def type(self, text: str) -> None:
        """Types a text where the focus is."""
        self.ask("Input.insertText", {"text": text})

    def click(self, code: str) -> None:
        """Clicks on the middle of an element, which an expression returns."""
        x, y = self.middle(code)
        for kind in ("mousePressed", "mouseReleased"):
            mouse = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", {"type": kind, **mouse})

    def follow(self, code: str) -> None:
        """Follows a link, which an expression returns, and waits until that page is loaded."""
        self.loaded = False
        self.run(f"void {code}.click()")
        while not self.loaded:
            self._browser._take()

    def reload(self) -> None:
        """Loads the page again, from the address that it has now, and waits until it is loaded."""
        self.loaded = False
        self.ask("Page.reload")
        while not self.loaded:
            self._browser._take()

    def middle(self, code: str) -> Tuple[float, float]:
        """Returns the middle of an element in the page's view, to which it scrolls.

        What the page draws anew when it has scrolled replaces elements: a press and a release on two of them
        are no click.
        """
        place = self.run(
            f"(async () => {{ const find = () => {code}; find().scrollIntoView({{block: 'nearest'}}); "
            "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); "
            "const r = find().getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        return float(place[0]), float(place[1])

    def png(self, path: pathlib.Path, whole: bool = False) -> None:
        """Writes a picture of the view, or of the whole page."""
        shown = self.ask("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        path.write_bytes(base64.b64decode(shown["data"]))

    def pdf(self, path: pathlib.Path) -> None:
        """Prints the page to a file."""
        path.write_bytes(base64.b64decode(self.ask("Page.printToPDF", {"printBackground": True})["data"]))

    def __enter__(self) -> Page:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: object) -> None:
        """Closes the page; one that a test has looked at to the end has no faults."""
        assert kind is not None or self.faults == []
        self.close()

    def close(self) -> None:
        self._browser.ask("Target.closeTarget", {"targetId": self._target})
