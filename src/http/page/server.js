// The server, as this page talks to it: JSON, and chat answers as a stream. Nothing else is ever asked.

class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;  // of HTTP
  }
}

let apiKey = "";  // in memory only, by design: gone with the page

async function request(path, init = {}) {
  const headers = { ...init.headers };
  if (apiKey !== "") headers.Authorization = `Bearer ${apiKey}`;
  const response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit" });
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new ServerError(said?.error?.message ?? `${path}: status ${response.status}`, response.status);
}

const fetchJson = async (path) => (await request(path)).json();

// The `data:` of a stream's events, one by one; comments, which keep an idle stream alive, are left out.
async function* serverEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffered += value;
    const events = buffered.split("\n\n");
    buffered = events.pop();
    for (const event of events) {
      const lines = event.split("\n").filter((line) => line.startsWith("data: "));
      if (lines.length > 0) yield lines.map((line) => line.slice(6)).join("\n");
    }
  }
}

// Chunks of one chat answer, the last of them with `usage`. An error that ends the stream half-way is thrown.
async function* streamChat(body, signal) {
  const response = await request("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  for await (const data of serverEvents(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message ?? "the answer broke off", response.status);
    yield chunk;
  }
  throw new ServerError("the answer broke off", response.status);
}
