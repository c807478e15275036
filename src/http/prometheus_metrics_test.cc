#include "http/prometheus_metrics.h"

#include <map>
#include <sstream>

#include "http/server_test_support.h"

namespace nmc::http {
namespace {

using engine::FinishReason;
using ::testing::HasSubstr;

class PrometheusTest : public ServerTest {
 protected:
  // Samples by name and labels, as a scraper splits them: at the last space of a line.
  std::map<std::string, double> scrape() {
    const auto answer = ask("GET /metrics HTTP/1.1\r\n\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(net::RawClient::header(answer.head, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    std::map<std::string, double> samples;
    std::istringstream lines(answer.body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      const std::size_t space = line.rfind(' ');
      samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
    }
    return samples;
  }
  // `name` and further labels with those that all samples have.
  static std::string labelled(std::string_view name, std::string_view more = "") {
    return fmt::format("{}{{model_name=\"nano-mooncake\",engine=\"0\"{}{}}}", name, more.empty() ? "" : ",", more);
  }
};

TEST_F(PrometheusTest, CountsAnswersByTheirEnds) {
  for (const auto reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kLength}) {
    net::RawClient peer = client();
    peer.send(text(R"("max_tokens":3)"));
    const ScriptedRequest live = runtime_.next();
    live.say("abc");
    live.finish(reason, 2);
    EXPECT_EQ(peer.read_answer().status, 200);
  }
  net::RawClient peer = client();
  peer.send(text(R"("max_tokens":9,"stop":"b")"));
  runtime_.next().say("ab");
  EXPECT_EQ(peer.read_answer().status, 200);

  auto now = scrape();
  EXPECT_EQ(now.at(labelled("vllm:request_success_total", R"(finished_reason="stop")")), 2);
  EXPECT_EQ(now.at(labelled("vllm:request_success_total", R"(finished_reason="length")")), 2);
  EXPECT_EQ(now.at(labelled("vllm:request_success_total", R"(finished_reason="abort")")), 0)
      << "ended by a stop string: its client got all of it";
  EXPECT_EQ(now.at(labelled("vllm:time_to_first_token_seconds_count")), 4);
  EXPECT_EQ(now.at(labelled("vllm:inter_token_latency_seconds_count")), 7);
  EXPECT_EQ(now.at(labelled("vllm:e2e_request_latency_seconds_count")), 4);
}

TEST_F(PrometheusTest, BucketsHoldWhatIsAtMostTheirBound) {
  net::RawClient peer = client();
  peer.send(text(R"("max_tokens":100,"n":2)"));
  const ScriptedRequest first = runtime_.next();
  engine::Outcome outcome{.reason = FinishReason::kStop};
  outcome.metrics = {.queue_ms = 300, .prefill_ms = 400, .decode_ms = 900, .e2e_ms = 1600};
  outcome.metrics.prompt_tokens = 20;
  outcome.metrics.computed_tokens = 5;
  outcome.metrics.output_tokens = 10;
  first.say("0123456789");
  const ScriptedRequest second = runtime_.next();
  first.listener->on_finish(outcome);
  second.say("01");
  second.finish(FinishReason::kStop);
  EXPECT_EQ(peer.read_answer().status, 200);

  auto now = scrape();
  const auto bucket = [&now](std::string_view name, std::string_view bound) {
    return now.at(labelled(fmt::format("{}_bucket", name), fmt::format("le=\"{}\"", bound)));
  };
  EXPECT_EQ(bucket("vllm:request_queue_time_seconds", "0.3"), 2) << "the bound is included";
  EXPECT_EQ(bucket("vllm:e2e_request_latency_seconds", "1.5"), 1);
  EXPECT_EQ(bucket("vllm:e2e_request_latency_seconds", "2"), 2);
  EXPECT_EQ(bucket("vllm:request_time_per_output_token_seconds", "0.075"), 0);
  EXPECT_EQ(bucket("vllm:request_time_per_output_token_seconds", "0.1"), 1) << "900 ms between 10 tokens";
  EXPECT_EQ(bucket("vllm:request_prompt_tokens", "10"), 1);
  EXPECT_EQ(bucket("vllm:request_prompt_tokens", "20"), 2);
  EXPECT_EQ(bucket("vllm:request_prefill_kv_computed_tokens", "5"), 2);
  EXPECT_EQ(now.at(labelled("vllm:request_prompt_tokens_sum")), 22);
  EXPECT_EQ(bucket("vllm:request_max_num_generation_tokens", "5"), 0);
  EXPECT_EQ(bucket("vllm:request_max_num_generation_tokens", "10"), 1) << "one prompt, whose longest answer has 10";
  EXPECT_EQ(bucket("vllm:request_params_n", "1"), 0);
  EXPECT_EQ(bucket("vllm:request_params_n", "2"), 1);
  EXPECT_EQ(bucket("vllm:request_params_max_tokens", "50"), 0);
  EXPECT_EQ(bucket("vllm:request_params_max_tokens", "100"), 2);
  EXPECT_FALSE(now.contains(labelled("vllm:request_prompt_tokens_bucket", R"(le="500")"))) << "beyond the context";
  EXPECT_EQ(bucket("vllm:request_prompt_tokens", "+Inf"), 2);
}

TEST_F(PrometheusTest, EveryFamilyHasHelpAndType) {
  const std::string body = ask("GET /metrics HTTP/1.1\r\n\r\n").body;
  std::istringstream lines(body);
  std::size_t types = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    ++types;
    const std::string name = line.substr(7, line.rfind(' ') - 7);
    EXPECT_THAT(body, HasSubstr(fmt::format("# HELP {} ", name)));
    EXPECT_EQ(line.ends_with(" counter"), name.ends_with("_total")) << line;
  }
  EXPECT_GE(types, 30u);
}

TEST_F(PrometheusTest, AnswersWithoutAKeyThoughOneIsSet) {
  options_.api_key = "secret";
  start();
  EXPECT_GT(scrape().size(), 100u);
}

}  // namespace
}  // namespace nmc::http
