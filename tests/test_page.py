"""The page at /, in a real browser: it loads, follows the server, chats by keyboard alone, and asks nobody else."""

import json
import urllib.request

import pytest
from browser import Browser
from waiting import eventually

PROMPT = "How is the moon made? " * 4


@pytest.fixture(scope="module")
def browser():
    window = Browser()
    yield window
    window.close()


@pytest.fixture(scope="module")
def server(start_program, tmp_path_factory):
    return start_program("nano-mooncake-api", "--mode", "pd", "--transfer", "shm", "--dram-bytes", "16MiB",
                         "--disk-dir", tmp_path_factory.mktemp("page") / "cache")


@pytest.fixture
def page(browser, server):
    """The page, live; what the browser did before is forgotten."""
    browser.use_size(1400, 1000)
    browser.use_scheme("light")
    browser.open("about:blank")
    browser.console()
    browser.requested_urls()
    browser.open(server.url + "/")
    eventually(lambda: browser.text("#link") == "live", "live")
    return browser


def ask(server, path, body=None):
    request = urllib.request.Request(server.url + path, None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def complete(server, prompt, tokens=8):
    return ask(server, "/v1/completions", {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True})


def number(text):
    return int(text.replace(",", ""))


def focus(browser):
    """The id of what has the keyboard."""
    return browser.run("return document.activeElement.id")


def tab_to(browser, target, steps=40):
    for _ in range(steps):
        browser.press("Tab")
        if focus(browser) == target:
            return
    raise AssertionError(f"Tab doesn't reach #{target}")


def answers(browser):
    """The answers in the chat that are done: (tokens of the prompt, of which cached)."""
    return browser.run("""return [...document.querySelectorAll("#log footer[data-prompt]")].map(
        (footer) => [Number(footer.dataset.prompt), Number(footer.dataset.cached)])""")


# What it shows


def test_it_loads_clean_and_asks_only_its_own_server(page, server):
    complete(server, PROMPT)
    received = ask(server, "/v1/metrics")["requests"]["received"]
    eventually(lambda: number(page.text("#requests-received")) == received, "the request")
    page.press("x")  # anywhere: nothing listens for it
    assert page.console() == []
    urls = page.requested_urls()
    assert server.url + "/" in urls and server.url + "/v1/metrics" in urls
    # `data:` is its own icon.
    assert [url for url in urls if not url.startswith((server.url + "/", "data:image/svg+xml"))] == []


def test_figures_follow_the_server(page, server):
    for _ in range(2):
        complete(server, PROMPT)
    document = ask(server, "/v1/metrics")
    counters, pool = document["counters"], document["pool"]
    eventually(lambda: number(page.text("#output-total")) == counters["output_tokens"], "output tokens")
    assert number(page.text("#saved")) == counters["saved_tokens"] > 0
    assert number(page.text("#computed")) == counters["computed_tokens"]
    assert number(page.text("#pool-cached")) == pool["blocks_cached"] > 0
    assert number(page.text("#pool-free")) == pool["blocks_free"]
    assert float(page.text("#ttft")) > 0 and float(page.text("#itl")) > 0
    assert page.text("#fact-mode") == "pd" and page.text("#fact-transfer") == "shm"
    rows = page.run("return [...document.querySelectorAll('#workers tr')].map((row) => row.innerText.split('\\t'))")
    assert [row[:3] for row in rows] == [["prefill-0", "prefill", "ready"], ["decode-0", "decode", "ready"]]
    last = document["handovers"][0]
    row = page.run("return document.querySelector('#handovers tr').innerText.split('\\t')")
    assert last["request"].endswith(row[0].lstrip("…")) and row[1:4] == ["prefill-0", "decode-0", "shm"]
    tiers = page.run("return [...document.querySelectorAll('#tiers tr')].map((row) => row.dataset.tier)")
    assert tiers == ["dram", "disk", "missed"]
    assert number(page.text("#tiers [data-tier=dram] td")) == document["tiers"]["dram"]["hits"]


def test_lines_grow_with_time(page, server):
    def points():
        return page.run("return document.querySelector('#spark-output .line').getAttribute('d').match(/[ML]/g).length")

    before = points()
    eventually(lambda: points() >= before + 2, "two more points")


def test_the_pool_shows_each_state_that_there_is(page, server):
    complete(server, PROMPT)
    pool = ask(server, "/v1/metrics")["pool"]
    eventually(lambda: number(page.text("#pool-cached")) == pool["blocks_cached"], "cached blocks")
    cells = page.run("""return Object.fromEntries(["pinned", "reserved", "cached", "free"].map(
        (state) => [state, document.querySelectorAll(`#pool .${state}`).length]))""")
    assert cells["cached"] >= 1  # however few of the blocks they are
    assert sum(cells.values()) == page.run("return document.getElementById('pool').childElementCount") == 480
    assert cells["free"] == pytest.approx(480 * pool["blocks_free"] / pool["blocks_total"], abs=2)


def test_pause_holds_the_figures(page, server):
    tab_to(page, "pause")
    page.press("Enter")
    assert page.text("#link") == "paused"
    shown = page.text("#requests-received")
    page.requested_urls()
    complete(server, PROMPT)
    received = ask(server, "/v1/metrics")["requests"]["received"]
    page.run("return new Promise((resolve) => setTimeout(resolve, 2100))")  # by its own clock, two intervals
    assert page.text("#requests-received") == shown and page.requested_urls() == []
    page.press("Enter")
    eventually(lambda: number(page.text("#requests-received")) == received, "the request")


# Chat


def test_chat_streams_and_tells_what_the_cache_saved_by_keyboard_alone(page):
    page.press("Tab")
    assert page.run("return document.activeElement.className") == "skip"
    page.press("Enter")
    assert focus(page) == "prompt"
    page.press("Tell me", "Shift+Enter", "of tides", "Enter")
    first = eventually(lambda: answers(page), "an answer")[0]
    assert page.text(".message.user p") == "Tell me\nof tides"
    assert page.run("return document.querySelector('.message.assistant p').textContent.length") > 0
    tab_to(page, "again")
    page.press("Enter")
    second = eventually(lambda: answers(page)[1:], "a second answer")[0]
    assert first[0] == second[0] and first[1] < first[0]
    assert second[1] == second[0], "all of the prompt is known the second time"
    assert f"{second[0]} of {second[0]} prompt tokens from the cache (100 %)" in page.text(".message:last-child footer")
    assert page.console() == []


def test_an_answer_comes_in_pieces_and_escape_stops_it(page, server):
    before = ask(server, "/v1/metrics")["requests"]
    # Pressed by the page itself at the third piece: the driver's key could come after so fast an answer's end.
    page.run("""window.lengths = new Set();
        const press = () => document.activeElement.dispatchEvent(
            new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
        new MutationObserver(() => {
          window.lengths.add(document.querySelector(".message.assistant p")?.textContent.length ?? 0);
          if (window.lengths.size === 4) press();
        }).observe(document.getElementById("log"), {childList: true, subtree: true, characterData: true});
        document.getElementById("max-tokens").value = 7000;
        document.getElementById("prompt").focus();""")
    page.press("On and on", "Enter")
    eventually(lambda: page.run("return document.querySelector('.message.assistant footer')"), "its end")
    assert page.text(".message.assistant footer") == "stopped"
    assert page.run("return window.lengths.size") >= 4
    eventually(lambda: ask(server, "/v1/metrics")["requests"]["cancelled"] == before["cancelled"] + 1, "cancelled")
    assert page.console() == []


def test_what_goes_wrong_is_said_where_it_was_asked(page):
    page.run("document.getElementById('prompt').value = 'x'.repeat(9000); document.getElementById('prompt').focus()")
    page.press("Enter")
    eventually(lambda: "8192" in page.run(
        "return document.querySelector('.message .error')?.textContent ?? ''"), "the server's words on its context")
    assert page.run("return document.getElementById('prompt').value.length") == 9000, "given back to be mended"
    page.run("document.getElementById('prompt').value = ''")
    page.press("Shorter", "Enter")
    eventually(lambda: answers(page), "an answer to the next one")


def test_text_is_text_whatever_it_holds(page):
    hostile = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>"
    page.run("document.getElementById('prompt').focus()")
    page.press(hostile, "Enter")
    eventually(lambda: answers(page), "an answer")
    assert page.text(".message.user p") == hostile
    assert page.run("return document.querySelectorAll('#log img, #log script').length") == 0
    assert page.console() == []


def test_nothing_else_may_run_or_be_asked(page):
    page.run("""const script = document.createElement("script");
        script.textContent = "window.hit = 1";
        document.body.append(script);
        window.asked = fetch("http://127.0.0.1:9/").then(() => "answered", (error) => error.name);""")
    assert page.run("return window.hit ?? null") is None
    assert page.run("return window.asked") == "TypeError"
    said = "\n".join(page.console())
    assert "script-src" in said and "connect-src" in said


# For everyone


# Text whose contrast with what lies behind it is below WCAG's 4.5. Disabled controls are exempt there.
LOW_CONTRAST = """
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const luminance = (color) => {
  const [r, g, b] = channels(color).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if ((channels(color)[3] ?? 1) > 0) return color;
  }
  return "rgb(255, 255, 255)";
};
let seen = 0;
const found = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.checkVisibility() || node.disabled || node.closest("script, style")) continue;
  ++seen;
  const [a, b] = [luminance(getComputedStyle(node).color), luminance(behind(node))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) found.push(`${node.tagName} "${node.textContent.trim().slice(0, 20)}": ${ratio.toFixed(2)}`);
}
return [seen, found];
"""


@pytest.mark.parametrize("scheme, is_light", [("light", True), ("dark", False)])
def test_both_schemes_can_be_read(page, server, scheme, is_light):
    page.use_scheme(scheme)
    background = page.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (min(background) > 200) == is_light and (max(background) < 60) != is_light
    page.run("document.getElementById('prompt').focus()")
    page.press("Colours", "Enter")
    eventually(lambda: answers(page), "an answer")
    seen, found = page.run(LOW_CONTRAST)
    assert seen > 60 and found == []


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_it_fits_phones_and_wide_screens(page, server, width):
    complete(server, PROMPT)
    page.use_size(width, 900)
    assert page.run("return document.documentElement.scrollWidth") <= width
    outside = page.run("""return [...document.querySelectorAll("body *")].filter((node) => {
        const box = node.getBoundingClientRect();
        return node.checkVisibility() && box.width > 0 && !node.closest(".scroll, .skip") &&
               (box.left < -1 || box.right > innerWidth + 1);
      }).map((node) => node.tagName + "#" + node.id)""")
    assert outside == []


def test_every_control_has_a_name(page):
    nodes = page.cdp("Accessibility.getFullAXTree")["nodes"]
    controls = {"button", "textbox", "combobox", "spinbutton", "link", "region", "log", "image", "table"}
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes
             if not node.get("ignored") and node["role"]["value"] in controls]
    assert {"button", "textbox", "combobox", "spinbutton", "region", "log", "image"} <= {role for role, _ in named}
    assert [role for role, name in named if not name and role != "table"] == []


# The key


def test_the_key_is_asked_for_and_kept_in_memory_only(browser, start_program):
    guarded = start_program("nano-mooncake-api", "--dram-bytes", "16MiB",
                            environment={"NANO_MOONCAKE_API_KEY": "moon"})
    is_asked = "return document.getElementById('key-dialog').open"
    browser.open(guarded.url + "/")
    eventually(lambda: browser.run(is_asked), "the question")
    assert focus(browser) == "key"
    browser.press("cheese", "Enter")
    eventually(lambda: "refused" in browser.text("#key-why") and browser.run(is_asked), "the refusal")
    browser.press("moon", "Enter")
    eventually(lambda: browser.text("#link") == "live", "live")
    assert not browser.run(is_asked)
    browser.run("document.getElementById('prompt').focus()")
    browser.press("Hello", "Enter")
    eventually(lambda: answers(browser), "an answer")
    assert browser.run("return localStorage.length + sessionStorage.length + document.cookie.length") == 0
    assert "moon" not in browser.run("return document.documentElement.outerHTML").replace("nano-mooncake", "")
    browser.open(guarded.url + "/")
    eventually(lambda: browser.run(is_asked), "the question again")
    browser.press("Escape")
    eventually(lambda: not browser.run(is_asked), "closed")
    tab_to(browser, "give-key")
    browser.press("Enter")
    assert browser.run(is_asked)
