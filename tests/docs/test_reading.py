"""The documentation site as readers meet it: on a phone, dark, by keyboard and screen reader, without scripts, by old bookmarks.

Its pages are served over HTTP as any server of files would do it, and looked at in a headless Chromium.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from ..support.browser import CHROMIUM, NARROW, WIDE, accessibility_violations, console, look
from .pages import PAGES, ROOT

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium chromium-driver"),
    # axe-core takes half a minute to compare the colours of 16,000 elements: the page of the API.
    pytest.mark.timeout(1200),
]

NAMES = [page.relative_to(ROOT).with_suffix(".html").as_posix() for page in PAGES]
OTHERS = ["404.html", "genindex.html", "search.html", "CHANGELOG.html", "_modules/ferryman/transport/transport.html"]
TOO_WIDE = """
const scrolls = (element) => element.closest("pre, .table-wrapper") !== null;
return [...document.querySelectorAll("article *")]
    .filter((element) => element.getBoundingClientRect().right > window.innerWidth + 0.5 && !scrolls(element))
    .map((element) => element.outerHTML.slice(0, 120));
"""
"""What of the text a reader would have to scroll sideways for, but for code and tables, which scroll in boxes of their own."""


class _Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and its 404.html for what is not there."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        if code != HTTPStatus.NOT_FOUND:
            super().send_error(code, message, explain)
            return
        body = Path(self.directory, "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: what is asked for is what the tests ask for."""


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The URL of the site, with a slash at its end."""
    handler = functools.partial(_Files, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def width(driver: Chrome) -> int:
    found: int = driver.execute_script("return document.documentElement.scrollWidth")
    return found


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_a_page_is_read_on_a_phone_light_and_dark_and_by_a_screen_reader(driver: Chrome, served: str, name: str) -> None:
    look(driver, NARROW)
    driver.get(served + name)
    assert len(driver.find_elements(By.TAG_NAME, "h1")) == 1
    assert width(driver) <= NARROW
    assert driver.execute_script(TOO_WIDE) == []
    assert accessibility_violations(driver) == []
    look(driver, NARROW, dark=True)
    # Dark or light, only colours differ.
    assert accessibility_violations(driver, "color-contrast") == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_wide_page_is_accessible_with_the_contents_beside_it(driver: Chrome, served: str, dark: bool) -> None:
    look(driver, WIDE, dark=dark)
    driver.get(served + "docs/start.html")
    assert driver.find_element(By.CSS_SELECTOR, ".sidebar-drawer").is_displayed()
    assert accessibility_violations(driver) == []
    colour = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") is not dark
    assert [line for line in console(driver) if "favicon" not in line] == []


def test_code_that_is_wider_than_a_phone_is_scrolled_by_keyboard(driver: Chrome, served: str) -> None:
    look(driver, NARROW)
    driver.get(served + "docs/access.html")
    wide = "[...document.querySelectorAll('article pre')].find((each) => each.scrollWidth > each.clientWidth)"
    box = driver.execute_script(f"{wide}.focus(); return document.activeElement")
    assert box.tag_name == "pre"
    ActionChains(driver).send_keys(Keys.ARROW_RIGHT).perform()
    WebDriverWait(driver, 60).until(lambda _driver: driver.execute_script("return arguments[0].scrollLeft", box) > 0)


def test_without_scripts_every_page_is_reached_on_a_phone(driver: Chrome, served: str) -> None:
    look(driver, NARROW, scripts=False)
    driver.get(served + "docs/start.html")
    assert "Start in five minutes" in driver.find_element(By.TAG_NAME, "h1").text
    assert not [each for each in driver.find_elements(By.CSS_SELECTOR, ".theme-toggle") if each.is_displayed()]
    link = driver.find_element(By.CSS_SELECTOR, ".sidebar-drawer a[href='production.html']")
    driver.find_element(By.CSS_SELECTOR, "label.nav-overlay-icon").click()
    WebDriverWait(driver, 60).until(lambda _driver: 0 <= link.rect["x"] < NARROW)
    link.click()
    WebDriverWait(driver, 60).until(lambda _driver: driver.current_url == served + "docs/production.html")
    assert driver.find_element(By.TAG_NAME, "article").is_displayed()


def test_without_scripts_a_page_is_dark_where_the_reader_wants_that(driver: Chrome, served: str) -> None:
    look(driver, NARROW, dark=True, scripts=False)
    driver.get(served + "docs/start.html")
    assert driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") != "rgba(255, 255, 255, 1)"


def test_without_scripts_the_search_says_what_it_lacks(driver: Chrome, served: str) -> None:
    look(driver, NARROW, scripts=False)
    driver.get(served + "search.html?q=lease")
    assert "Please activate JavaScript" in driver.find_element(By.TAG_NAME, "article").text


def test_search_finds_a_page(driver: Chrome, served: str) -> None:
    driver.get(served + "search.html?q=visibility_timeout")
    WebDriverWait(driver, 60).until(lambda _driver: driver.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    assert "docs/" in str(driver.find_element(By.CSS_SELECTOR, "#search-results li a").get_attribute("href"))


@pytest.mark.parametrize("old", ["old/guide/first-steps.html", "docs/gone.html?from=2025#there"])
def test_an_old_bookmark_leads_to_where_pages_are_now(driver: Chrome, served: str, old: str) -> None:
    driver.get(served + old)
    assert driver.find_element(By.TAG_NAME, "h1").text.startswith("No such page")
    links = driver.find_elements(By.CSS_SELECTOR, "article li a")
    assert len(links) > 3
    for address in [str(link.get_attribute("href")) for link in links]:
        driver.get(address)
        assert not driver.find_element(By.TAG_NAME, "h1").text.startswith("No such page"), address


def test_the_root_of_the_site_leads_to_its_first_page(driver: Chrome, served: str) -> None:
    look(driver, scripts=False)
    driver.get(served)
    WebDriverWait(driver, 60).until(lambda _driver: driver.current_url == served + "docs/index.html")
