"""Debian's chromium, driven over the W3C WebDriver protocol: what the test of the page needs of it, and no more."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

from ready_line import ReadyLine

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Shift": "\ue008", "Escape": "\ue00c", "Space": "\ue00d"}


class BrowserError(Exception):
    """What the driver answered instead of a value."""


class Browser:
    """One window of a chromium with a profile of its own. close() ends it and its driver."""

    def __init__(self, width=1400, height=1000):
        program = shutil.which("chromedriver")
        assert program and shutil.which("chromium"), "no chromium with chromedriver here: scripts/setup installs them"
        self._profile = tempfile.TemporaryDirectory(prefix="nmc-browser-")
        self._driver = subprocess.Popen([program, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self._output = ReadyLine(self._driver.stdout, pattern=r".*started successfully on port (\d+)")
        self._session = ""
        try:
            self._url = f"http://127.0.0.1:{self._output.wait(60, 'chromedriver')}"
            self._session = "/session/" + self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome",
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                "goog:chromeOptions": {
                    "binary": shutil.which("chromium"),
                    # Tests run as root in containers too, where its sandbox can't be had and /dev/shm is small.
                    "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                             "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
                             f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}"],
                },
            }}})["sessionId"]
        except BaseException:
            self.close()
            raise

    def _call(self, method, path, body=None):
        request = urllib.request.Request(self._url + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            said = json.load(error)["value"]
            raise BrowserError(f"{method} {path}: {said['error']}: {said['message'].splitlines()[0]}") from None

    def _do(self, command, body=None, method="POST"):
        return self._call(method, self._session + command, {} if body is None and method == "POST" else body)

    def open(self, url):
        self._do("/url", {"url": url})

    def run(self, script, *arguments):
        """What the page's own script would get: `return document.title`."""
        return self._do("/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent.trim()", selector)

    def press(self, *keys):
        """Keys into whatever has the focus: names of KEYS, or text. "Shift+Enter" holds the first."""
        strokes = []
        for key in keys:
            held = [KEYS[name] for name in key.split("+")[:-1]] if re.fullmatch(r"(\w+\+)+\w+", key) else []
            typed = key.split("+")[-1] if held else key
            strokes += [{"type": "keyDown", "value": one} for one in held]
            for one in [KEYS[typed]] if typed in KEYS else typed:
                strokes += [{"type": "keyDown", "value": one}, {"type": "keyUp", "value": one}]
            strokes += [{"type": "keyUp", "value": one} for one in reversed(held)]
        self._do("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def cdp(self, command, **parameters):
        """Chromium's own commands, for what the protocol lacks."""
        return self._do("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def use_scheme(self, scheme):
        """light or dark, as if the system had been set so."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def use_size(self, width, height):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._do("/screenshot", method="GET")))

    def console(self):
        """What was written to the console since the last call, errors of loading and of policy included."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._do("/se/log", {"type": "browser"})]

    def requested_urls(self):
        """All that the page asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self._do("/se/log", {"type": "performance"})]
        return [event["params"]["request"]["url"] for event in events
                if event["method"] == "Network.requestWillBeSent"]

    def close(self):
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(30)
            self._output.close(30)
            self._profile.cleanup()
