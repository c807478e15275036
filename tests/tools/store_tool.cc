// nmc_store_tool FLAG...: a client of a store, driven by lines on standard input, for tests of several processes.
// It prints `ready` when it has joined, then a line for each line:
//   put KEY SEED SIZE [OPTION...]     outcome             OPTION: replace, hard, soft, prefer=SEGMENT
//   get KEY | view KEY                outcome, and the seed after a 0; a view is kept
//   check | release                   what the kept view reads now, as get; lets it go
//   exists KEY | remove KEY [force] | remove_all          outcome
//   counters                          shared reads, messages over the Unix socket, over TCP
//   fill PREFIX FIRST COUNT SIZE BATCH [OPTION...]        failed puts, their last outcome, the slowest call in ms
//   latency PREFIX KEYS COUNT         of reads of random ones (to 1 MiB): p50 and p99 in ns, samples, dropped, missed
//   range PREFIX KEYS BYTES_MAX OPERATIONS [OPTION...]    adds a range for what follows: see store_workload.h
//   work NUMBER COUNT LOG | wait | stop                   starts random work; its operations when it has ended; ends it
//   sweep LOG                         reads all keys of the ranges once
//   arm FAILPOINT ACTION [SKIPPED]    ACTION: error, exit, stop, as NANO_MOONCAKE_FAILPOINTS has them
// Flags: --server ADDRESS --hostname NAME --segment-bytes N --progress-ms N --tcp. The end of the input closes the
// client in order. Anything that is wrong ends it with one line on standard error.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/failpoint.h"
#include "tools/store_values.h"
#include "tools/store_workload.h"

namespace nmc::tools {
namespace {

using store::Client;
using store::Outcome;

constexpr std::size_t kLatencyValueBytesMax = 1 << 20;

// The words of a line, taken one after the other.
class Words {
 public:
  explicit Words(const std::string& line) : stream_(line) {}
  std::optional<std::string> next() {
    std::string word;
    if (!(stream_ >> word)) return std::nullopt;
    return word;
  }
  Result<std::string> text(std::string_view what) {
    if (auto word = next()) return *std::move(word);
    return invalid_argument("{} is missing", what);
  }
  Result<std::uint64_t> number(std::string_view what) {
    NMC_ASSIGN_OR_RETURN(const std::string word, text(what));
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
      return invalid_argument("{}: {} is no number", what, word);
    return value;
  }
  Result<store::PutOptions> put_options() {
    store::PutOptions options;
    while (const auto word = next()) {
      if (*word == "replace")
        options.replace = true;
      else if (*word == "hard")
        options.hard_pin = true;
      else if (*word == "soft")
        options.soft_pin = store::SoftPin::kPin;
      else if (word->starts_with("prefer="))
        options.preferred_segments.push_back(word->substr(word->find('=') + 1));
      else
        return invalid_argument("there is no option {}", *word);
    }
    return options;
  }

 private:
  std::istringstream stream_;
};

std::string outcome_text(Outcome outcome) { return std::to_string(outcome); }

class StoreTool {
 public:
  explicit StoreTool(std::unique_ptr<Client> client) : client_(std::move(client)) {}
  ~StoreTool() { end_work(); }

  Result<std::string> answer(const std::string& line) {
    using Command = Result<std::string> (StoreTool::*)(Words&);
    static const std::map<std::string, Command, std::less<>> kCommands = {
        {"put", &StoreTool::put},       {"get", &StoreTool::get},          {"view", &StoreTool::view},
        {"check", &StoreTool::check},   {"release", &StoreTool::release},  {"exists", &StoreTool::exists},
        {"remove", &StoreTool::remove}, {"remove_all", &StoreTool::clear}, {"counters", &StoreTool::counters},
        {"fill", &StoreTool::fill},     {"latency", &StoreTool::latency},  {"range", &StoreTool::range},
        {"work", &StoreTool::work},     {"wait", &StoreTool::wait},        {"stop", &StoreTool::stop},
        {"sweep", &StoreTool::sweep},   {"arm", &StoreTool::arm}};
    Words words(line);
    NMC_ASSIGN_OR_RETURN(const std::string name, words.text("a command"));
    const auto command = kCommands.find(name);
    if (command == kCommands.end()) return invalid_argument("there is no command {}", name);
    return (this->*command->second)(words);
  }
  // The answer is out.
  void answered() {
    if (const auto then = std::exchange(after_answer_, nullptr)) then();
  }

 private:
  Result<std::string> put(Words& words) {
    NMC_ASSIGN_OR_RETURN(const std::string key, words.text("key"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t seed, words.number("seed"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t size, words.number("size"));
    NMC_ASSIGN_OR_RETURN(const store::PutOptions options, words.put_options());
    std::vector<std::byte> value(std::max(size, kValueBytesMin));
    make_value(key, seed, value);
    return outcome_text(client_->put(key, value, options));
  }

  Result<std::string> get(Words& words) {
    NMC_ASSIGN_OR_RETURN(const std::string key, words.text("key"));
    Client::View view;
    const Outcome outcome = client_->view(key, view);
    return outcome < 0 ? outcome_text(outcome) : seed_text(key, view);
  }

  Result<std::string> view(Words& words) {
    NMC_ASSIGN_OR_RETURN(kept_key_, words.text("key"));
    const Outcome outcome = client_->view(kept_key_, kept_);
    return outcome < 0 ? outcome_text(outcome) : seed_text(kept_key_, kept_);
  }
  Result<std::string> check(Words&) { return seed_text(kept_key_, kept_); }
  Result<std::string> release(Words&) {
    kept_ = {};
    return outcome_text(0);
  }
  static Result<std::string> seed_text(const std::string& key, const Client::View& view) {
    NMC_ASSIGN_OR_RETURN(const std::uint64_t seed, check_value(key, view.bytes()));
    return fmt::format("0 {}", seed);
  }

  Result<std::string> exists(Words& words) {
    NMC_ASSIGN_OR_RETURN(const std::string key, words.text("key"));
    return outcome_text(client_->exists(key));
  }
  Result<std::string> remove(Words& words) {
    NMC_ASSIGN_OR_RETURN(const std::string key, words.text("key"));
    return outcome_text(client_->remove(key, words.next() == "force"));
  }
  Result<std::string> clear(Words&) { return outcome_text(client_->remove_all(true)); }

  Result<std::string> counters(Words&) {
    const store::ClientCounters counters = client_->counters();
    return fmt::format("{} {} {}", counters.shared_reads, counters.unix_socket.messages, counters.tcp.messages);
  }

  // ---- much of one kind ----

  Result<std::string> fill(Words& words) {
    NMC_ASSIGN_OR_RETURN(const std::string prefix, words.text("prefix"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t first, words.number("first"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t count, words.number("count"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t size, words.number("size"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t batch, words.number("batch"));
    NMC_ASSIGN_OR_RETURN(const store::PutOptions options, words.put_options());
    std::uint64_t failed = 0;
    Outcome last = 0;
    Nanos slowest{0};
    std::vector<std::byte> bytes(std::max(size, kValueBytesMin) * batch);
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t now = std::min(batch, count - done);
      std::vector<std::string> keys;
      std::vector<std::span<const std::byte>> parts;
      for (std::uint64_t i = 0; i < now; ++i) {
        keys.push_back(prefix + std::to_string(first + done + i));
        const auto value = std::span(bytes).subspan(i * (bytes.size() / batch), bytes.size() / batch);
        make_value(keys.back(), first + done + i + 1, value);
        parts.push_back(value);
      }
      std::vector<Client::Put> puts;
      for (std::uint64_t i = 0; i < now; ++i) puts.push_back({keys[i], std::span(&parts[i], 1)});
      std::vector<Outcome> outcomes(now);
      const Stopwatch watch;
      client_->put(puts, options, outcomes);
      slowest = std::max(slowest, watch.elapsed());
      for (const Outcome outcome : outcomes) {
        failed += outcome != 0;
        if (outcome != 0) last = outcome;
      }
      done += now;
    }
    return fmt::format("{} {} {:.3f}", failed, last, to_ms(slowest));
  }

  static std::int64_t involuntary_switches() {
    struct rusage usage {};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }

  // A sample during which somebody else had this core says nothing about the store.
  Result<std::string> latency(Words& words) {
    NMC_ASSIGN_OR_RETURN(const std::string prefix, words.text("prefix"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t keys, words.number("keys"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t count, words.number("count"));
    std::vector<std::byte> room(kLatencyValueBytesMax);
    std::vector<std::int64_t> samples;
    std::uint64_t dropped = 0, missed = 0;
    Rng rng(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string key = prefix + std::to_string(rng.below(std::max<std::uint64_t>(keys, 1)));
      const std::int64_t switches = involuntary_switches();
      const Stopwatch watch;
      const Outcome outcome = client_->read(key, room);
      const Nanos took = watch.elapsed();
      if (involuntary_switches() != switches) {
        ++dropped;
      } else if (outcome < 0) {
        ++missed;
      } else {
        samples.push_back(took.count());
      }
    }
    if (samples.empty()) return invalid_argument("latency: none of {} reads is a sample", count);
    std::sort(samples.begin(), samples.end());
    return fmt::format("{} {} {} {} {}", samples[samples.size() / 2], samples[samples.size() * 99 / 100],
                       samples.size(), dropped, missed);
  }

  // ---- random work ----

  Result<std::string> range(Words& words) {
    KeyRange range;
    NMC_ASSIGN_OR_RETURN(range.prefix, words.text("prefix"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t keys, words.number("keys"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t bytes_max, words.number("largest value"));
    NMC_ASSIGN_OR_RETURN(range.operations, words.text("operations"));
    NMC_ASSIGN_OR_RETURN(range.options, words.put_options());
    if (keys == 0 || bytes_max < kValueBytesMin || bytes_max > (1u << 30) || keys > (1u << 24))
      return invalid_argument("range {}: {} keys with values of up to {} bytes", range.prefix, keys, bytes_max);
    range.keys = static_cast<std::uint32_t>(keys);
    range.bytes_max = static_cast<std::uint32_t>(bytes_max);
    ranges_.push_back(std::move(range));
    return outcome_text(0);
  }

  Result<Workload> new_workload(Words& words, std::uint64_t number) {
    if (ranges_.empty()) return invalid_argument("no range was given");
    NMC_ASSIGN_OR_RETURN(const std::string path, words.text("log"));
    NMC_ASSIGN_OR_RETURN(OperationLog log, OperationLog::open(path));
    return Workload(*client_, ranges_, std::move(log), static_cast<std::uint32_t>(number));
  }

  Result<std::string> work(Words& words) {
    if (worker_.joinable()) return invalid_argument("work is being done");
    NMC_ASSIGN_OR_RETURN(const std::uint64_t number, words.number("number"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t count, words.number("count"));
    NMC_ASSIGN_OR_RETURN(Workload workload, new_workload(words, number));
    stop_ = false;
    worker_ =
        std::thread([this, count, workload = std::move(workload)]() mutable { worked_ = workload.run(count, stop_); });
    return outcome_text(0);
  }
  Result<std::string> wait(Words&) {
    if (!worker_.joinable()) return invalid_argument("no work is being done");
    worker_.join();
    NMC_ASSIGN_OR_RETURN(const std::uint64_t done, worked_);
    return std::to_string(done);
  }
  Result<std::string> stop(Words& words) {
    stop_ = true;
    return wait(words);
  }
  void end_work() {
    stop_ = true;
    if (worker_.joinable()) worker_.join();
  }

  Result<std::string> sweep(Words& words) {
    NMC_ASSIGN_OR_RETURN(Workload workload, new_workload(words, 0));
    NMC_RETURN_IF_ERROR(workload.sweep());
    return outcome_text(0);
  }

  Result<std::string> arm(Words& words) {
    NMC_ASSIGN_OR_RETURN(const std::string name, words.text("failpoint"));
    NMC_ASSIGN_OR_RETURN(const std::string action, words.text("action"));
    const auto skipped = words.number("skipped passes");
    static const std::map<std::string, FailpointAction, std::less<>> kActions = {
        {"error", FailpointAction::kError}, {"exit", FailpointAction::kExit}, {"stop", FailpointAction::kStop}};
    const auto found = kActions.find(action);
    if (found == kActions.end()) return invalid_argument("there is no action {}", action);
    // Work under way may get there at once and end or stop the process: whoever asked hears that it is armed first.
    after_answer_ = [name, action = found->second, passes = skipped ? *skipped : 0] {
      arm_failpoint(name, action, 1, nullptr, passes);
    };
    return outcome_text(0);
  }

  std::unique_ptr<Client> client_;
  std::function<void()> after_answer_;
  std::vector<KeyRange> ranges_;
  std::string kept_key_;
  Client::View kept_;  // goes before the client
  std::atomic<bool> stop_{false};
  Result<std::uint64_t> worked_ = 0;
  std::thread worker_;
};

Result<store::ClientOptions> parse_flags(int argc, char** argv) {
  std::string line;
  for (int i = 1; i < argc; ++i) line += std::string(argv[i]) + ' ';
  Words words(line);
  store::ClientOptions options;
  while (const auto flag = words.next()) {
    if (*flag == "--server") {
      NMC_ASSIGN_OR_RETURN(options.server, words.text(*flag));
    } else if (*flag == "--hostname") {
      NMC_ASSIGN_OR_RETURN(options.hostname, words.text(*flag));
    } else if (*flag == "--segment-bytes") {
      NMC_ASSIGN_OR_RETURN(options.segment_bytes, words.number(*flag));
    } else if (*flag == "--progress-ms") {
      NMC_ASSIGN_OR_RETURN(const std::uint64_t ms, words.number(*flag));
      options.progress_deadline = std::chrono::milliseconds(ms);
    } else if (*flag == "--token") {
      NMC_ASSIGN_OR_RETURN(options.token, words.text(*flag));
    } else if (*flag == "--tls-ca") {
      NMC_ASSIGN_OR_RETURN(options.tls_ca, words.text(*flag));
    } else if (*flag == "--tcp") {
      options.shared_memory = false;
    } else {
      return invalid_argument("there is no flag {}", *flag);
    }
  }
  return options;
}

Result<void> serve(int argc, char** argv) {
  NMC_ASSIGN_OR_RETURN(store::ClientOptions options, parse_flags(argc, argv));
  NMC_ASSIGN_OR_RETURN(auto client, Client::connect(std::move(options)));
  StoreTool tool(std::move(client));
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    NMC_ASSIGN_OR_RETURN(const std::string answer, tool.answer(line));
    std::cout << answer << std::endl;
    tool.answered();
  }
  return {};
}

}  // namespace
}  // namespace nmc::tools

int main(int argc, char** argv) {
  if (const auto served = nmc::tools::serve(argc, argv); !served) {
    fmt::print(stderr, "{}\n", served.error().to_string());
    return 1;
  }
  return 0;
}
