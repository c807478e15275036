// The figures: one document of /v1/metrics after the other becomes tiles, charts and tables.

const series = {};
for (const name of ["running", "ttft", "itl", "output", "saved", "computed"]) series[name] = new Series();
let before = null;  // the last document and when it came: {metrics, at}

// What happened between two readings; null in the first, or when the server is another one than before.
function changes(metrics, at) {
  if (before === null || metrics.requests.received < before.metrics.requests.received) return null;
  const seconds = (at - before.at) / 1000;
  const gone = (group, name) => metrics[group][name] - before.metrics[group][name];
  const mean = (name) => {
    const now = metrics.latency[name], then = before.metrics.latency[name];
    return now.count > then.count ? (now.sum - then.sum) / (now.count - then.count) : null;
  };
  return {
    outputRate: gone("counters", "output_tokens") / seconds,
    savedRate: gone("counters", "saved_tokens") / seconds,
    computedRate: gone("counters", "computed_tokens") / seconds,
    ttft: mean("ttft_ms"),
    itl: mean("itl_ms"),
  };
}

function showRequests({ queue, requests }) {
  setText($("running"), whole(queue.running));
  setText($("running-of"), `of ${whole(queue.max_running)} at most`);
  setText($("queued"), `${whole(queue.queued)} queued, room for ${whole(queue.max_queue)}`);
  series.running.add(queue.running);
  drawSpark($("spark-running"), series.running, "Running requests", "");
  const counts = ["received", "finished", "cancelled", "failed", "rejected"];
  const list = $("requests");
  if (list.childElementCount === 0) {
    for (const name of counts) list.append(make("div", {}, make("dt", {}, name), make("dd", { id: `requests-${name}` })));
  }
  for (const name of counts) {
    const node = $(`requests-${name}`);
    setText(node, whole(requests[name]));
    node.classList.toggle("attention", name === "failed" && requests[name] > 0);
  }
}

function showLatency(id, latency, mean, what) {
  setText($(id), decimal(latency.p50));
  setText($(`${id}-sub`), latency.samples === 0 ? "no request yet" : `p95 ${decimal(latency.p95)}, p99 ${decimal(latency.p99)}`);
  series[id].add(mean);
  drawSpark($(`spark-${id}`), series[id], what, "ms");
}

function showTokens(counters, change) {
  series.output.add(change?.outputRate ?? 0);
  series.saved.add(change?.savedRate ?? 0);
  series.computed.add(change?.computedRate ?? 0);
  setText($("output-rate"), decimal(change?.outputRate ?? 0));
  setText($("output-total"), whole(counters.output_tokens));
  drawSpark($("spark-output"), series.output, "Output tokens", "per second");
  setText($("saved-share"), percent(counters.saved_tokens, counters.prompt_tokens));
  setText($("saved"), whole(counters.saved_tokens));
  setText($("computed"), whole(counters.computed_tokens));
  const peak = drawBars($("bars-prompt"), series.saved, series.computed,
    `Prompt tokens each second of the last two minutes: ${whole(counters.saved_tokens)} saved and ` +
    `${whole(counters.computed_tokens)} computed since start`);
  setText($("bars-peak"), peak > 0 ? `highest bar ${whole(peak)} tokens/s` : "");
}

function showPool(pool) {
  if (typeof pool !== "object") return setText($("pool-scale"), "not available");
  const states = [
    { name: "pinned", count: pool.blocks_pinned },
    { name: "reserved", count: pool.blocks_reserved },
    { name: "cached", count: Math.max(0, pool.blocks_cached - pool.blocks_pinned) },
    { name: "free", count: pool.blocks_free },
  ];
  for (const state of states) setText($(`pool-${state.name}`), whole(state.count));
  if (pool.blocks_total === 0) return setText($("pool-scale"), "no blocks of this server's own");
  const each = drawPool($("pool"), states, pool.blocks_total);
  setText($("pool-scale"), each > 1 ? `${whole(pool.blocks_total)} blocks, ${decimal(each)} a cell: shares, not places`
                                    : `${whole(pool.blocks_total)} blocks: shares, not places`);
}

const tierNames = { dram: "memory", disk: "disk", remote: "remote store" };
function showTiers(tiers) {
  if (typeof tiers !== "object") return;
  const lookups = tiers.dram.lookups;
  const rows = Object.keys(tierNames).filter((name) => name in tiers).map((name) => {
    const { hits, bytes_used: used, bytes_total: total } = tiers[name];
    return { name, label: tierNames[name], hits, used, total };
  });
  const found = rows.reduce((sum, row) => sum + row.hits, 0);
  rows.push({ name: "missed", label: "nowhere", hits: Math.max(0, lookups - found) });
  $("tiers").replaceChildren(...rows.map((row) => make("tr", { "data-tier": row.name },
    make("th", { scope: "row" }, make("i", { class: row.name }), row.label),
    make("td", { class: "n" }, whole(row.hits)),
    make("td", { class: "n" }, percent(row.hits, lookups)),
    make("td", { class: "n" }, byteSize(row.used)),
    make("td", { class: "n" }, byteSize(row.total)))));
  const share = $("tier-share");
  share.setAttribute("aria-label", `Of ${whole(lookups)} lookups: ` +
    rows.map((row) => `${percent(row.hits, lookups)} ${row.label}`).join(", "));
  share.replaceChildren(...rows.filter((row) => row.hits > 0).map((row) => {
    const part = make("span", { class: row.name });
    part.style.flexGrow = row.hits;
    return part;
  }));
}

function showWorkers(workers) {
  $("workers").replaceChildren(...workers.map((worker) => {
    const busy = make("span");
    busy.style.width = `${Math.min(100, 100 * worker.utilization)}%`;
    return make("tr", {},
      make("th", { scope: "row" }, worker.name),
      make("td", {}, worker.role),
      make("td", { "data-worker": worker.state === "ready" ? "ready" : "down" }, worker.state),
      make("td", { class: "n" }, whole(worker.queued)),
      make("td", { class: "n" }, whole(worker.running)),
      make("td", { class: "n" }, whole(worker.restarts)),
      make("td", { class: "n" }, String(worker.pid)),
      make("td", {}, make("span", { class: "meter", "aria-hidden": "true" }, busy), percent(worker.utilization, 1)));
  }));
}

function showHandovers(handovers, mode) {
  $("handovers-table").hidden = handovers.length === 0;
  $("no-handovers").hidden = handovers.length > 0;
  setText($("no-handovers"), mode === "monolithic"
    ? "One worker does both stages here, so none is needed; start with --mode pd to see some."
    : "None yet.");
  $("handovers").replaceChildren(...handovers.map((one) => make("tr", {},
    make("th", { scope: "row", title: one.request }, one.request.length > 20 ? `…${one.request.slice(-12)}` : one.request),
    make("td", {}, one.from),
    make("td", {}, one.to),
    make("td", {}, one.transfer),
    make("td", { class: "n" }, byteSize(one.bytes)),
    make("td", { class: "n" }, decimal(one.ms)))));
}

function showMetrics(metrics, at) {
  const change = changes(metrics, at);
  for (const name of ["model", "mode", "reuse", "transfer"]) setText($(`fact-${name}`), metrics[name]);
  if (metrics.mode === "monolithic") setText($("fact-transfer"), "none");
  showRequests(metrics);
  showLatency("ttft", metrics.latency.ttft_ms, change?.ttft, "Mean time to first token");
  showLatency("itl", metrics.latency.itl_ms, change?.itl, "Mean time between tokens");
  showTokens(metrics.counters, change);
  showPool(metrics.pool);
  showTiers(metrics.tiers);
  showWorkers(metrics.workers);
  showHandovers(metrics.handovers, metrics.mode);
  before = { metrics, at };
}
