"""The Gradio app in a real browser, without a network. Skipped where Chromium is not installed."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("gradio")
webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

SPACE = Path(__file__).parents[2] / "examples" / "space"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and its driver")]
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip


@pytest.fixture(scope="module")
def address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"GRADIO_SERVER_PORT": str(port), "HF_HUB_OFFLINE": "1"}
    app = subprocess.Popen([sys.executable, "app.py"], cwd=SPACE, env=environment)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and app.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{port}", timeout=60).close()
            break
        except OSError:
            time.sleep(0.5)
    yield f"http://127.0.0.1:{port}"
    app.terminate()
    app.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1200,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    """The app, with the trees of its example shown."""
    browser.get(address)
    until(browser, lambda: len(pictures(browser, "trees")) == 3)
    return browser


def until(browser, condition) -> None:
    WebDriverWait(browser, 90, ignored_exceptions=[Exception]).until(lambda _: condition())


def pictures(browser, place: str) -> list:
    return browser.find_elements(By.CSS_SELECTOR, f"#{place} svg[role=img]")


def title(browser, place: str) -> str:
    return browser.execute_script("return arguments[0].querySelector('title').textContent", pictures(browser, place)[0])


def open_tab(browser, name: str) -> None:
    [tab] = [tab for tab in browser.find_elements(By.CSS_SELECTOR, "button[role=tab]") if tab.text == name]
    tab.click()


def choose(browser, constituent: str) -> bool:
    """Choose it from the list, which an update of the page may close; whether it is chosen already."""
    box = browser.find_element(By.CSS_SELECTOR, "#constituent input")
    if box.get_property("value") == constituent:
        return True
    box.click()
    options = browser.find_elements(By.CSS_SELECTOR, "[role=listbox] [role=option]")
    [option] = [option for option in options if option.get_attribute("aria-label") == constituent]
    option.click()
    return False


def test_a_text_is_sentences_and_each_has_three_trees(page):
    box = page.find_element(By.CSS_SELECTOR, "#text textarea")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("A cat sleeps. Dr. Smith doesn't know <b>C++</b>.")
    page.find_element(By.ID, "parse").click()
    until(page, lambda: title(page, "trees") == "A cat sleeps .")
    sentences = page.find_elements(By.CSS_SELECTOR, "#sentence label")
    assert len(sentences) == 2 and "do n't" not in page.page_source and "does n't" in sentences[1].text
    sentences[1].click()
    until(page, lambda: title(page, "trees").startswith("Dr. Smith does n't know"))
    captions = [caption.text for caption in page.find_elements(By.CSS_SELECTOR, "#trees figcaption")]
    assert [caption.split(" (")[0] for caption in captions] == ["Parser", "Chart", "Minimum risk"]
    assert not page.find_elements(By.CSS_SELECTOR, "#trees b")  # what was typed is text, not HTML


def test_the_chart_shows_probabilities(page):
    open_tab(page, "Chart")
    until(page, lambda: pictures(page, "chart")[0].is_displayed())
    cells = page.find_elements(By.CSS_SELECTOR, "#chart svg g[data-span]")
    assert "100" in [cell.text for cell in cells] and len(cells) >= 6


def test_constituents_find_their_nearest(page):
    open_tab(page, "Nearest constituents")
    until(page, lambda: "The old man bought a new car" in page.find_element(By.ID, "nearest").text)
    assert "1.000" in page.find_element(By.ID, "nearest").text
    until(page, lambda: choose(page, "a new car"))

    def nearest() -> str:
        lines = page.find_element(By.ID, "nearest").text.split("\n")  # rows below the fold are not on the page
        return lines[lines.index("1.000") + 1]

    until(page, lambda: nearest() == "a new car")


def test_trees_can_be_copied_in_three_forms(page):
    open_tab(page, "Copy")

    def copied() -> str:
        return page.find_element(By.CSS_SELECTOR, "#copied textarea").get_property("value")

    until(page, lambda: copied() == "(((The (old man)) (bought (a (new car)))) .)")
    for label in page.find_elements(By.CSS_SELECTOR, "#format label")[1:]:
        label.click()
        start = {"JSON": '{"leaves"', "SVG": "<svg "}[label.text]
        until(page, lambda start=start: copied().startswith(start))
    assert page.find_elements(By.CSS_SELECTOR, "#copied button")


def test_nothing_is_asked_of_another_server(page, address):
    asked = set()
    for entry in page.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    assert asked and not {url for url in asked if not url.startswith((address, "data:", "blob:", "chrome"))}


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_the_window(browser, address, width, scheme):
    """Nothing sticks out on a phone; pictures scroll in their frames."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})  # fmt: skip
    browser.get(f"{address}/?__theme={scheme}")
    until(browser, lambda: len(pictures(browser, "trees")) == 3)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    colours = browser.execute_script(
        "let svg = document.querySelector('#trees svg[role=img]');"
        "return [getComputedStyle(svg).fill, getComputedStyle(document.body).backgroundColor]"
    )
    assert colours[0] != colours[1]
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
