// How a client reaches its master: finds out whether that is on this host, joins the store there, keeps connections,
// and finds its way back after a restart of either. Internal to the client.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "net/channel.h"
#include "store/client.h"
#include "store/membership.h"
#include "store/protocol.h"

namespace nmc::store {

// Thread-safe.
class MasterLink {
 public:
  explicit MasterLink(const ClientOptions& options) : options_(options), name_(options.hostname) {}
  ~MasterLink();  // leaves the store; nothing of its memberships is pinned any more
  MasterLink(const MasterLink&) = delete;
  MasterLink& operator=(const MasterLink&) = delete;

  // Before anything else: finds the master, joins, and mounts the client's own segment.
  Result<void> open();

  const std::string& name() const { return name_; }
  bool on_this_host() const { return unix_address_.has_value(); }
  // nullptr: messages only. Never waits for a master: what was joined once stays readable.
  Membership* membership() const { return current_.load(std::memory_order_acquire); }

  using OnReply = std::function<Result<void>(const net::Channel::Reply&)>;
  // One request and its reply. Over a connection that turns out to be dead it is tried once more on a fresh one, since
  // the master may have been restarted: so the message may have been carried out twice.
  Result<void> call(Op op, net::ByteSpan body, const OnReply& on_reply = nullptr,
                    std::span<const net::ByteSpan> payload = {}, const net::Channel::PlacePayload& place = nullptr);

  void add_to(ClientCounters& counters) NMC_EXCLUDES(mutex_);

 private:
  Result<void> find_shared_memory();
  net::ChannelOptions channel_options() const;
  // The connection that it joined by.
  Result<std::unique_ptr<net::Channel>> join_locked() NMC_REQUIRES(join_mutex_);
  Result<void> mount(net::Channel& channel);
  Result<void> mount_by_name(net::Channel* joined_by);  // nullptr: from another host
  // From another host: a connection that stands for this client, and for the segment that it owns.
  Result<void> stand_for_segment() NMC_EXCLUDES(join_mutex_);
  Result<UniqueFd> fetch_segment(std::uint32_t number);

  Result<std::unique_ptr<net::Channel>> take_channel() NMC_EXCLUDES(mutex_);
  Result<std::unique_ptr<net::Channel>> connect() NMC_EXCLUDES(mutex_);
  void give_back(std::unique_ptr<net::Channel> channel) NMC_EXCLUDES(mutex_);
  void forget_idle() NMC_EXCLUDES(mutex_);

  const ClientOptions options_;
  std::string name_;
  net::Address address_;
  std::optional<net::Address> unix_address_;  // where the master answers on this host
  TouchClock clock_{real_clock()};

  Mutex join_mutex_;
  // Earlier ones stay: somebody may have something of theirs pinned.
  std::vector<std::unique_ptr<Membership>> memberships_ NMC_GUARDED_BY(join_mutex_);
  std::atomic<Membership*> current_{nullptr};
  std::unique_ptr<net::Channel> standing_ NMC_GUARDED_BY(join_mutex_);

  Mutex mutex_;
  std::vector<std::unique_ptr<net::Channel>> idle_ NMC_GUARDED_BY(mutex_);
  ClientCounters::Carrier past_unix_ NMC_GUARDED_BY(mutex_), past_tcp_ NMC_GUARDED_BY(mutex_);
};

}  // namespace nmc::store
