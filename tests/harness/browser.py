"""A headless Chromium, driven through a pipe by its DevTools protocol."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

WAIT_S = 30


class Browser:
    """One page, as somebody sees it."""

    def __init__(self, width=1200, height=1400):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="snug-browser-"))
        commands, self.write = os.pipe()
        self.read, answers = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        script = f'exec 3<&{commands} 4>&{answers}; exec "$@"'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={self.folder}", f"--window-size={width},{height}"]
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", "chromium", *flags, "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self.number, self.pending, self.session = 0, b"", None
        self.errors = []  # Of the page's scripts, and of what it could not load.
        (target,) = [
            each
            for each in self.call("Target.getTargets")["targetInfos"]
            if each["type"] == "page"
        ]
        attach = {"targetId": target["targetId"], "flatten": True}
        self.session = self.call("Target.attachToTarget", **attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.write)
        os.close(self.read)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **params):
        """The answer to a command of the protocol."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            self._note(message)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message["result"]

    def _message(self):
        while b"\0" not in self.pending:
            part = os.read(self.read, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.pending += part
        text, _, self.pending = self.pending.partition(b"\0")
        return json.loads(text)

    def _note(self, message):
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["exception"].get("description"))
        entry = params.get("entry", {})
        if message.get("method") == "Log.entryAdded" and entry["level"] == "error":
            self.errors.append(entry["text"] + " " + entry.get("url", ""))

    def open(self, url):
        self.call("Page.navigate", url=url)

    def evaluate(self, script):
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, script):
        """Until the expression is true; gives its value."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            try:
                value = self.evaluate(script)
            except RuntimeError:
                value = None  # Between two pages.
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError(f"{script} did not become true in {WAIT_S} s; errors: {self.errors}")

    def screenshot(self, file):
        """The whole page as PNG."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        pathlib.Path(file).write_bytes(base64.b64decode(picture["data"]))
