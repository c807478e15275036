"""nano-mooncake plot: what it draws is what the reports say, of every kind of report, and no JSON makes it stumble."""

import copy
import json
import random
import re
import subprocess
import xml.etree.ElementTree

import pytest
from browser import Browser
from conftest import ServerProcess

SVG = "{http://www.w3.org/2000/svg}"
KINDS = {  # short runs of the real commands
    "simulation": ["simulate", "--policy", "lru,opt", "--capacity-blocks", "100,400,800,inf", "--requests", "200"],
    "instant": ["simulate", "--policy", "lru,fifo", "--capacity-blocks", "200", "--rules", "instant",
                "--requests", "200"],
    "conversations": ["route-sim", "--warmup-turns", "200", "--measured-turns", "800", "--seeds", "1,2"],
    "routers": ["route-sim", "--trace", "TRACE", "--routers", "prefix,cliques", "--nodes", "2"],
    "capacity": ["capacity", "--kv-dtype", "int8"],
    "bench-engine": ["bench-engine", "--batch", "1,2", "--prompt-tokens", "32,64", "--ttft-prompt-tokens", "64",
                     "--context-tokens", "32", "--decode-steps", "2", "--repeats", "2", "--quiet"],
    "store-bench": ["store-bench", "--sizes", "4KiB,256KiB", "--concurrency", "1,2", "--seconds", "1", "--rounds", "1",
                    "--quiet"],
    "demo": ["demo", "--max-new-tokens", "2", "--quiet"],
    "likelihood": ["likelihood", "--text", "The cat sat", "--runs", "2", "--quiet"],
}
TRACE = "arrival_time,namespace,prefix_id,prefix_tokens,suffix_tokens\n" + "".join(
    f"{second},a,p{second % 3},2048,{100 + second}\n" for second in range(30))


def nano_mooncake(bin_dir, *arguments):
    return subprocess.run([bin_dir / "nano-mooncake", *map(str, arguments)], capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def reports(bin_dir, folder):
    """A file for each kind, by its name."""
    trace = folder / "trace.csv"
    trace.write_text(TRACE)
    paths = {}
    for kind, arguments in KINDS.items():
        paths[kind] = folder / f"{kind}.json"
        done = nano_mooncake(bin_dir, *[trace if word == "TRACE" else word for word in arguments], "--format", "json",
                             "--output", paths[kind])
        assert done.returncode == 0, done.stderr
    server = ServerProcess(bin_dir / "nano-mooncake-api")
    try:
        paths["slo"] = folder / "slo.json"
        done = nano_mooncake(bin_dir, "slo", "--url", server.url, "--rates", "10,40", "--duration-s", "1", "--repeats",
                             "2", "--prompt-tokens", "32", "--output-tokens", "2", "--warmup-s", "0", "--quiet",
                             "--max-lateness-ms", "10000", "--format", "json", "--output", paths["slo"])
        assert done.returncode == 0, done.stderr
    finally:
        server.kill()
    return paths


def drawn(bin_dir, *arguments):
    done = nano_mooncake(bin_dir, "plot", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def refused(bin_dir, *arguments):
    done = nano_mooncake(bin_dir, "plot", *arguments)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    line = done.stderr.decode()
    assert line.count("\n") == 1, line
    return line


class Drawing:
    """The charts of an SVG: by title their marks, each with its numbers."""

    def __init__(self, svg):
        root = xml.etree.ElementTree.fromstring(svg)
        self.words = "\n".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
        self.charts, title = {}, None
        for element in root.find(f"{SVG}g"):
            if element.get("class") == "title":
                title = element.text
            elif element.get("class") == "chart":
                self.charts[title] = [mark for mark in element.iter() if mark.get("class") == "mark"]

    def values(self, title):
        """By label, or by label and x: the value, None where there is none."""
        found = {}
        for mark in self.charts[title]:
            if mark.get("data-label") is None:
                continue
            key = mark.get("data-label") if mark.get("data-x") is None else (mark.get("data-label"),
                                                                             float(mark.get("data-x")))
            found[key] = None if mark.get("data-value") is None else float(mark.get("data-value"))
        return found

    def said(self, title):
        return ["".join(mark.itertext()) for mark in self.charts[title]]


def bars_as(values):
    return pytest.approx(values, rel=1e-6)


def test_a_simulation_by_capacity_and_its_queues(bin_dir, reports):
    report = json.loads(reports["simulation"].read_text())
    drawing = Drawing(drawn(bin_dir, reports["simulation"]))
    finite = [row for row in report["rows"] if row["capacity_blocks"] != "inf"]
    for title, member, factor in (("Token hit rate", "token_hit_rate", 100), ("Goodput", "goodput_per_s", 1),
                                  ("Time to the first token, P99", "ttft_ms_p99", 1)):
        assert drawing.values(f"{title}, by capacity") == bars_as(
            {(row["policy"], row["capacity_blocks"]): row[member] * factor for row in finite})
        assert drawing.values(f"{title}, unbounded") == bars_as(
            {f"{row['policy']}, inf blocks": row[member] * factor for row in report["rows"]
             if row["capacity_blocks"] == "inf"})
    assert all("n = 200" in words for words in drawing.said("Time to the first token, P99, by capacity"))
    assert "Jobs that wait: lru, 100 blocks" in drawing.charts
    assert "evidence_tier simulation" in drawing.words


def test_what_a_report_does_not_know_is_no_zero(bin_dir, reports):
    drawing = Drawing(drawn(bin_dir, reports["instant"]))
    for title in ("Time to the first token, P50", "Goodput"):
        assert set(drawing.values(title).values()) == {None}
        assert all("not_available" in words for words in drawing.said(title))
    assert None not in drawing.values("Token hit rate").values()


def test_routing(bin_dir, reports):
    talks = json.loads(reports["conversations"].read_text())["conversations"]
    drawing = Drawing(drawn(bin_dir, reports["conversations"]))
    assert drawing.values("Conversations that moved") == bars_as(
        {f"seed {row['seed']}": row["moved_share"] * 100 for row in talks})
    assert drawing.values("Peak load of a node") == bars_as(
        {f"seed {row['seed']}": row["peak_load_by_mean"] for row in talks})
    routers = json.loads(reports["routers"].read_text())["routers"]
    drawing = Drawing(drawn(bin_dir, reports["routers"]))
    assert drawing.values("Hit blocks") == bars_as({row["router"]: row["hit_share"] * 100 for row in routers})


def test_capacity(bin_dir, reports):
    rows = json.loads(reports["capacity"].read_text())["rows"]
    drawing = Drawing(drawn(bin_dir, reports["capacity"]))
    for title, member in (("KV of a token", "kib_per_token"), ("KV of the batch", "gib_per_batch"),
                          ("Metadata of the quantisation of a request, on top", "metadata_gib_per_request")):
        assert drawing.values(title) == bars_as({row["attention"]: row[member] for row in rows})
    assert "evidence_tier simulation, build 0.1.0" in drawing.words


def test_a_report_without_its_origin_is_drawn_as_that(bin_dir, reports, tmp_path):
    report = json.loads(reports["capacity"].read_text())
    del report["provenance"]
    (tmp_path / "old.json").write_text(json.dumps(report))
    drawing = Drawing(drawn(bin_dir, tmp_path / "old.json"))
    assert "evidence_tier not_available, build not_available" in drawing.words


def test_the_engines_throughput_with_its_spread(bin_dir, reports):
    report = json.loads(reports["bench-engine"].read_text())
    drawing = Drawing(drawn(bin_dir, reports["bench-engine"]))
    assert drawing.values("Decode throughput") == bars_as(
        {("context_tokens 32", row["batch"]): row["decode_tokens_per_s"] for row in report["decode"]})
    lows = {float(mark.get("data-x")): float(mark.get("data-low")) for mark in drawing.charts["Prefill throughput"]}
    assert lows == bars_as({row["prompt_tokens"]: row["prefill_tokens_per_s_min"] for row in report["prefill"]})
    assert list(drawing.values("Time to the first token (median, least to most)").values()) == bars_as(
        [row["ttft_ms"] for row in report["ttft"]])


def test_the_stores_sizes_on_logarithmic_axes(bin_dir, reports):
    rows = json.loads(reports["store-bench"].read_text())["rows"]
    drawing = Drawing(drawn(bin_dir, reports["store-bench"]))
    of_group = [row for row in rows if row["carrier"] in ("shm", "memory") and row["threads"] == 2]
    assert drawing.values("P99 by size: shm, 2 threads") == bars_as(
        {(row["op"], row["bytes"]): row["p99_us"] for row in of_group})
    assert drawing.values("Payload by size: shm, 2 threads") == bars_as(
        {(row["op"], row["bytes"]): row["payload_gb_s"] for row in of_group if row["logical_bytes"] > 0})
    waits = drawing.values("P99 of calls that come at random, by threads: tcp, 256 KiB")
    assert waits == bars_as({(f"{row['op']}, {part}", row["threads"]): row[f"{part}_p99_us"] for row in rows
                             for part in ("service", "wait")
                             if row["carrier"] == "tcp" and row["op"] in ("put", "get_into")
                             and row["bytes"] == 256 * 1024})
    assert "size of an object, logarithmic" in drawing.words and "256 KiB" in drawing.words


def test_a_server_under_load(bin_dir, reports):
    report = json.loads(reports["slo"].read_text())
    drawing = Drawing(drawn(bin_dir, reports["slo"]))
    title = "What was offered, answered, and answered in time (median of valid runs, least to most)"
    assert drawing.values(title) == bars_as(
        {(label, rate["rate_per_s"]): rate[member]["median"] for rate in report["rates"]
         for label, member in (("offered", "offered_per_s"), ("answered", "ok_per_s"), ("goodput", "goodput_per_s"))})
    times = drawing.values("Time to the first token of each run (with 95 % interval)")
    for run in report["runs"]:
        label = f"{run['rate_per_s']:g} requests/s, run {run['repeat'] + 1}"
        for name in ("p50", "p95", "p99"):
            assert times[f"{label}: {name}"] == (pytest.approx(run["ttft_ms"][name]["ms"])
                                                 if "ms" in run["ttft_ms"][name] else None)
    assert None in times.values(), "a second's requests are too few for a P99"
    assert any("not_available: needs 500 samples" in words for words in
               drawing.said("Time to the first token of each run (with 95 % interval)"))
    outcomes = drawing.values("Requests by outcome")
    assert sum(value for label, value in outcomes.items() if label.endswith(": ok")) == sum(
        run["ok"] for run in report["runs"])


def test_demo_and_likelihood(bin_dir, reports):
    runs = json.loads(reports["demo"].read_text())["runs"]
    tokens = Drawing(drawn(bin_dir, reports["demo"])).values("Tokens of the prompt")
    assert list(tokens.values()) == [run[name] for run in runs for name in ("computed_tokens", "saved_tokens")]
    report = json.loads(reports["likelihood"].read_text())
    values = Drawing(drawn(bin_dir, reports["likelihood"])).values("Log-likelihood of each token, first run")
    assert list(values.values()) == bars_as(report["logprobs"])


def test_reports_of_one_kind_side_by_side_with_what_differs(bin_dir, reports, tmp_path):
    other = tmp_path / "smaller.json"
    done = nano_mooncake(bin_dir, "capacity", "--batch", 8, "--format", "json", "--output", other)
    assert done.returncode == 0, done.stderr
    drawing = Drawing(drawn(bin_dir, reports["capacity"], other, reports["instant"]))
    values = drawing.values("KV of the batch")
    assert len(values) == 8
    for path in (reports["capacity"], other):
        for row in json.loads(path.read_text())["rows"]:
            assert values[f"{path.name}: {row['attention']}"] == pytest.approx(row["gib_per_batch"])
    assert "Differs: batch: 64 in capacity.json, 8 in smaller.json" in drawing.words
    assert "Differs: seq_len" not in drawing.words
    assert "Simulation, no measurement" in drawing.words  # the section of the other kind
    same = Drawing(drawn(bin_dir, other, other)).words
    assert "Their settings are the same." in same and "smaller.json (2)" in same


def test_series_are_told_apart_without_colour(bin_dir, reports):
    svg = xml.etree.ElementTree.fromstring(drawn(bin_dir, reports["store-bench"]))
    for chart in (element for element in svg.iter() if element.get("class") == "chart"):
        looks = {}
        for mark in chart.iter():
            if mark.get("class") == "mark" and mark.get("data-x"):
                shape = next(path.get("d") for path in mark if "marker" in path.get("class", ""))
                looks.setdefault(mark.get("data-label"), set()).add(shape)
        dashes = {line.get("data-label"): line.get("stroke-dasharray") for line in chart.iter()
                  if line.get("data-label") and line.get("stroke-dasharray")}
        ways = [(tuple(shapes), dashes[label]) for label, shapes in looks.items()]
        assert all(len(shapes) == 1 for shapes, _ in ways) and len(set(ways)) == len(ways)


def test_many_operations_have_markers_of_their_own(bin_dir, reports):
    """Also where each is a single point, without a line to have dashes."""
    svg = xml.etree.ElementTree.fromstring(drawn(bin_dir, reports["store-bench"]))
    for chart in (element for element in svg.iter() if element.get("class") == "chart"):
        shapes = {mark.get("data-label"): path.get("d") for mark in chart.iter() if mark.get("data-x")
                  for path in mark if "marker" in path.get("class", "")}
        assert len(set(shapes.values())) == len(shapes)


def test_help_says_what_it_takes(bin_dir):
    help_text = nano_mooncake(bin_dir, "plot", "--help").stdout.decode()
    for part in ("nano-mooncake plot - ", "Usage: nano-mooncake plot REPORT... [flags]", "Exit codes:", "Example:"):
        assert part in help_text
    assert "\n  plot " in nano_mooncake(bin_dir, "--help").stdout.decode()


def test_equal_reports_give_equal_bytes(bin_dir, reports, tmp_path):
    for name in ("once.svg", "once.html"):
        path = tmp_path / "deep" / name
        texts = []
        for _ in range(2):
            assert nano_mooncake(bin_dir, "plot", *reports.values(), "--output", path).returncode == 0
            texts.append(path.read_bytes())
        assert texts[0] == texts[1]
    assert drawn(bin_dir, *reports.values()).encode() == (tmp_path / "deep" / "once.svg").read_bytes()
    assert drawn(bin_dir, *reports.values(), "--format", "html").encode() == texts[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_needs_nothing_else(bin_dir, reports, tmp_path, scheme):
    path = tmp_path / "all.html"
    assert nano_mooncake(bin_dir, "plot", *reports.values(), "--output", path).returncode == 0
    text = path.read_text()
    assert not re.search(r"<script|<link|@import|url\(|src=|https?://(?!127)", text)
    browser = Browser()
    try:
        browser.use_scheme(scheme)
        browser.open("about:blank")
        browser.requested_urls()
        browser.open(path.as_uri())
        assert browser.console() == []
        assert browser.requested_urls() == [path.as_uri()]
        assert browser.run("return document.querySelectorAll('figure svg').length") > 30
        ground = browser.run("return getComputedStyle(document.body).backgroundColor")
        ink = browser.run("return getComputedStyle(document.querySelector('svg text')).fill")
        assert (ground, ink) == {"light": ("rgb(255, 255, 255)", "rgb(34, 34, 34)"),
                                 "dark": ("rgb(24, 26, 29)", "rgb(221, 221, 221)")}[scheme]
        # With text twice as large, charts are, too; what is wider than the window scrolls by itself.
        width = "return document.querySelector('figure svg').getBoundingClientRect().width"
        before = browser.run(width)
        browser.run("document.documentElement.style.fontSize = '32px'")
        assert browser.run(width) == pytest.approx(2 * before)
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        browser.close()


def test_names_are_text_whatever_they_hold(bin_dir, reports, tmp_path):
    path = tmp_path / "&lt;<b>&\x07\udcff.json"  # the last one a byte that is no UTF-8
    report = json.loads(reports["instant"].read_text())
    report["workload"]["name"] = "<script>\x01\uffff]]>"
    path.write_text(json.dumps(report))
    svg = drawn(bin_dir, path)
    assert "<script>" not in svg and "<b>" not in svg
    assert "<script>" in Drawing(svg).words


# What is refused


@pytest.mark.parametrize(("content", "words"), [
    ("", "not valid JSON"),
    ("[]", "`schema`: expected a report of this program"),
    ("{}", "`schema`: expected a report of this program"),
    ('{"schema": 3}', "`schema`: expected a report of this program"),
    ('{"schema": "nano-mooncake/slo/v2"}', "NAME one of simulation, route-sim, capacity, slo, bench-engine"),
    ('{"schema": "nano-mooncake/capacity/v1"}', "`rows`: expected an array of objects, got nothing"),
    ('{"schema": "nano-mooncake/capacity/v1", "rows": [{"attention": "mha", "kib_per_token": null}]}',
     "`rows[0].kib_per_token`: expected a number"),
    ('{"schema": "nano-mooncake/simulation/v1", "rows": [{"policy": 1}]}',
     "`rows[0].policy`: expected a string, got 1"),
    ('{"schema": "nano-mooncake/capacity/v1", "rows": [{"attention": "mha", "kib_per_token": 1e300}]}',
     "`rows[0].kib_per_token`: expected a number from -1e30 to 1e30"),
])
def test_what_is_no_report_is_refused_by_file_and_path(bin_dir, tmp_path, content, words):
    path = tmp_path / "broken.json"
    path.write_text(content)
    line = refused(bin_dir, path)
    assert line.startswith(f"nano-mooncake plot: {path}: ") and words in line


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "expected REPORT..."),
    (["/nowhere/report.json"], "/nowhere/report.json"),
    (["--output", "x.png", "a.json"], "--output"),
    (["--output", "x.svg", "--format", "html", "a.json"], "--format: html: expected the ending of x.svg"),
    (["--outptu", "x.svg", "a.json"], "--outptu: unknown flag"),
])
def test_a_wrong_command_line_is_one_clear_line(bin_dir, arguments, words):
    assert words in refused(bin_dir, *arguments)


def places(json_value, path=()):
    """Of every member and item."""
    if isinstance(json_value, dict):
        items = list(json_value.items())
    elif isinstance(json_value, list):
        items = list(enumerate(json_value))[:3]
    else:
        return
    for key, member in items:
        yield (*path, key)
        yield from places(member, (*path, key))


def test_no_json_makes_it_stumble(bin_dir, reports, tmp_path):
    """One or two members at random replaced or taken away: charts that are XML, or one line that says what is wrong."""
    chance = random.Random(5)
    values = [None, True, -1, 0, 1e-300, 1e29, -1e29, 1e300, 2**63, "", "inf", "not_available", "x\n\u0000<&>", [], {},
              [None], [[1]], {"not_available": "why"}, {"not_available": 1}, {"median": 1, "min": -3, "max": 2}]
    outcomes = set()
    for kind, path in reports.items():
        whole = json.loads(path.read_text())
        for rows in ("rows", "runs", "token_ids", "logprobs"):
            if rows in whole:
                whole[rows] = whole[rows][:6]
        everywhere = list(places(whole))
        for turn in range(12):
            broken = copy.deepcopy(whole)
            for place in chance.sample(everywhere, chance.choice([1, 1, 2])):
                owner = broken
                try:
                    for key in place[:-1]:
                        owner = owner[key]
                    if chance.random() < 0.2:
                        del owner[place[-1]]
                    else:
                        owner[place[-1]] = copy.deepcopy(chance.choice(values))
                except (KeyError, IndexError, TypeError):
                    pass  # the first of two took away where the second was
            made = tmp_path / f"{kind}-{turn}.json"
            made.write_text(json.dumps(broken))
            done = nano_mooncake(bin_dir, "plot", made)
            outcomes.add(done.returncode)
            if done.returncode == 0:
                Drawing(done.stdout.decode())
            else:
                assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1), (made, done.stderr)
                assert str(made).encode() in done.stderr
    assert outcomes == {0, 2}
