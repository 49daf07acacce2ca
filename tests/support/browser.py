"""A headless Chromium, the system's, driven by selenium: for what only a browser can tell."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"),
)

WIDE, NARROW = 1200, 320


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own, closed at the end of the block."""
    options = Options()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        driver.set_page_load_timeout(120)
        driver.set_script_timeout(600)  # axe-core takes half a minute for a long page
        yield driver
    finally:
        driver.quit()


def look(driver: webdriver.Chrome, width: int = WIDE, height: int = 900, *, dark: bool = False, scripts: bool = True) -> None:
    """How pages are seen from now on."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})


@cache
def _axe() -> str:
    return (files("axe_core_python") / "axe.min.js").read_text("utf-8")


def accessibility_violations(driver: webdriver.Chrome, *rules: str) -> list[str]:
    """What axe-core finds wrong with the page that is shown, contrast included: the rule and where.

    ``rules``: only these; none named: all.
    """
    driver.execute_script(_axe())
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found: dict[str, Any] = driver.execute_async_script("axe.run(document, arguments[0]).then(arguments[1]);", options)
    return [
        f"{each['id']}: {each['help']}: {json.dumps([node['html'][:160] for node in each['nodes'][:3]])}"
        for each in found["violations"]
    ]


def console(driver: webdriver.Chrome) -> list[str]:
    """What the browser has reported about since the last call: errors of scripts, breaches of the policy."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
