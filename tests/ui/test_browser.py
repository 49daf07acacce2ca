"""The page in a real browser: no report of it, accessible, on narrow screens, light and dark, with and without scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.wait import WebDriverWait

from ..conftest import SERVERS
from ..support.browser import CHROMIUM, NARROW, WIDE, accessibility_violations, console, look
from ..support.webpage import WebPage, web_page

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium chromium-driver")

NOW = 1_700_000_000_000
PAGES = {
    "overview": "",
    "queues": "queues",
    "queue": "queue?queue=mail",
    "jobs": "jobs?queue=mail&state=failed",
    "job": "job?queue=mail&id=dead-1",
    "waiting job": "job?queue=mail&id=wait-1",
    "dead letters": "dead",
    "consumers": "consumers",
    "audit": "audit",
    "migrations": "migrations",
    "log": "log",
    "publish": "enqueue?queue=mail",
    "all that match": "bulk?queue=mail&state=failed&task=send",
    "nothing there": "queue?queue=none",
}


def _job(job_id: str, state: State, name: str = "send", queue: str = "mail") -> Job:
    return Job(
        job_id,
        queue,
        name,
        state,
        priority=0,
        payload=b'[["ann@example.com"],{"cc":"bob"},{"callbacks":null}]',
        created_at=NOW,
        finished_at=NOW if state is State.FAILED else None,
        error="no route to host" if state is State.FAILED else None,
    )


@pytest.fixture
def filled(page: WebPage, client: redis.Redis) -> WebPage:
    """A page with some jobs on it."""
    jobs = [_job(f"dead-{at}", State.FAILED) for at in range(5)] + [_job(f"wait-{at}", State.WAITING) for at in range(3)]
    store(client, get_family("ferryman"), "ferryman", jobs, NOW)
    return page


def _wait(driver: Chrome, condition: Callable[[], bool], seconds: float = 120) -> None:
    waiting = WebDriverWait(driver, seconds, ignored_exceptions=(StaleElementReferenceException,))
    waiting.until(lambda _driver: condition())


def _open(driver: Chrome, address: str) -> None:
    """Opens a page, and returns when it loads itself anew no more, as pages do that wait for something in the background."""
    driver.get(address)
    _wait(driver, lambda: not driver.find_element(By.TAG_NAME, "body").get_attribute("data-again"))


def _follow(driver: Chrome, by: str, value: str) -> None:
    """Clicks on a link, and returns when the page that it leads to is there: not every click waits for that."""
    left = driver.find_element(By.TAG_NAME, "html")
    driver.find_element(by, value).click()
    _wait(driver, lambda: staleness_of(left)(driver) and driver.execute_script("return document.readyState") == "complete")


def _says(driver: Chrome, text: str) -> None:
    """Returns when the page says so."""
    _wait(driver, lambda: text in driver.find_element(By.TAG_NAME, "main").text)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_accessible_light_dark_and_narrow(driver: Chrome, filled: WebPage, name: str) -> None:
    for width, dark in ((WIDE, False), (NARROW, True)):
        look(driver, width, dark=dark)
        _open(driver, filled.url + PAGES[name])
        assert accessibility_violations(driver) == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert len(driver.find_elements(By.TAG_NAME, "h1")) == 1
        loaded = driver.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert all(address.startswith(filled.url) for address in loaded)
    assert [line for line in console(driver) if "status of 404" not in line] == []


def test_numbers_move_by_themselves(driver: Chrome, filled: WebPage, client: redis.Redis) -> None:
    _open(driver, filled.url + "queue?queue=mail")
    shown = driver.find_element(By.CSS_SELECTOR, ".tiles .waiting .value")
    assert shown.text == "3"
    _wait(driver, lambda: "on" in driver.find_element(By.ID, "live-state").get_attribute("class"))
    store(client, get_family("ferryman"), "ferryman", [_job("wait-9", State.WAITING)], NOW)
    _wait(driver, lambda: shown.text == "4")


def test_everything_works_without_scripts(driver: Chrome, filled: WebPage) -> None:
    look(driver, scripts=False)
    _open(driver, filled.url + "queue?queue=mail")
    driver.find_element(By.XPATH, "//button[text()='Pause']").click()
    _says(driver, "This queue is paused")
    _open(driver, filled.url + "job?queue=mail&id=dead-1")
    driver.find_element(By.XPATH, "//summary[starts-with(text(),'Delete')]").click()
    driver.find_element(By.XPATH, "//button[text()='Yes, delete it']").click()
    _says(driver, "Job dead-1 is deleted")
    _open(driver, filled.url + "bulk?queue=mail&state=failed")
    driver.find_element(By.CSS_SELECTOR, "input[value=requeue]").click()
    driver.find_element(By.NAME, "sure").click()
    driver.find_element(By.XPATH, "//button[text()='Do it']").click()
    _says(driver, "Done: 4 jobs")


def test_the_keyboard_is_enough(driver: Chrome, filled: WebPage) -> None:
    _open(driver, filled.url + "queue?queue=mail")
    ActionChains(driver).send_keys(Keys.TAB).perform()
    assert driver.switch_to.active_element.text == "Skip to content"
    ActionChains(driver).send_keys(Keys.ENTER).perform()
    for _ in range(10):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        if driver.switch_to.active_element.text == "Pause":
            break
    outline = driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    ActionChains(driver).send_keys(Keys.ENTER).perform()
    _says(driver, "Paused.")


def test_hostile_names_run_nothing(driver: Chrome, page: WebPage, client: redis.Redis) -> None:
    hostile = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    job = _job("id" + hostile, State.FAILED, hostile, "q" + hostile)
    store(client, get_family("ferryman"), "ferryman", [job], NOW)
    for step in ("queues", "dead"):
        _open(driver, page.url + step)
        assert hostile in driver.find_element(By.TAG_NAME, "main").text
    _open(driver, page.url + "queues")
    _follow(driver, By.CSS_SELECTOR, "tbody th a")
    assert "q" + hostile in driver.find_element(By.TAG_NAME, "h1").text
    _follow(driver, By.CSS_SELECTOR, ".tiles .failed a")
    _follow(driver, By.CSS_SELECTOR, "tbody th a")
    assert hostile in driver.find_element(By.TAG_NAME, "h1").text
    assert "owned" not in driver.title.replace(hostile, "")
    assert not driver.find_elements(By.CSS_SELECTOR, "main img, main script")
    assert console(driver) == []


def test_what_is_written_in_a_form_comes_to_the_queue(driver: Chrome, filled: WebPage) -> None:
    _open(driver, filled.url + "queue?queue=mail")
    _follow(driver, By.PARTIAL_LINK_TEXT, "Publish a task")
    driver.find_element(By.ID, "task").send_keys("send")
    args = driver.find_element(By.ID, "args")
    args.clear()
    args.send_keys('["zoë", "<b>"]')
    driver.find_element(By.XPATH, "//button[text()='Publish']").click()
    _says(driver, "Published send")
    _open(driver, filled.url + "jobs?queue=mail&state=waiting")
    _follow(driver, By.CSS_SELECTOR, "tbody th a")
    assert '"zoë",\n  "<b>"' in driver.find_element(By.TAG_NAME, "main").text


def test_a_page_prints_without_what_only_a_screen_needs(driver: Chrome, filled: WebPage) -> None:
    _open(driver, filled.url + "job?queue=mail&id=wait-1")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not driver.find_element(By.CSS_SELECTOR, "header nav").is_displayed()
        assert not driver.find_element(By.CSS_SELECTOR, ".actions").is_displayed()
        assert driver.find_element(By.TAG_NAME, "h1").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_no_other_page_can_frame_it(driver: Chrome, filled: WebPage, tmp_path: Path) -> None:
    outside = tmp_path / "outside.html"
    outside.write_text(f'<iframe src="{filled.url}queue?queue=mail"></iframe>')
    driver.get(outside.as_uri())
    driver.switch_to.frame(0)
    try:
        assert "mail" not in driver.find_element(By.TAG_NAME, "body").text
    finally:
        driver.switch_to.default_content()


def test_a_server_that_goes_away_shows_on_the_open_page(driver: Chrome, tmp_path: Path) -> None:
    with SERVERS[0].start(tmp_path) as server, web_page(server.url(socket_timeout=2)) as page:
        _open(driver, page.url + "queues")
        _wait(driver, lambda: "on" in driver.find_element(By.ID, "live-state").get_attribute("class"))
        server.client().shutdown(nosave=True)
        _wait(driver, lambda: driver.find_element(By.ID, "live-lost").is_displayed())
        with SERVERS[0].start(tmp_path, port=server.port):
            _wait(driver, lambda: not driver.find_element(By.ID, "live-lost").is_displayed())
