// The chat box: a conversation in this page's memory, answers as they are generated, and under each how much of its
// prompt came from the cache.

let conversation = [];  // as the API takes it: {role, content}
let answering = null;   // an AbortController while an answer comes

function addMessage(role, text) {
  $("hint").hidden = true;
  const body = make("p", {}, text);
  const message = make("article", { class: `message ${role}` },
    make("h3", {}, role === "user" ? "You" : $("model").value || "Answer"), body);
  $("log").append(message);
  $("log").scrollTop = $("log").scrollHeight;
  return { message, body };
}

// What the answer cost, and what it didn't.
function addCost(message, usage, timing) {
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0, computed = usage.prompt_tokens - cached;
  const parts = [["saved", cached], ["computed", computed]].filter(([, tokens]) => tokens > 0).map(([name, tokens]) => {
    const part = make("span", { class: name });
    part.style.flexGrow = tokens;
    return part;
  });
  const speed = timing.decodeMs > 0 && usage.completion_tokens > 1
    ? `, ${decimal((usage.completion_tokens - 1) / (timing.decodeMs / 1000))}/s` : "";
  message.append(make("footer", { "data-cached": cached, "data-prompt": usage.prompt_tokens },
    make("div", { class: "share", "aria-hidden": "true" }, ...parts),
    `${whole(cached)} of ${whole(usage.prompt_tokens)} prompt tokens from the cache (${percent(cached, usage.prompt_tokens)}), ` +
    `${whole(computed)} computed; first token after ${decimal(timing.firstMs)} ms; ${whole(usage.completion_tokens)} tokens${speed}`));
}

function setAnswering(controller) {
  answering = controller;
  const isBusy = controller !== null;
  $("send").disabled = isBusy;
  $("stop").disabled = !isBusy;
  $("again").disabled = isBusy || !conversation.some((turn) => turn.role === "user");
  $("log").setAttribute("aria-busy", String(isBusy));
}

async function answer() {
  const controller = new AbortController();
  setAnswering(controller);
  const asked = [...conversation];
  const { message, body } = addMessage("assistant", "");
  const log = $("log");
  const start = performance.now();
  let text = "", first = null, usage = null;
  try {
    const chunks = streamChat({
      model: $("model").value || undefined,
      messages: asked,
      max_tokens: Number($("max-tokens").value),
      temperature: Number($("temperature").value),
    }, controller.signal);
    for await (const chunk of chunks) {
      if (chunk.usage) usage = chunk.usage;
      const piece = chunk.choices[0]?.delta?.content;
      if (!piece) continue;
      first ??= performance.now();
      text += piece;
      const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      body.append(piece);
      if (follows) log.scrollTop = log.scrollHeight;
    }
    if (usage) addCost(message, usage, { firstMs: (first ?? performance.now()) - start, decodeMs: performance.now() - (first ?? 0) });
  } catch (error) {
    const stopped = controller.signal.aborted;
    message.append(make("footer", stopped ? {} : { class: "error", role: "alert" }, stopped ? "stopped" : error.message));
    if (error.status === 401) askForKey("That key was refused. This server asks for another.");
  }
  if (answering !== controller) return;  // the conversation it belonged to is gone
  const isAnswered = usage !== null || text !== "";
  // A question without an answer is taken back to be mended: it would stand in the way of the next one.
  if (!isAnswered && $("prompt").value === "") $("prompt").value = asked.at(-1).content;
  conversation = isAnswered ? [...asked, { role: "assistant", content: text }] : asked.slice(0, -1);
  setAnswering(null);
  log.scrollTop = log.scrollHeight;
}

function send() {
  const text = $("prompt").value.trim();
  if (answering !== null || text === "" || !$("ask").reportValidity()) return;
  $("prompt").value = "";
  conversation.push({ role: "user", content: text });
  addMessage("user", text);
  answer();
}

function stopAnswering() {
  answering?.abort();
}

// The same conversation up to the last question: its KV is known by now.
function askAgain() {
  if (answering !== null) return;
  while (conversation.at(-1)?.role === "assistant") conversation.pop();
  answer();
}

function clearChat() {
  const controller = answering;
  answering = null;
  controller?.abort();
  conversation = [];
  for (const message of $("log").querySelectorAll(".message")) message.remove();
  $("hint").hidden = false;
  setAnswering(null);
  $("prompt").focus();
}

async function listModels() {
  const { data } = await fetchJson("/v1/models");
  $("model").replaceChildren(...data.map((model) => make("option", {}, model.id)));
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("key-dialog").open) stopAnswering();
});
$("stop").addEventListener("click", stopAnswering);
$("again").addEventListener("click", askAgain);
$("clear").addEventListener("click", clearChat);
