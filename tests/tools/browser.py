"""A headless Chromium driven over the DevTools protocol's pipe: pages at a given width and colour scheme."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time

from train_support import Failure

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The browser's path; None = there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """Messages are JSON, each ended by a zero byte; we write to the browser's descriptor 3 and read from its 4."""

    def __init__(self, program, folder):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()
        def move_pipes():
            os.dup2(to_read, 1000)
            os.dup2(from_write, 1001)
            os.dup2(1000, 3)
            os.dup2(1001, 4)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={folder}/profile", "about:blank"],
            preexec_fn=move_pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ, HOME=folder))
        os.close(to_read)
        os.close(from_write)
        self.next, self.rest, self.session, self.events = 1, b"", None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.to_write)
        os.close(self.from_read)

    def read(self, deadline):
        """The next message."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.from_read], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self.from_read, 1 << 20) if ready else b""
            if not chunk:
                raise Failure("the browser said nothing for 60 s" if not ready else "the browser ended")
            self.rest += chunk
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        number, self.next = self.next, self.next + 1
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 300
        while True:
            answer = self.read(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise Failure(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, height, dark):
        """Loads a file; everything later is about it."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=f"file://{path}")
        deadline = time.monotonic() + 300
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read(deadline))

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failure(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def complaints(self):
        """What the browser logged of the page: refused requests, errors."""
        return [event["params"]["entry"]["text"] for event in self.events if event.get("method") == "Log.entryAdded"]

    def screenshot(self, path):
        """The whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
