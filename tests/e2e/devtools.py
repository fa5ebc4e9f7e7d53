"""A headless Chromium driven over its DevTools pipe: no port, no driver, no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37,
         "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip


def find_chromium() -> str | None:
    """Path of a Chromium, or None."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. Collects what went wrong in it: console errors, exceptions, requests."""

    def __init__(self, binary: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser wants descriptors 3 and 4; both ends are first moved out of their way.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (to_browser, from_browser)]

        def place() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            [binary, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        for fd in (*ends, to_browser, from_browser):
            os.close(fd)
        self._buffer = b""
        self._id = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: list[dict] = []
        self._attach()

    def close(self) -> None:
        try:
            self._send("Browser.close", top=True)
            self._process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def open(self, path: Path) -> None:
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self._wait_event("Page.loadEventFired")

    def call(self, method: str, *, top: bool = False, **params: object) -> dict:
        number = self._send(method, top=top, **params)
        while True:
            message = self._receive()
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]

    def js(self, expression: str) -> object:
        """Value of an expression; a promise is awaited, an exception fails the test."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def click(self, selector: str, index: int = 0) -> None:
        """A real mouse click in the middle of the first line box of the element."""
        x, y = self.js(
            f"(() => {{ const n = document.querySelectorAll({json.dumps(selector)})[{index}];"
            "n.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = n.getClientRects()[0];"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name: str) -> None:
        extra = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = extra if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                      windowsVirtualKeyCode=_KEYS[name], **more)  # fmt: skip

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        self.js(
            f"(() => {{ const n = document.querySelector({json.dumps(selector)});"
            f"n.value = {json.dumps(value)}; n.dispatchEvent(new Event('change')); }})()"
        )

    def view(self, *, width: int, height: int, dark: bool = False, media: str = "screen") -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def screenshot(self, path: Path, *, full: bool = False) -> None:
        image = self.call("Page.captureScreenshot", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(image["data"]))

    def pdf(self) -> bytes:
        """The page on paper, in the colours of the paper's own style."""
        self.call("Emulation.setEmulatedMedia", media="print")
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _attach(self) -> None:
        targets = self.call("Target.getTargets", top=True)["targetInfos"]
        tab = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", top=True, targetId=tab, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _send(self, method: str, *, top: bool = False, **params: object) -> int:
        self._id += 1
        message: dict = {"id": self._id, "method": method, "params": params}
        if self._session and not top:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return self._id

    def _receive(self, timeout: float = 60.0) -> dict:
        end = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise AssertionError("the browser closed or did not answer within 60 s")
            self._buffer += chunk
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        if "method" in message:
            self._note(message)
        return message

    def _wait_event(self, name: str) -> None:
        while not any(event["method"] == name for event in self._events):
            self._receive()

    def _note(self, message: dict) -> None:
        self._events.append(message)
        method, params = message["method"], message["params"]
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(params["entry"])[:500])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
