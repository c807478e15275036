#include "store/remote_medium.h"

#include <algorithm>

#include "base/failpoint.h"
#include "base/log.h"

namespace nmc::store {
namespace {

// A request waits for this on the way to its first token: rather compute.
constexpr Nanos kConnectDeadline = std::chrono::seconds(1);
constexpr Nanos kProgressDeadline = std::chrono::seconds(2);
constexpr Nanos kSilence = std::chrono::seconds(5);

bool is_unreachable(Outcome outcome) {
  return outcome == outcome_of(StoreCode::kRpcFail) || outcome == outcome_of(StoreCode::kRpcTimeout);
}

}  // namespace

Result<std::unique_ptr<RemoteMedium>> RemoteMedium::connect(ClientOptions options, const Clock& clock) {
  options.connect_deadline = kConnectDeadline;
  options.progress_deadline = kProgressDeadline;
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::connect(options));
  return std::unique_ptr<RemoteMedium>(new RemoteMedium(options.server, std::move(client), clock));
}

RemoteMedium::RemoteMedium(std::string server, std::unique_ptr<Client> client, const Clock& clock)
    : server_(std::move(server)), client_(std::move(client)), silence_(clock, kSilence) {}

bool RemoteMedium::note(Outcome outcome) {
  if (!is_unreachable(outcome)) return true;
  errors_.fetch_add(1, std::memory_order_relaxed);
  log_warning("store: {} doesn't answer and is left alone for {} s", server_, kSilence / std::chrono::seconds(1));
  silence_.begin();
  return false;
}

std::optional<std::uint64_t> RemoteMedium::size_of(std::string_view key) {
  if (silence_.holds()) return std::nullopt;
  const Outcome size = client_->size_of(key);
  return note(size) && size > 0 ? std::optional(static_cast<std::uint64_t>(size)) : std::nullopt;
}

std::vector<Outcome> RemoteMedium::ask_exists(std::span<const std::string_view> keys) {
  std::vector<Outcome> outcomes(keys.size(), 0);
  if (!keys.empty() && !silence_.holds()) client_->exists(keys, outcomes);
  for (const Outcome outcome : outcomes) {
    if (!note(outcome)) break;
  }
  return outcomes;
}

std::size_t RemoteMedium::probe_run(std::span<const std::string> keys, std::uint64_t) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const std::vector<Outcome> there = ask_exists(views);
  return static_cast<std::size_t>(std::find_if(there.begin(), there.end(), [](Outcome o) { return o != 1; }) -
                                  there.begin());
}

std::size_t RemoteMedium::read(std::span<const TierRead> reads, std::string* why) {
  if (auto injected = failpoint("remote.read")) {
    errors_.fetch_add(1, std::memory_order_relaxed);
    *why = injected->message;
    return 0;
  }
  if (silence_.holds()) return 0;
  std::vector<Client::Read> wanted;
  for (const TierRead& read : reads) wanted.push_back({read.key, std::span(&read.out, 1)});
  std::vector<Outcome> outcomes(reads.size());
  client_->read(wanted, outcomes);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (outcomes[i] == static_cast<Outcome>(reads[i].out.size())) {
      read_bytes_.fetch_add(reads[i].out.size(), std::memory_order_relaxed);
      continue;
    }
    if (!note(outcomes[i]))
      *why = fmt::format("{} doesn't answer", server_);
    else if (outcomes[i] >= 0)
      *why = fmt::format("{} has {} bytes under the key, expected {}", server_, outcomes[i], reads[i].out.size());
    else if (outcomes[i] != outcome_of(StoreCode::kObjectNotFound))
      *why = fmt::format("{} answers {}", server_, store_code_name(outcomes[i]));
    return i;
  }
  return reads.size();
}

// What is there already, perhaps from another host, isn't sent.
Result<void> RemoteMedium::append(std::span<const TierItem> items) {
  if (auto injected = failpoint("remote.append")) {
    errors_.fetch_add(1, std::memory_order_relaxed);
    return Failure(*std::move(injected));
  }
  std::vector<std::string_view> keys;
  for (const TierItem& item : items) keys.push_back(item.key);
  const std::vector<Outcome> there = ask_exists(keys);
  if (silence_.holds()) return unavailable("store: {} doesn't answer", server_);
  std::vector<Client::Put> puts;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (there[i] != 1) puts.push_back({items[i].key, std::span(&items[i].payload, 1)});
  }
  if (puts.empty()) return {};
  std::vector<Outcome> outcomes(puts.size());
  client_->put(puts, {}, outcomes);
  for (std::size_t i = 0; i < puts.size(); ++i) {
    if (outcomes[i] == 0) {
      written_bytes_.fetch_add(puts[i].parts[0].size(), std::memory_order_relaxed);
      continue;
    }
    if (!note(outcomes[i])) return unavailable("store: {} doesn't answer", server_);
    errors_.fetch_add(1, std::memory_order_relaxed);
    return resource_exhausted("store: {} doesn't take an object of {} bytes: {}", server_, puts[i].parts[0].size(),
                              store_code_name(outcomes[i]));
  }
  return {};
}

Result<void> RemoteMedium::remove(std::string_view key) {
  if (silence_.holds()) return unavailable("store: {} doesn't answer", server_);
  const Outcome outcome = client_->remove(key, true);
  if (!note(outcome)) return unavailable("store: {} doesn't answer", server_);
  return {};
}

void RemoteMedium::fill_stats(StoreStats& stats) const {
  stats.remote = true;
  stats.remote_read_bytes = read_bytes_.load(std::memory_order_relaxed);
  stats.remote_written_bytes = written_bytes_.load(std::memory_order_relaxed);
  stats.remote_errors = errors_.load(std::memory_order_relaxed);
}

}  // namespace nmc::store
