"""The report as a reader meets it, in headless Chromium."""

from __future__ import annotations

import pytest

CONTRAST = """
function channel(v) { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); }
function light(rgb) { return 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]); }
function colour(text) { return text.match(/[\\d.]+/g).map(Number); }
function behind(node) {
  for (; node; node = node.parentElement) {
    var found = colour(getComputedStyle(node).backgroundColor);
    if (found.length === 3 || found[3] === 1) { return found; }
  }
  return [255, 255, 255];
}
var worst = 21, where = "";
var kinds = "h1, h2, h3, p, td, th, dt, dd, small, li, summary, .badge, figcaption";
document.querySelectorAll(kinds).forEach(function (node) {
  if (!node.textContent.trim() || !node.getClientRects().length) { return; }
  var pair = [light(colour(getComputedStyle(node).color)), light(behind(node))];
  pair.sort(function (a, b) { return b - a; });
  var ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (ratio < worst) { worst = ratio; where = node.outerHTML.slice(0, 120); }
});
return [worst, where];
"""
MOVE = """
var slider = document.getElementById("tolerance");
slider.value = %d;
slider.dispatchEvent(new Event("input", {bubbles: true}));
"""


def shown(estimate):
    return f"{100 * estimate['value']:.1f}"


TOLERANCE = '[data-slot="tolerance"]:not(.printed *)'


def numbers_on_page(browser):
    slots = ("accuracy", "gap", "gap-interval", "flipped")
    return {slot: browser.text(f'[data-slot="{slot}"]') for slot in slots} | {
        "tolerance": browser.text(f"#groups {TOLERANCE}")
    }


def test_the_slider_moves_every_number(browser, page, summary):
    browser.open(page)
    assert browser.driver.find_element("id", "control").is_displayed()
    for index, step in enumerate(summary["steps"]):
        browser.run(MOVE % index)
        gap = step["verdicts"][step["worst"]]["gap"]
        found = numbers_on_page(browser)
        assert found["accuracy"] == shown(step["accuracy"]) + "%"
        assert found["gap"] == shown(gap)
        assert found["gap-interval"] == f"{100 * gap['lower']:.1f} to {100 * gap['upper']:.1f}"
        assert found["flipped"] == f"{step['flipped']:,}"
        assert found["tolerance"] == f"{100 * step['step_tolerance']:.3g}"
        assert set(browser.texts(TOLERANCE)) == {found["tolerance"]}
        for group, state in enumerate(step["groups"]):
            assert browser.text(f'[data-slot="true_positive_rate-{group}"]') == shown(state["true_positive_rate"]) + "%"
        for place, flips in enumerate(step["flips"]):
            assert browser.text(f'[data-slot="flips-{place}-up"]') == f"{flips['to_positive']:,}"
        visible = browser.texts(".receipts:not([hidden]) h4")
        assert [f"{receipt['row']:,}" in text for receipt, text in zip(step["receipts"], visible, strict=True)]
        chosen = browser.run("return [...document.querySelectorAll('.chosen')].map(n => n.dataset.step)")
        assert set(chosen) == {str(index)}
        assert len(chosen) == 3
        assert browser.run("return document.documentElement.dataset.outcome") == step["outcome"].split()[0]
        lower = browser.run("return document.querySelector('[data-place]').style.getPropertyValue('--lower')")
        assert 0 <= float(lower) <= 100


def test_the_slider_answers_to_the_keyboard_and_points_to_the_mouse(browser, page, summary):
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    before = browser.text(TOLERANCE)
    slider = browser.driver.find_element("id", "tolerance")
    slider.send_keys(Keys.ARROW_LEFT)
    assert browser.text(TOLERANCE) != before
    assert "percentage points" in slider.get_attribute("aria-valuetext")
    browser.run("document.querySelector('.step_a_marks [data-step=\"0\"]').dispatchEvent(new Event('click'))")
    first = f"{100 * summary['steps'][0]['step_tolerance']:.3g}"
    assert browser.text(TOLERANCE) == first


def test_the_summary_for_a_committee_has_at_most_ten_lines(browser, page, summary):
    lines = """return [...document.querySelectorAll("#summary dd")].map(
      n => Math.round(n.getBoundingClientRect().height / parseFloat(getComputedStyle(n).lineHeight)))"""
    browser.open(page)
    for index in range(len(summary["steps"])):
        browser.run(MOVE % index)
        assert len(browser.run(lines)) == 5
        assert sum(browser.run(lines)) <= 10, browser.texts("#summary dd")


def test_without_javascript_everything_is_there_for_the_chosen_rule(browser, page, summary):
    browser.open(page, javascript=False)
    step = summary["steps"][summary["chosen"]]
    assert not browser.driver.find_element("id", "control").is_displayed()
    found = numbers_on_page(browser)
    assert found["accuracy"] == shown(step["accuracy"]) + "%"
    assert len(browser.driver.find_elements("css selector", "figure svg")) >= 5
    assert len(browser.texts(".receipts:not([hidden]) h4")) == len(step["receipts"])
    headings = browser.texts("h2")
    assert headings[0].startswith("Before and after")
    assert headings[-2:] == ["Before you rely on it", "Glossary"]


def test_a_group_named_script_is_text(browser, page):
    browser.open(page)
    assert browser.run("return window.hacked === undefined")
    assert "<script>window.hacked = true</script>" in browser.text("main")
    svg_texts = browser.run("return [...document.querySelectorAll('svg text')].map(n => n.textContent).join(' ')")
    assert "<script>" in svg_texts


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_light_and_in_dark(browser, page, scheme):
    browser.open(page, scheme=scheme)
    worst, where = browser.run(CONTRAST)
    assert worst >= 4.5, where
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    label = browser.run("return getComputedStyle(document.querySelector('.role-axis-label text')).fill")
    assert label == ("rgb(87, 96, 106)" if scheme == "light" else "rgb(169, 177, 187)")


def test_a_phone_needs_no_sideways_scrolling(browser, page):
    browser.open(page, width=400)
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    assert browser.driver.find_element("id", "tolerance").size["width"] > 300


def test_the_page_loads_nothing_and_complains_of_nothing(browser, page):
    browser.driver.get_log("browser")
    browser.open(page)
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert [entry for entry in browser.driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_charts_have_a_name_for_those_who_do_not_see_them(browser, page):
    browser.open(page)
    names = browser.run("return [...document.querySelectorAll('svg')].map(n => [n.getAttribute('role'), n.ariaLabel])")
    assert all(role == "img" and name for role, name in names)
    assert browser.run("return document.querySelectorAll('table:not(:has(th))').length") == 0


OVERFLOW = """
var wide = document.documentElement.clientWidth, found = [];
document.querySelectorAll("body *").forEach(function (node) {
  if (node.closest(".scroll") && !node.classList.contains("scroll")) { return; }
  if (node.closest("svg") && node.tagName !== "svg") { return; }
  var box = node.getBoundingClientRect();
  if (box.width && (box.right > wide + 1 || box.left < -1)) { found.push(node.outerHTML.slice(0, 100)); }
});
return [document.documentElement.scrollWidth - wide, found.slice(0, 5)];
"""
PARTED = """
var parted = [];
function apart(a, b) { return Math.abs(a.getClientRects()[0].left - b.getClientRects()[0].left) > 300; }
document.querySelectorAll("h2, h3, h4, caption").forEach(function (node) {
  var next = node.tagName === "CAPTION" ? node.parentElement.querySelector("tr") : node.nextElementSibling;
  if (!next || !node.getClientRects().length || !next.getClientRects().length) { return; }
  if (next.tagName === "P" && next.nextElementSibling && next.nextElementSibling.querySelector("tr, svg")) {
    var last = next.nextElementSibling.querySelector("tr, svg");
    if (last.getClientRects().length && apart(node, last)) { parted.push(node.textContent); }
  }
  if (apart(node, next)) { parted.push(node.textContent); }
});
return [parted, document.querySelectorAll("h2").length];
"""
PAGES = """
var style = document.createElement("style");
style.textContent = "html,body{margin:0} body{columns:640px auto;column-gap:60px;column-fill:auto;height:900px}"
  + " main,header,footer{max-width:none;padding:0}";
document.head.appendChild(style);
window.dispatchEvent(new Event("beforeprint"));
"""


@pytest.mark.parametrize("width", [360, 480, 640, 800, 1100, 1600])
def test_nothing_overflows_at_any_width(browser, page, two_attributes_page, width):
    for path in (page, two_attributes_page):
        browser.open(path, width=width)
        browser.run("document.querySelectorAll('details').forEach(n => { n.open = true; })")
        assert browser.run(OVERFLOW) == [0, []]


def test_on_paper_nothing_overflows_and_no_heading_is_parted_from_what_it_heads(browser, page, two_attributes_page):
    for path in (page, two_attributes_page):
        browser.open(path, width=700)
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert browser.run(OVERFLOW) == [0, []]
        browser.run(PAGES)
        parted, headings = browser.run(PARTED)
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        assert headings >= 7
        assert parted == []


def test_a_printed_page_says_at_which_tolerance_and_what_was_asked(browser, page, summary):
    browser.open(page)
    assert not browser.driver.find_element("css selector", ".printed").is_displayed()
    browser.run(MOVE % 0)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    text = browser.text(".printed")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    first = summary["steps"][0]["step_tolerance"]
    assert f"at a tolerance of {100 * first:.3g} points" in text
    assert "Equalized odds" in text
    assert f"up to {100 * summary['tolerance']:.3g} in 100" in text


def test_every_line_of_the_contents_leads_somewhere(browser, page):
    browser.open(page)
    links = browser.run("return [...document.querySelectorAll('nav a')].map(n => n.getAttribute('href').slice(1))")
    titles = browser.run("return [...document.querySelectorAll('nav a')].map(n => n.textContent)")
    headings = browser.run("return [...document.querySelectorAll('section[id] > h2')].map(n => n.textContent)")
    assert titles == headings
    assert browser.run(f"return {links}.every(id => document.getElementById(id))")
