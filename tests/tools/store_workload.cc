#include "tools/store_workload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "base/clock.h"
#include "base/syscall.h"
#include "tools/store_values.h"

namespace nmc::tools {
namespace {

using store::Client;
using store::Outcome;
using store::StoreCode;

constexpr std::uint32_t kBatchMax = 8;
constexpr std::size_t kHeldMax = 4;
constexpr Outcome kMissed = store::outcome_of(StoreCode::kObjectNotFound);

std::int64_t now() { return real_clock().now().count(); }

std::vector<std::string_view> views_of(const std::vector<std::string>& keys) { return {keys.begin(), keys.end()}; }

bool is_batch(char operation) { return operation == 'P' || operation == 'U' || operation == 'G' || operation == 'E'; }

}  // namespace

// ---- log ----

Result<OperationLog> OperationLog::open(const Path& path) {
  OperationLog log;
  log.file_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.file_) return Failure(os_error("open", path.string()));
  return log;
}

Result<void> OperationLog::write(std::string line) {
  line.push_back('\n');
  const ssize_t written = retry_on_eintr([&] { return ::write(file_.get(), line.data(), line.size()); });
  if (written != static_cast<ssize_t>(line.size())) return Failure(os_error("write", "the log of operations"));
  return {};
}

Result<void> Workload::log_begin(char operation, const std::vector<std::string>& keys,
                                 const std::vector<std::uint64_t>& seeds) {
  std::string line = fmt::format("b {} {}", now(), operation);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    line += ' ' + keys[i];
    if (!seeds.empty()) line += fmt::format(":{}", seeds[i]);
  }
  return log_.write(std::move(line));
}

Result<void> Workload::log_end(const std::vector<Outcome>& outcomes) {
  std::string line = fmt::format("e {}", now());
  for (const Outcome outcome : outcomes) line += fmt::format(" {}", outcome);
  return log_.write(std::move(line));
}

// ---- work ----

Result<std::uint64_t> Workload::run(std::uint64_t count, const std::atomic<bool>& stop) {
  std::uint64_t done = 0;
  for (; (count == 0 || done < count) && !stop.load(std::memory_order_relaxed); ++done) {
    const KeyRange& range = ranges_[rng_.below(ranges_.size())];
    const char operation = range.operations[rng_.below(range.operations.size())];
    const std::uint32_t first = static_cast<std::uint32_t>(rng_.below(range.keys));
    const std::uint32_t keys = is_batch(operation) ? static_cast<std::uint32_t>(2 + rng_.below(kBatchMax - 1)) : 1;
    NMC_RETURN_IF_ERROR(operate(range, operation, first, std::min(keys, range.keys)));
  }
  while (!held_.empty()) NMC_RETURN_IF_ERROR(release_oldest());
  return done;
}

Result<void> Workload::sweep() {
  for (const KeyRange& range : ranges_) {
    for (std::uint32_t key = 0; key < range.keys; ++key) NMC_RETURN_IF_ERROR(operate(range, 'g', key, 1));
  }
  return {};
}

Result<void> Workload::operate(const KeyRange& range, char operation, std::uint32_t first, std::uint32_t count) {
  std::vector<std::string> keys;
  for (std::uint32_t i = 0; i < count; ++i) keys.push_back(fmt::format("{}{}", range.prefix, (first + i) % range.keys));
  switch (operation) {
    case 'p':
    case 'u':
    case 'P':
    case 'U': return write_some(range, operation, keys);
    case 'g':
    case 'G': return read_some(range, operation, keys);
    case 'v': return view_one(keys[0]);
    case 'e':
    case 'E':
    case 's': return probe_some(operation, keys);
    case 'x':
    case 'r': return remove_some(operation, keys);
    default: return invalid_argument("there is no operation {}", operation);
  }
}

Result<void> Workload::write_some(const KeyRange& range, char operation, const std::vector<std::string>& keys) {
  std::vector<std::uint64_t> seeds;
  std::vector<std::vector<std::byte>> values;
  for (const std::string& key : keys) {
    seeds.push_back(std::uint64_t{number_} << 32 | ++writes_);
    // Half of them small: those take another way.
    const std::uint64_t most = rng_.below(2) == 0 ? std::min<std::uint64_t>(range.bytes_max, 512) : range.bytes_max;
    values.emplace_back(kValueBytesMin + rng_.below(most - kValueBytesMin + 1));
    make_value(key, seeds.back(), values.back());
  }
  std::vector<std::span<const std::byte>> parts(values.begin(), values.end());
  std::vector<Client::Put> puts;
  for (std::size_t i = 0; i < keys.size(); ++i) puts.push_back({keys[i], std::span(&parts[i], 1)});
  store::PutOptions options = range.options;
  options.replace = operation == 'u' || operation == 'U';
  std::vector<Outcome> outcomes(keys.size());
  NMC_RETURN_IF_ERROR(log_begin(operation, keys, seeds));
  client_.put(puts, options, outcomes);
  return log_end(outcomes);
}

Result<void> Workload::read_some(const KeyRange& range, char operation, const std::vector<std::string>& keys) {
  std::vector<std::vector<std::byte>> rooms(keys.size(), std::vector<std::byte>(range.bytes_max));
  std::vector<std::span<std::byte>> to(rooms.begin(), rooms.end());
  std::vector<Client::Read> reads;
  for (std::size_t i = 0; i < keys.size(); ++i) reads.push_back({keys[i], std::span(&to[i], 1)});
  std::vector<Outcome> outcomes(keys.size());
  NMC_RETURN_IF_ERROR(log_begin(operation, keys));
  client_.read(reads, outcomes);
  const std::int64_t answered = now();
  std::string line = fmt::format("e {}", answered);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (outcomes[i] < 0) {
      line += fmt::format(" {}", outcomes[i]);
      continue;
    }
    const auto seed = check_value(keys[i], std::span(rooms[i]).first(static_cast<std::size_t>(outcomes[i])));
    if (!seed) return log_.write("w " + seed.error().message);
    line += fmt::format(" {}", *seed);
  }
  return log_.write(std::move(line));
}

Result<void> Workload::view_one(const std::string& key) {
  if (held_.size() == kHeldMax) NMC_RETURN_IF_ERROR(release_oldest());
  Held held{.key = key, .seed = 0, .view = {}};
  NMC_RETURN_IF_ERROR(log_begin('v', {key}));
  const Outcome outcome = client_.view(key, held.view);
  if (outcome < 0) return log_end({outcome});
  const auto seed = check_value(key, held.view.bytes());
  if (!seed) return log_.write("w " + seed.error().message);
  held.seed = *seed;
  held_.push_back(std::move(held));
  return log_end({static_cast<Outcome>(*seed)});
}

Result<void> Workload::release_oldest() {
  const Held held = std::move(held_.front());
  held_.pop_front();
  const auto seed = check_value(held.key, held.view.bytes());
  if (!seed) return log_.write("w in a view that was kept: " + seed.error().message);
  if (*seed != held.seed) return log_.write(fmt::format("w {} changed in a view that was kept", held.key));
  return {};
}

Result<void> Workload::probe_some(char operation, const std::vector<std::string>& keys) {
  std::vector<Outcome> outcomes(keys.size());
  NMC_RETURN_IF_ERROR(log_begin(operation, keys));
  if (operation == 's')
    outcomes[0] = std::min<Outcome>(client_.size_of(keys[0]), 0);
  else
    client_.exists(views_of(keys), outcomes);
  if (operation != 's') {
    for (Outcome& outcome : outcomes) outcome = outcome == 1 ? 0 : outcome == 0 ? kMissed : outcome;
  }
  return log_end(outcomes);
}

Result<void> Workload::remove_some(char operation, const std::vector<std::string>& keys) {
  std::vector<Outcome> outcomes(keys.size());
  NMC_RETURN_IF_ERROR(log_begin(operation, keys));
  client_.remove(views_of(keys), operation == 'x', outcomes);
  return log_end(outcomes);
}

}  // namespace nmc::tools
