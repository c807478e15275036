// The loop: a reading a second while the page is looked at, the key where one is asked for.

const interval = 1000;  // ms
let isPaused = false;
let timer = 0;

function setLink(state, text) {
  $("link").dataset.state = state;
  setText($("link"), text);
  $("figures").classList.toggle("stale", state === "lost");
  $("give-key").hidden = state !== "locked";
}

function askForKey(why) {
  if (why) setText($("key-why"), why);
  if (!$("key-dialog").open) $("key-dialog").showModal();
}

async function tick() {
  try {
    const metrics = await fetchJson("/v1/metrics");
    if (isPaused) return;
    if ($("model").options.length === 0) await listModels();
    showMetrics(metrics, performance.now());
    setLink("live", "live");
  } catch (error) {
    if (error.status === 401) {
      setLink("locked", "needs a key");
      return askForKey(apiKey === "" ? "" : "That key was refused. This server asks for another.");
    }
    if (isPaused) return;
    setLink("lost", error instanceof ServerError ? error.message : "no answer, trying on");
  }
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (!isPaused && !document.hidden) timer = setTimeout(tick, interval);
}

$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
  if (!isPaused) return tick();
  clearTimeout(timer);
  setLink("wait", "paused");
});
document.addEventListener("visibilitychange", schedule);
$("give-key").addEventListener("click", () => askForKey(""));
$("key-form").addEventListener("submit", () => {
  apiKey = $("key").value;
  $("key").value = "";
  tick();
});
tick();
