#include "cli/simulate_settings.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kWorkloadFlags[] = {"seed",          "requests",      "rate",
                                               "documents",     "prefix-tokens", "suffix-tokens",
                                               "output-tokens", "zipf-exponent", "turns"};
constexpr std::string_view kTimedFlags[] = {
    "disk-capacity",  "fixed-lookup-cost", "network-bandwidth", "disk-bandwidth", "prefill-workers", "decode-slots",
    "decode-token-s", "queue-policy",      "prefetch-deadline", "time-scale",     "slo-ttft-ms"};

Setting flag(Setting setting) {
  setting.source = Source::kFlagOnly;
  return setting;
}

Setting whole(const char* name, const char* placeholder, const char* default_text, const char* help,
              std::int64_t high) {
  return flag({.name = name,
               .kind = Kind::kInteger,
               .placeholder = placeholder,
               .default_text = default_text,
               .help = help,
               .low = 1,
               .high = high});
}

std::vector<Setting> input_settings() {
  return {
      flag({.name = "trace",
            .placeholder = "FILE",
            .help = "Requests, plain or compressed with zstd: JSONL with timestamp, input_length, output_length and "
                    "hash_ids, or CSV or JSONL with arrival_time, namespace, prefix_id, prefix_tokens and "
                    "suffix_tokens."}),
      flag({.name = "sort",
            .kind = Kind::kSwitch,
            .default_text = "false",
            .help = "Put its requests in the order of their arrival, what arrives at once as in the file. Without it a "
                    "file that isn't in order is refused."}),
      flag({.name = "workload",
            .kind = Kind::kChoice,
            .help = "Requests made from --seed instead. Default: zipf, if there is no --trace.",
            .choices = {"scan", "zipf", "burst", "model-switch", "multi-turn"}}),
      flag({.name = "seed",
            .kind = Kind::kInteger,
            .placeholder = "N",
            .default_text = "1",
            .help = "Of the workload."}),
      whole("requests", "N", "1000", "In the workload.", 100'000'000),
      flag({.name = "rate",
            .kind = Kind::kNumber,
            .placeholder = "PER_S",
            .default_text = "1",
            .help = "Requests a second, on average, above 0.",
            .high = 1'000'000}),
      whole("documents", "N", "100", "Different beginnings of prompts; of multi-turn, talks at a time.", 10'000'000),
      whole("prefix-tokens", "TOKENS", "8192", "Of such a beginning, on average.", 1 << 19),
      whole("suffix-tokens", "TOKENS", "512", "Of what a request adds to it, on average.", 1 << 19),
      whole("output-tokens", "TOKENS", "256", "Of an answer, on average.", 1 << 19),
      flag({.name = "zipf-exponent",
            .kind = Kind::kNumber,
            .placeholder = "S",
            .default_text = "1",
            .help = "Beginning number k is asked for in proportion to 1 / k^S.",
            .high = 10}),
      whole("turns", "N", "8", "Of a talk of multi-turn, on average.", 1'000'000),
  };
}

std::vector<Setting> cache_settings() {
  return {
      flag({.name = "rules",
            .kind = Kind::kChoice,
            .default_text = "timed",
            .help = "timed: requests share prefill, decode, network and disk in simulated time. instant: no time; "
                    "requests in order, what one leaves the next finds.",
            .choices = {"timed", "instant"}}),
      flag({.name = "policy",
            .placeholder = "NAME,...",
            .default_text = "lru",
            .help = "What is evicted first: lru, fifo, lfu, lfu-len, length-aware, s3-fifo, freq-admission, "
                    "cost-per-byte, or opt, which knows the future."}),
      flag({.name = "compare",
            .kind = Kind::kSwitch,
            .default_text = "false",
            .help = "All policies on the same arrivals."}),
      flag({.name = "capacity-blocks",
            .placeholder = "N,...",
            .help = "Blocks that memory holds, or inf. Default: inf, or --cache-capacity."}),
      flag({.name = "cache-capacity",
            .kind = Kind::kBytes,
            .placeholder = "BYTES",
            .help = "The same in bytes; whole blocks of it are used."}),
      flag({.name = "disk-capacity",
            .kind = Kind::kBytes,
            .placeholder = "BYTES",
            .default_text = "0",
            .help = "Disk for what memory evicts, least recently used goes first."}),
      whole("chunk-size", "TOKENS", "512", "Tokens of a block. Of a trace with hash_ids, what they were made with.",
            1 << 20),
      flag({.name = "kv-bytes-per-token",
            .kind = Kind::kNumber,
            .placeholder = "BYTES",
            .default_text = "131072",
            .help = "KV of a token, above 0. The default is 32 layers with 8 heads of 128 and 2 bytes each.",
            .high = 1 << 30}),
  };
}

std::vector<Setting> system_settings() {
  return {
      flag({.name = "prefill-cost-model",
            .placeholder = "FORMULA",
            .default_text = "0.01+1e-4*n+1e-9*n^2",
            .help = "Seconds to compute a prompt of n tokens, or a JSON file with fixed_s, token_s and "
                    "token_squared_s."}),
      whole("prefill-workers", "N", "1", "Prompts computed at a time.", 100'000),
      flag({.name = "decode-token-s",
            .kind = Kind::kSeconds,
            .placeholder = "S",
            .default_text = "0.02",
            .help = "Seconds a token of an answer takes.",
            .high = 3600}),
      whole("decode-slots", "N", "64", "Answers that are decoded at a time.", 10'000'000),
      flag({.name = "fixed-lookup-cost",
            .kind = Kind::kSeconds,
            .placeholder = "S",
            .default_text = "0.001",
            .help = "Seconds of each lookup.",
            .high = 3600}),
      flag({.name = "network-bandwidth",
            .kind = Kind::kBytes,
            .placeholder = "BYTES_PER_S",
            .default_text = "12500000000",
            .help = "Bytes a second between cache, prefill and decode.",
            .low = 1}),
      flag({.name = "disk-bandwidth",
            .kind = Kind::kBytes,
            .placeholder = "BYTES_PER_S",
            .default_text = "3000000000",
            .help = "Bytes a second of the disk, reads and writes together.",
            .low = 1}),
      flag({.name = "queue-policy",
            .kind = Kind::kChoice,
            .default_text = "fcfs",
            .help = "Who is next for prefill and network: who came first, the shortest job, or the earliest deadline "
                    "(arrival and --slo-ttft-ms) of those that can still be met.",
            .choices = {"fcfs", "sjf", "deadline"}}),
      flag({.name = "prefetch-deadline",
            .kind = Kind::kSeconds,
            .placeholder = "S",
            .help =
                "A request that has waited so long for cached blocks goes on with those that are there. Default: it "
                "waits for all.",
            .high = 86'400}),
      flag({.name = "time-scale",
            .kind = Kind::kNumber,
            .placeholder = "X",
            .default_text = "1",
            .help = "Gaps between arrivals times X: 0.5 is twice the rate.",
            .high = 1'000'000}),
      flag({.name = "slo-ttft-ms",
            .kind = Kind::kNumber,
            .placeholder = "MS",
            .default_text = "30000",
            .help = "Goodput counts requests whose first token comes within that.",
            .high = 86'400'000}),
      flag({.name = "calibrate",
            .placeholder = "REPORT,...",
            .help =
                "JSON of bench-engine or store-bench to take prefill, decode, network and lookup from; a flag given "
                "for one of them wins."}),
      flag({.name = "chart",
            .placeholder = "FILE",
            .help = "Write charts there too, .svg or .html, in one file that needs no other.",
            .accepts = [](std::string_view text) { return text.ends_with(".svg") || text.ends_with(".html"); },
            .accepted = "a file name that ends in .svg or .html"}),
  };
}

}  // namespace

std::span<const std::string_view> workload_flags() { return kWorkloadFlags; }
std::span<const std::string_view> timed_flags() { return kTimedFlags; }

std::vector<Setting> simulate_settings() {
  std::vector<Setting> all;
  for (auto part : {input_settings, cache_settings, system_settings}) {
    for (Setting& setting : part()) all.push_back(std::move(setting));
  }
  return all;
}

}  // namespace nmc::cli
