from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import evenhand as eh
from evenhand.report import render_html, summarize
from evenhand.rules.frontier import frontier

SCRIPT = "<script>window.hacked = true</script>"


@pytest.fixture(scope="session")
def rows():
    """Learning rows and held-out rows with true probabilities: y, group, p(Y), p(Y, A)."""
    parts = []
    for seed in (0, 1):
        data = eh.datasets.make_zafar(3000, random_state=seed)
        names = np.array(["Female", SCRIPT], dtype=object)
        group = names[(np.asarray(data.group) == "1").astype(int)]
        # Sorted, "<script>..." comes first.
        parts.append((np.asarray(data.y), {"sex": group}, data.p_y, {"sex": data.p_joint[:, :, ::-1].copy()}))
    return parts


@pytest.fixture(scope="session")
def curve(rows):
    tolerances = [0.01, 0.03, 0.05, 0.08]
    return frontier(*rows[0], criterion="equalized_odds", tolerances=tolerances, random_state=0)


@pytest.fixture(scope="session")
def summary(rows, curve):
    provenance = {"data": "made by a test", "sha256": "0" * 64, "command": "evenhand demo"}
    return summarize(*rows[1], curve, tolerance=0.05, held_out=True, provenance=provenance)


@pytest.fixture(scope="session")
def page(summary, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_html(json.loads(json.dumps(summary))), encoding="utf-8")
    return path


class Browser:
    """Headless Chromium, driven through the DevTools protocol that chromedriver offers."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path, *, width=1000, scheme="light", javascript=True):
        command = self.driver.execute_cdp_cmd
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        command("Emulation.setScriptExecutionDisabled", {"value": not javascript})
        command("Emulation.setDeviceMetricsOverride", size)
        command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.get(path.as_uri())
        return self

    def text(self, selector):
        return self.driver.find_element("css selector", selector).text

    def texts(self, selector):
        return [element.text for element in self.driver.find_elements("css selector", selector)]

    def run(self, script):
        return self.driver.execute_script(script)


@pytest.fixture(scope="session")
def browser():
    from selenium import webdriver

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if not found or not driver_path:
        pytest.fail("The report's tests need Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="session")
def two_attributes_page(tmp_path_factory):
    """A report on two attributes, with long names."""
    generator = np.random.default_rng(0)
    n, long = 1500, "A group whose name nobody would abbreviate"
    x = generator.normal(size=(n, 2))
    sensitive = {
        "sex": np.where(x[:, 0] + generator.normal(size=n) > 0, "Male", "Female"),
        "country of origin, as in the passport": np.where(x[:, 1] > 0.5, long, "B"),
    }
    p = 1.0 / (1.0 + np.exp(-x.sum(axis=1)))
    y = np.where(generator.random(n) < p, ">50K", "<=50K")
    summary = summarize(y, sensitive, p, pos_label=">50K", provenance={"command": "evenhand audit " + "x" * 200})
    path = tmp_path_factory.mktemp("report") / "two.html"
    path.write_text(render_html(summary), encoding="utf-8")
    return path
