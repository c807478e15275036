"""The server held to its own description: schemathesis makes requests from /openapi.json, good ones and bad ones, and
checks each answer against it. Examples are the same in each run."""

import re

import hypothesis
import pytest
import schemathesis
from api_client import assert_serves, is_at_rest
from waiting import eventually

EXAMPLES = 60  # of each operation


@schemathesis.deserializer("text/event-stream")
def events_as_text(_context, response):
    return response.text


@pytest.fixture(scope="module")
def described(start_program):
    # Answers that end soon, whatever is asked for.
    return start_program("nano-mooncake-api", "--max-context", "48", "--max-queue", "4096")


@pytest.fixture(scope="module")
def description(described):
    return schemathesis.openapi.from_url(f"{described.url}/openapi.json")


# Why a request may be refused though it is as its schema says: by regular expressions for the message.
BEYOND_A_SCHEMA = [
    r"expected an integer.*, got -?(\d+\.0|[\d.]+e\+\d+)$",  # an integer to a schema, but not as it is written
    r"expected a token id, got a number$",  # the same
    r"expected an array of integers, got \[.*\d\.0[,\]]",  # the same
    r"`min_tokens`: expected at most max_tokens",
    r"`stream_options`: only allowed when `stream` is true",
    r"`top_logprobs`: only allowed when `logprobs` is true",
    r"`continue_final_message`: can't be true together with add_generation_prompt",
    r"arguments`: expected an object as JSON",
    r"the chat template of this model",  # which decides what it has a place for
    r"got an empty prompt$",  # a text of no tokens, unless the tokenizer puts one in front
    r"`n`: \d+ answers to each of \d+ prompts",
    r"`echo`: not supported together with `logprobs`",
    r"the prompt has \d+ tokens and the context holds 48",
]


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_answers_are_as_described(described, description, mode):
    for operation in (found.ok() for found in description.get_all_operations()):
        if mode == schemathesis.GenerationMode.NEGATIVE and not operation.body:
            continue  # nothing can be wrong with it

        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        @hypothesis.settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
                             phases=[hypothesis.Phase.generate],  # what is found is shown as it was
                             suppress_health_check=list(hypothesis.HealthCheck))
        def ask(case):
            answer = case.call(timeout=60)
            case.validate_response(answer, excluded_checks=[schemathesis.checks.positive_data_acceptance])
            if mode == schemathesis.GenerationMode.POSITIVE and answer.status_code != 200:
                message = answer.json()["error"]["message"]
                assert any(re.search(reason, message) for reason in BEYOND_A_SCHEMA), (case.body, message)

        ask()
    eventually(lambda: is_at_rest(described), "at rest")
    assert_serves(described)
