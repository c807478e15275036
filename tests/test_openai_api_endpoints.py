"""The server's endpoints beside completions, on the real binary: tokens, probes, metrics, its description of itself."""

import json
import re

import openai
import pytest
from api_client import MODEL, assert_serves, client_of, get, metrics, post, raw_stream, request

CONVERSATION = [{"role": "system", "content": "Count."}, {"role": "user", "content": "One <end> two"}]


def scrape(server):
    """Samples of GET /metrics by name and labels, in the order in which labels are told."""
    status, headers, body = request(server, "GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {}
    for line in body.decode().splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r'([a-z0-9_:]+)\{(.*)\} (\S+)', line).groups()
        assert labels.startswith(f'model_name="{MODEL}",engine="0"'), line
        samples[name + labels.removeprefix(f'model_name="{MODEL}",engine="0"')] = float(value)
    return samples


# Tokens


def test_a_text_counts_as_it_does_in_a_completion(server):
    for prompt in ("plain", "two\nlines", "gr\u00fc\u00dfe \U0001f642", "<end>"):
        status, tokens = post(server, "/tokenize", {"prompt": prompt, "return_token_strs": True})
        assert status == 200, tokens
        assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
        answer = post(server, "/v1/completions", {"prompt": prompt, "max_tokens": 1})[1]
        assert answer["usage"]["prompt_tokens"] == tokens["count"]
        assert post(server, "/detokenize", {"tokens": tokens["tokens"]}) == (200, {"prompt": prompt})


def test_a_conversation_counts_as_it_does_in_a_chat(server):
    status, tokens = post(server, "/tokenize", {"messages": CONVERSATION})
    assert status == 200, tokens
    answer = post(server, "/v1/chat/completions", {"messages": CONVERSATION, "max_tokens": 1})[1]
    assert answer["usage"]["prompt_tokens"] == tokens["count"]
    # The same ids as a plain prompt are answered from the KV that the chat left.
    plain = post(server, "/v1/completions", {"prompt": tokens["tokens"], "max_tokens": 1})[1]
    assert plain["usage"]["prompt_tokens_details"]["cached_tokens"] == tokens["count"]


def test_max_model_len_is_that_of_the_model_list(server):
    assert (post(server, "/tokenize", {"prompt": "a"})[1]["max_model_len"] ==
            get(server, "/v1/models")[1]["data"][0]["max_model_len"])


# Probes


def test_probes_answer_without_a_body(server):
    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping"), ("HEAD", "/health")):
        status, headers, body = request(server, method, path)
        assert (status, body) == (200, b""), path
        assert "Content-Type" not in headers
    version = get(server, "/version")[1]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert get(server, "/healthz")[1]["version"] == version


def test_load_is_what_runs_and_waits(start_server):
    server = start_server("--max-running", "1")
    assert get(server, "/load") == (200, {"server_load": 0})
    fields = {"prompt": "load", "max_tokens": 8000, "ignore_eos": True}
    with raw_stream(server, "/v1/completions", fields) as events, raw_stream(server, "/v1/completions", fields):
        next(events)
        assert get(server, "/load") == (200, {"server_load": 2})


def test_a_path_of_two_methods_names_both(server):
    status, headers, body = request(server, "DELETE", "/ping")
    assert status == 405
    assert headers["Allow"] == "GET, HEAD, POST"
    assert "DELETE" in json.loads(body)["error"]["message"]


# Metrics


def test_prometheus_tells_what_the_document_tells(server):
    before = scrape(server)
    prompt = "what is counted " * 8
    for _ in range(2):
        status, _ = post(server, "/v1/completions", {"prompt": prompt, "max_tokens": 12, "ignore_eos": True})
        assert status == 200
    after, document = scrape(server), metrics(server)
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    assert grown["vllm:prompt_tokens_total"] == 2 * len(prompt)
    assert grown["vllm:prompt_tokens_cached_total"] == grown["vllm:prefix_cache_hits_total"] == len(prompt)
    assert grown["vllm:prefix_cache_queries_total"] == 2 * len(prompt)
    assert grown['vllm:prompt_tokens_by_source_total,source="local_compute"'] == len(prompt)
    assert grown['vllm:prompt_tokens_by_source_total,source="local_cache_hit"'] == len(prompt)
    assert grown["vllm:generation_tokens_total"] == 24
    assert grown['vllm:request_success_total,finished_reason="length"'] == 2
    assert grown["vllm:time_to_first_token_seconds_count"] == 2
    assert grown["vllm:inter_token_latency_seconds_count"] == 22
    assert grown['vllm:request_generation_tokens_bucket,le="10"'] == 0
    assert grown['vllm:request_generation_tokens_bucket,le="20"'] == 2
    assert grown["vllm:request_prompt_tokens_sum"] == 2 * len(prompt)
    assert after["vllm:generation_tokens_total"] == document["counters"]["output_tokens"]
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    assert after['nano_mooncake_pool_blocks,state="cached"'] == document["pool"]["blocks_cached"]


def test_gauges_follow_what_runs_and_waits(start_server):
    server = start_server("--max-running", "1")
    fields = {"prompt": "gauge", "max_tokens": 8000, "ignore_eos": True}
    assert scrape(server)["vllm:kv_cache_usage_perc"] == 0
    with raw_stream(server, "/v1/completions", fields) as events, raw_stream(server, "/v1/completions", fields):
        next(events)
        now = scrape(server)
        assert now["vllm:num_requests_running"] == now["vllm:num_requests_waiting"] == 1
        assert now['vllm:num_requests_waiting_by_reason,reason="capacity"'] == 1
        assert 0 < now["vllm:kv_cache_usage_perc"] <= 1


# The description


def test_openapi_names_what_is_served(server):
    status, document = get(server, "/openapi.json")
    assert status == 200
    assert document["openapi"] == "3.1.0"
    for path, methods in document["paths"].items():
        for method in methods:
            # Without a body a POST has something to say about it; nothing described is missing.
            assert request(server, method.upper(), path)[0] in (200, 400), path
    assert document["components"]["schemas"]["CompletionRequest"]["properties"]["model"]["enum"] == [MODEL, None]


def test_the_key_is_asked_for_where_something_is_computed_or_told(start_server):
    server = start_server(environment={"NANO_MOONCAKE_API_KEY": "sesame"})
    document = get(server, "/openapi.json")[1]
    asked = {(method.upper(), path) for path, methods in document["paths"].items()
             for method, operation in methods.items() if "security" in operation}
    assert asked == {("POST", "/v1/chat/completions"), ("POST", "/v1/completions"), ("GET", "/v1/models"),
                     ("GET", "/v1/metrics"), ("POST", "/tokenize"), ("POST", "/detokenize")}
    for path, methods in document["paths"].items():
        for method in methods:
            status = request(server, method.upper(), path)[0]
            assert (status == 401) == ((method.upper(), path) in asked), path
    key = {"Authorization": "Bearer sesame", "Content-Type": "application/json"}
    assert request(server, "POST", "/tokenize", b'{"prompt": "a"}', key)[0] == 200


def test_unknown_models_are_not_found_everywhere(server):
    for path, fields in (("/v1/completions", {"prompt": "a"}), ("/tokenize", {"prompt": "a"}),
                         ("/detokenize", {"tokens": [1]}), ("/v1/chat/completions", {"messages": CONVERSATION})):
        status, answer = post(server, path, {**fields, "model": "gpt-x"})
        assert (status, answer["error"]["param"]) == (404, "model")
    with client_of(server) as client, pytest.raises(openai.NotFoundError, match="gpt-x"):
        client.completions.create(model="gpt-x", prompt="a")
    assert_serves(server)
