"""An OpenAI server that computes nothing and is as slow as it is told: for tests of what measures servers.

    python slo_server.py '{"ttft_ms": [20, 120], "itl_ms": [5, 5], "outcomes": ["ok", "429"]}'

Prints `ready URL` on standard error. Members, all optional:
  ttft_ms, itl_ms  [low, high]: each delay is drawn between them, by `seed`, in the order of requests
  outcomes         taken in turn by requests as they come: "ok", a status as "429", "broken" (the stream ends after one
                   token), "reported" (an error within the stream), "hang" (never answered)
  slots            requests served at once; others wait
  stall            {"at": N, "s": S}: when the N-th request comes, the whole process stands still for S seconds
GET /seen tells what came: {"requests": N, "prompts": [[number of tokens, salt], ...], "paths": [...],
"late_ms": [...]}, the last by how much longer than told each delay was, for want of a core."""

import asyncio
import json
import random
import sys
import threading
import time

TOKEN = {"choices": [{"index": 0, "text": "x", "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "text": "y", "finish_reason": "length"}]}


def event(data):
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Server:
    def __init__(self, script):
        self.script = script
        self.random = random.Random(script.get("seed", 0))
        self.slots = asyncio.Semaphore(script.get("slots", 1 << 30))
        self.prompts, self.paths, self.late_ms = [], [], []

    def delay_s(self, name):
        low, high = self.script.get(name, [0, 0])
        return self.random.uniform(low, high) / 1e3

    async def delay(self, seconds):
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        self.late_ms.append((time.monotonic() - begin - seconds) * 1e3)

    async def serve(self, reader, writer):
        try:
            while await self.serve_one(reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def serve_one(self, reader, writer):
        """False: the connection is over."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        path = head[0].split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if not path.endswith("/completions"):
            self.respond(writer, *self.document(path))
            return True
        number = len(self.paths)
        self.paths.append(path)
        request = json.loads(body)
        prompt = request.get("prompt") or request["messages"][0]["content"]
        self.prompts.append([len(prompt.split()) if isinstance(prompt, str) else len(prompt),
                             request.get("cache_salt", "")])
        stall = self.script.get("stall")
        if stall and number == stall["at"]:
            threading.Event().wait(stall["s"])  # of this thread, which is the event loop's
        outcomes = self.script.get("outcomes", ["ok"])
        outcome = outcomes[number % len(outcomes)]
        if outcome.isdigit():
            self.respond(writer, int(outcome), {"error": {"message": "so it was told"}})
            return True
        if outcome == "hang":
            await reader.read()
            return False
        first, gaps = self.delay_s("ttft_ms"), [self.delay_s("itl_ms") for _ in range(request["max_tokens"] - 1)]
        async with self.slots:
            return await self.stream(writer, outcome, self.prompts[number][0], first, gaps)

    async def stream(self, writer, outcome, prompt_tokens, first, gaps):
        await self.delay(first)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(chunk(event(TOKEN if gaps else LAST)))
        await writer.drain()
        if outcome == "broken":
            return False
        if outcome == "reported":
            writer.write(chunk(event({"error": {"message": "a worker died"}})) + b"0\r\n\r\n")
            return True
        for i, gap in enumerate(gaps):
            await self.delay(gap)
            writer.write(chunk(event(LAST if i + 1 == len(gaps) else TOKEN)))
            await writer.drain()
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 1 + len(gaps)}
        writer.write(chunk(event({"choices": [], "usage": usage})) + chunk(event("[DONE]")) + b"0\r\n\r\n")
        return True

    def document(self, path):
        if path == "/v1/models":
            return 200, {"data": [{"id": "injected"}]}
        if path == "/seen":
            return 200, {"requests": len(self.paths), "prompts": self.prompts, "paths": self.paths,
                         "late_ms": self.late_ms}
        return 404, {"error": {"message": f"no {path}"}}

    @staticmethod
    def respond(writer, status, document):
        body = json.dumps(document).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                     % (status, len(body), body))


async def main():
    server = Server(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
    # A long queue: connections are taken by the kernel while the process stands still.
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=4096, limit=1 << 24)
    port = listener.sockets[0].getsockname()[1]
    print(f"ready http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
