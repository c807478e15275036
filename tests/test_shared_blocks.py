"""Several servers and one store: `--store unix:PATH`, where their KV blocks lie in the store of the host's master, and
`--store HOST:PORT`, where that store is a tier below the memory of each."""

import json
import urllib.request

import openai
import pytest

from store_processes import MIB, Host, eventually

PROMPT = "The cache of keys and values is an object with a layout, an owner, a lifetime and a wire format. " * 6
MEMORY = ("--dram-bytes", "64MiB")


@pytest.fixture
def host(bin_dir, tmp_path):
    made = Host(bin_dir, tmp_path)
    yield made
    made.clean_up()


def complete(server, prompt=PROMPT, timeout=120):
    """Text, usage."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=timeout) as client:
        answer = client.completions.create(model="nano-mooncake", prompt=prompt, max_tokens=8, temperature=0)
    return answer.choices[0].text, answer.usage


def end(*servers):
    for server in servers:
        server.terminate()
        assert server.wait() == 0, "".join(server.log)


def test_what_one_server_computed_is_there_for_another_once(host, start_server):
    master = host.start_master()
    first = start_server("--store", host.server, *MEMORY)
    second = start_server("--store", host.server, "--dram-bytes", "0")
    text, usage = complete(first)
    assert usage.prompt_tokens_details.cached_tokens == 0
    keys = master.metric("master_key_count")
    assert keys > usage.prompt_tokens // 16, "a key for each full block, and one for the end"
    again, usage = complete(second)
    assert again == text
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens, "nothing is computed"
    longer, usage = complete(second, PROMPT + "Then it goes on otherwise.")
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    keys_of_both = master.metric("master_key_count")
    assert complete(first, PROMPT + "Then it goes on otherwise.")[0] == longer
    assert master.metric("master_key_count") == keys_of_both, "one copy"
    end(first, second)


def test_servers_that_compute_the_same_at_once_agree_and_leave_one_copy(host, start_server):
    master = host.start_master()
    servers = [start_server("--store", host.server, *MEMORY) for _ in range(2)]
    alone = start_server()
    expected = [complete(alone, f"{number} {PROMPT}")[0] for number in range(3)]
    for number in range(3):
        assert [complete(server, f"{number} {PROMPT}")[0] for server in servers] == [expected[number]] * 2
    keys = master.metric("master_key_count")
    for number in range(3):
        assert [complete(server, f"{number} {PROMPT}")[0] for server in reversed(servers)] == [expected[number]] * 2
    assert master.metric("master_key_count") == keys
    end(*servers, alone)


def test_a_server_goes_on_while_its_master_is_gone_and_shares_again_afterwards(host, start_server):
    master = host.start_master()
    server = start_server("--store", host.server, *MEMORY)
    text, usage = complete(server)
    master.kill()
    again, usage = complete(server)
    assert again == text
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens, "shared memory is read without a master"
    other = "Nobody has asked this before, and no master is there to keep it."
    fresh, usage = complete(server, other)
    assert usage.prompt_tokens_details.cached_tokens == 0
    master = host.start_master()
    assert complete(server, other)[0] == fresh

    def is_shared():
        late = start_server("--store", host.server, "--dram-bytes", "0")
        shared = complete(server, other)[0] == fresh and complete(late, other)[1].prompt_tokens_details.cached_tokens
        end(late)
        return shared

    eventually(is_shared, "what is computed after the restart is shared")
    end(server)


def test_a_server_that_starts_again_finds_its_blocks(host, start_server):
    host.start_master()
    server = start_server("--store", host.server, *MEMORY)
    text, _ = complete(server)
    end(server)
    server = start_server("--store", host.server, *MEMORY)
    again, usage = complete(server)
    assert again == text
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens
    server.kill()
    server = start_server("--store", host.server, *MEMORY)
    again, usage = complete(server)
    assert again == text
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens
    end(server)


def tier(server):
    with urllib.request.urlopen(f"{server.url}/v1/metrics", timeout=60) as answer:
        return json.load(answer)["tiers"]["remote"]


def test_a_remote_store_below_memory_serves_what_another_server_computed(host, start_server):
    master = host.start_master()
    memory = host.start_client("memory", 64 * MIB)
    first, second = (start_server("--store", master.address, *MEMORY) for _ in range(2))
    text, usage = complete(first)
    blocks = usage.prompt_tokens // 16
    eventually(lambda: master.metric("master_key_count") > blocks, "all of it is written behind")
    again, usage = complete(second)
    assert again == text
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens
    assert tier(second)["hits"] == blocks + 1 and tier(second)["errors"] == 0
    assert complete(second)[0] == text
    assert tier(second)["hits"] == blocks + 1, "it lies in memory now"

    master.kill()
    other = "While the store is gone, this is computed and kept in memory."
    assert complete(first, other) is not None
    assert complete(first, other)[1].prompt_tokens_details.cached_tokens > 0
    end(first, second)
    memory.kill()


@pytest.mark.parametrize("flags, words", [
    (("--store", "unix:/nowhere/socket"), ["/nowhere/socket", "is the server running there"]),
    (("--store", "127.0.0.1:1"), ["127.0.0.1:1", "is the server running there"]),
    (("--store", "somewhere"), ["--store", "unix:PATH or HOST:PORT"]),
    (("--store", "unix:/nowhere/socket", "--disk-dir", "/tmp/x"), ["--disk-dir", "the disk is the master's"]),
    (("--dram-bytes", "0"), ["--dram-bytes", "expected memory"]),
])
def test_a_store_that_cannot_be_used_is_named(bin_dir, flags, words, start_server):
    with pytest.raises(AssertionError) as failed:
        start_server(*flags)
    assert all(word in str(failed.value) for word in words), failed.value


def test_a_store_without_memory_asks_for_some(host, start_server):
    host.start_master()
    with pytest.raises(AssertionError, match="--dram-bytes"):
        start_server("--store", host.server, "--dram-bytes", "0")


def salted(server, salt, prompt=PROMPT):
    """Text, cached tokens."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        answer = client.completions.create(model="nano-mooncake", prompt=prompt, max_tokens=8, temperature=0,
                                           extra_body={} if salt is None else {"cache_salt": salt})
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


def test_a_salt_keeps_tenants_apart_in_a_store_that_servers_share(host, start_server):
    master = host.start_master()
    first = start_server("--store", host.server, *MEMORY)
    second = start_server("--store", host.server, "--dram-bytes", "0")
    text, cached = salted(first, "tenant-x")
    assert cached == 0
    for other in ("tenant-y", None):
        assert salted(second, other) == (text, 0), other
    assert salted(second, "")[1] > 0, "no salt and an empty one are the same"
    assert salted(second, "tenant-x")[1] > 0
    strange = ["nmc/", "a\x00b", "a", "tenant-x/", "tenant-x\x00", "\U0001f512" * 20]
    assert [salted(first, salt)[1] for salt in strange] == [0] * len(strange)
    assert all(salted(second, salt)[1] > 0 for salt in strange)
    keys = master.get("/get_all_keys")
    assert keys.count("nmc/") > 10 and "tenant" not in keys
    for wrong in ("s" * (1 << 20), 7, ["x"]):
        with pytest.raises(openai.BadRequestError, match="cache_salt"):
            salted(first, wrong)
    end(first, second)


@pytest.mark.parametrize("flags", [("--dtype", "f32"), ("--block-tokens", "32"), ("--served-model-name", "other")])
def test_what_shapes_kv_keeps_it_apart_and_a_name_does_not(host, start_server, flags):
    host.start_master()
    first = start_server("--store", host.server, *MEMORY)
    complete(first)
    end(first)
    second = start_server("--store", host.server, *MEMORY, *flags)
    with openai.OpenAI(base_url=f"{second.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        model = client.models.list().data[0].id
        answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, temperature=0)
    assert (answer.usage.prompt_tokens_details.cached_tokens > 0) == (flags[0] == "--served-model-name")
    end(second)
