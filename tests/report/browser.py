"""A real browser without a window: headless Chromium, driven through selenium."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "the report page is not tried in a browser: install chromium and chromium-driver"
PATIENCE = 20  # seconds
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """Opens pages and acts like a reader."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self._calls = 0

    def open(self, path: Path, *, width: int = 1200, dark: bool = False, script: bool = True) -> None:
        """Load a file at this width. Older messages of the console are dropped."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width)
        self._tell("Emulation.setScriptExecutionDisabled", value=not script)
        self.complaints()
        self.requests()
        self.driver.get(path.as_uri())

    def resize(self, width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._tell("Emulation.setDeviceMetricsOverride", **size)

    def complaints(self) -> list[str]:
        """The console's messages since the last call: errors, warnings, and refusals by the page's policy."""
        self._calls += 1
        last = f"that is all, {self._calls}"
        self.run("console.debug(arguments[0])", last)  # messages arrive in order, but with a delay
        heard: list[str] = []
        deadline = time.monotonic() + PATIENCE
        while not any(last in message for message in heard):
            assert time.monotonic() < deadline, f"the console's messages did not come: {heard}"
            heard += [entry["message"] for entry in self.driver.get_log("browser")]
        return [message for message in heard if "that is all, " not in message]

    def requests(self) -> list[str]:
        """The addresses requested since the last call, without those in the page (data:) or the browser (chrome:)."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "chrome:"))]

    def find(self, selector: str) -> WebElement:
        return self.all(selector)[0]

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def hover(self, selector: str, x: float, y: float) -> None:
        """Point at a place in an element; x and y are shares of its width and height."""
        from selenium.webdriver import ActionChains

        place = self.find(selector)
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", place)
        dx, dy = ((share - 0.5) * size for share, size in ((x, place.size["width"]), (y, place.size["height"])))
        ActionChains(self.driver, duration=0).move_to_element_with_offset(place, int(dx), int(dy)).perform()

    def click(self, selector: str, number: int = 0) -> None:
        place = self.all(selector)[number]
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", place)
        place.click()

    def press(self, *keys: str) -> None:
        """Press keys, by selenium's names; they go to the element that has the focus."""
        from selenium.webdriver import ActionChains, Keys

        ActionChains(self.driver, duration=0).send_keys(*[getattr(Keys, key) for key in keys]).perform()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def photograph(self, path: Path) -> None:
        """The whole page, from top to bottom."""
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(shot["data"]))

    def _tell(self, command: str, **parameters: Any) -> None:
        self.driver.execute_cdp_cmd(command, parameters)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in this folder."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, ChromeService(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
