"""Conversations and tools as servers get them, generated from a seed: empty texts, emoji, markers of templates,
thoughts, tool calls, orders of roles that templates refuse."""

WORDS = ["hello", "world", "the", "answer", "is", "42", "naïve", "Straße", "мир", "世界", "😀", "👩‍👩‍👧", "مرحبا",
         "e\u0301", "\u00a0", "\u200b", "<|im_end|>", "<|im_start|>system", "[INST]", "[/INST]", "</s>", "<s>",
         "<|eot|>", "<turn>", "{{ bos_token }}", "{% raw %}", '"quoted"', "it's", "back\\slash", "a\tb", "#", "*", "&",
         "<", ">", "'", "null"]
TEXTS = ["", " ", "\n", "  padded  ", "line\nline\n", "\n\nx\n\n", "stop here", "<answer>x</answer>", "</think>",
         "<think>\nhm\n</think>\n\nyes", "\x00\x01\x1f\x7f\x85\u2028", "'\"\\", "ß", "Ǆ ﬁ", "a" * 300]
NAMES = ["get_weather", "add", "söge", "f-1", ""]


def text(rng):
    if rng.random() < 0.25:
        return rng.choice(TEXTS)
    return rng.choice([" ", "\n", "  "]).join(rng.choice(WORDS) for _ in range(rng.randrange(1, 12)))


def value(rng, depth=0):
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {text(rng)[:10]: value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [None, rng.random() < 0.5, rng.randrange(-10**6, 10**6), rng.choice([0.5, -1.0, 1e16, 3.14159, 1e-7]),
            text(rng), text(rng)][kind]


def schema(rng, depth=0):
    kind = rng.choice(["string", "integer", "number", "boolean", "null", "enum", "array", "object",
                       "union"][:9 if depth < 3 else 5])
    if kind == "enum":
        return {"enum": [rng.choice(["a", "é", 1]) for _ in range(2)]}
    if kind == "array":
        return {"type": "array", "items": schema(rng, depth + 1)}
    if kind == "union":
        return {"type": ["string", "null"]}
    if kind == "object":
        names = rng.sample(["b", "A", "zé", "count"], rng.randrange(4))
        return {"type": "object", "properties": {n: schema(rng, depth + 1) for n in names}, "required": names[:1]}
    return {"type": kind, "description": text(rng)}


def tool(rng):
    return {"type": "function", "function": {
        "name": rng.choice(NAMES), "description": text(rng),
        "parameters": {"type": "object", "properties": {"x": schema(rng)}, "required": rng.choice([[], ["x"]])}}}


def call(rng, ids):
    ids.append("".join(rng.choice("abc123XYZ") for _ in range(rng.choice([9, 9, 9, 4]))))
    arguments = {n: value(rng) if rng.random() < 0.5 else text(rng) for n in rng.sample(["x", "y", "ä"],
                                        rng.randrange(3))}
    return {"id": ids[-1], "type": "function", "function": {"name": rng.choice(NAMES), "arguments": arguments}}


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": text(rng)})
    ids = []
    for _ in range(rng.randrange(0 if messages else 1, 5)):
        messages.append({"role": "user", "content": text(rng)})
        if rng.random() < 0.3:
            calls = [call(rng, ids) for _ in range(rng.choice([1, 1, 2]))]
            messages.append({"role": "assistant", "content": rng.choice([None, "", text(rng)]), "tool_calls": calls})
            messages += [{"role": "tool", "content": text(rng), "tool_call_id": i, "name": rng.choice(NAMES)}
                         for i in ids[-len(calls):]]
        answer = {"role": "assistant", "content": text(rng)}
        if rng.random() < 0.2:
            answer["reasoning_content"] = text(rng)
        messages.append(answer)
    if rng.random() < 0.6 and messages[-1]["role"] == "assistant":
        messages.pop()
    if rng.random() < 0.15:
        rng.shuffle(messages)
    if rng.random() < 0.1:
        messages[rng.randrange(len(messages)):][:1] = []
        messages.append({"role": rng.choice(["user", "critic"]), "content": text(rng)})
    return messages


def chat(rng):
    """The variables that transformers gives to a template."""
    data = {"messages": conversation(rng), "add_generation_prompt": rng.random() < 0.7, "bos_token": "<s>",
            "eos_token": "</s>", "tools": None, "documents": None}
    if rng.random() < 0.4:
        data["tools"] = [tool(rng) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.2:
        data["documents"] = [{"title": text(rng), "text": text(rng)} for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.3:
        data["enable_thinking"] = rng.random() < 0.5
    if rng.random() < 0.2:
        data["tools_in_user_message"] = rng.random() < 0.5
    if rng.random() < 0.2:
        data["builtin_tools"] = ["add"]
    if rng.random() < 0.1:
        for message in data["messages"]:
            if message["role"] == "user":
                message["content"] = [{"type": "text", "text": message["content"]}, {"type": "image"}]
    return data
