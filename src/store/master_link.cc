#include "store/master_link.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "base/entropy.h"
#include "base/failpoint.h"
#include "base/log.h"

namespace nmc::store {
namespace {

using net::Address;
using net::BodyReader;
using net::BodyWriter;
using net::Carrier;
using net::Channel;

constexpr std::size_t kIdleChannelsMax = 16;

std::uint16_t number_of(Op op) { return static_cast<std::uint16_t>(op); }

void add_counters(const Channel& channel, ClientCounters::Carrier& unix_socket, ClientCounters::Carrier& tcp) {
  const auto values = channel.counters().values();
  ClientCounters::Carrier& carrier = channel.carrier() == Carrier::kUnix ? unix_socket : tcp;
  carrier.messages += values.messages_sent;
  carrier.bytes_sent += values.payload_bytes_sent;
  carrier.bytes_received += values.payload_bytes_received;
}

// Ports in the names of clients whose callers gave none. Nobody listens there; they tell clients of one host apart, and
// callers know them from this range.
constexpr std::uint64_t kPortMin = 12300, kPorts = 2000;

// Beyond the deadline of every message: the master has memory to find, and before ours that of others who mount at the
// same time.
constexpr auto kMountPatiencePerGiB = std::chrono::seconds(2);

// Unmapping gigabytes takes the system a fifth of a second, which nobody who has left needs to wait for. What takes no
// time goes with its owner.
constexpr std::uint64_t kLongToUnmap = std::uint64_t{256} << 20;
void end_aside(std::vector<std::unique_ptr<Membership>> memberships) {
  try {
    std::thread([ended = std::move(memberships)]() mutable { ended.clear(); }).detach();
  } catch (const std::system_error&) {  // no thread to be had: they ended here
  }
}

}  // namespace

MasterLink::~MasterLink() {
  if (membership() == nullptr) {
    MutexLock lock(join_mutex_);
    if (standing_ != nullptr) (void)standing_->call({.op = number_of(Op::kLeave)});
    return;
  }
  if (!options_.keep_segment) (void)call(Op::kLeave, {});  // to the master that there is now
  // Who keeps the segment is dead for the master, and the segment parked, once all is closed.
  if (options_.keep_segment || options_.segment_bytes < kLongToUnmap) return;
  MutexLock lock(join_mutex_);
  end_aside(std::move(memberships_));
}

Result<void> MasterLink::open() {
  NMC_ASSIGN_OR_RETURN(address_, Address::parse(options_.server));
  if (!options_.shared_memory && address_.carrier == Carrier::kUnix)
    return invalid_argument("store: {} is a Unix socket, without shared memory HOST:PORT is wanted", options_.server);
  if (options_.shared_memory) NMC_RETURN_IF_ERROR(find_shared_memory());
  std::unique_ptr<Channel> joined_by;
  if (unix_address_) {
    MutexLock lock(join_mutex_);
    NMC_ASSIGN_OR_RETURN(joined_by, join_locked());
  }
  if (options_.segment_bytes == 0) {
    if (joined_by != nullptr) give_back(std::move(joined_by));
    return call(Op::kPing, {});
  }
  const Result<void> mounted = mount_by_name(joined_by.get());
  if (joined_by != nullptr) give_back(std::move(joined_by));
  return mounted;
}

// By a name that no other client has, unless the caller chose one.
Result<void> MasterLink::mount_by_name(Channel* joined_by) {
  const bool chosen = options_.hostname.find(':') != std::string::npos && options_.hostname.back() != ']';
  const std::uint64_t first = membership() == nullptr ? machine_random() : membership()->client();
  for (std::uint64_t tried = 0;; ++tried) {
    if (!chosen) name_ = fmt::format("{}:{}", options_.hostname, kPortMin + (first + tried) % kPorts);
    const Result<void> mounted = joined_by == nullptr ? stand_for_segment() : mount(*joined_by);
    const bool taken = !mounted && mounted.error().code == ErrorCode::kAlreadyExists;
    if (!taken || chosen || tried + 1 == kPorts) return mounted;
  }
}

// On the same host the master tells its socket's path, and answers there with the same boot id.
Result<void> MasterLink::find_shared_memory() {
  if (address_.carrier == Carrier::kUnix) {
    unix_address_ = address_;
    return {};
  }
  NMC_ASSIGN_OR_RETURN(const auto channel, Channel::connect(address_, channel_options()));
  NMC_ASSIGN_OR_RETURN(const Channel::Reply reply, channel->call({.op = number_of(Op::kWhere)}));
  BodyReader reader = reply.reader();
  const std::uint64_t boot_id = reader.get_u64("boot id");
  const std::string path(reader.get_string("socket"));
  NMC_RETURN_IF_ERROR(reader.finish());
  if (path.size() > net::kUnixPathBytesMax) return {};
  const Address there{.carrier = Carrier::kUnix, .path = path};
  const auto local = Channel::connect(there, channel_options());
  if (!local) return {};  // another host, or another user's view of this one
  const auto pong = (*local)->call({.op = number_of(Op::kPing)});
  if (!pong) return {};
  BodyReader answer = pong->reader();
  if (answer.get_u64("boot id") == boot_id) unix_address_ = there;
  return {};
}

net::ChannelOptions MasterLink::channel_options() const {
  net::ChannelOptions options;
  options.token = options_.token;
  options.tls_ca = options_.tls_ca;
  options.connect_deadline = options_.connect_deadline;
  options.progress_deadline = options_.progress_deadline;
  return options;
}

// ---- membership ----

Result<std::unique_ptr<Channel>> MasterLink::join_locked() {
  NMC_ASSIGN_OR_RETURN(auto channel, Channel::connect(*unix_address_, channel_options()));
  BodyWriter body;
  body.put_string(options_.hostname);
  ClientFiles files;
  {
    NMC_ASSIGN_OR_RETURN(Channel::Reply reply, channel->call({.op = number_of(Op::kJoin), .body = body.bytes()}));
    BodyReader reader = reply.reader();
    files.client = reader.get_u32("client");
    (void)reader.get_u64("boot id");
    NMC_RETURN_IF_ERROR(reader.finish());
    if (reply.fds.size() != 2) return corrupt("store: {} files came with the answer, expected 2", reply.fds.size());
    files.index = std::move(reply.fds[0]);
    files.pins = std::move(reply.fds[1]);
  }
  files.open_segment = [this](std::uint32_t number) { return fetch_segment(number); };
  NMC_ASSIGN_OR_RETURN(auto joined, Membership::create(std::move(files), clock_));
  NMC_RETURN_IF_ERROR(joined->reader().lock_for_life());
  NMC_RETURN_IF_ERROR(channel->call({.op = number_of(Op::kReady)}));
  memberships_.push_back(std::move(joined));
  current_.store(memberships_.back().get(), std::memory_order_release);
  return channel;
}

Result<void> MasterLink::mount(Channel& channel) {
  BodyWriter body;
  body.put_u64(options_.segment_bytes).put_string(name_);
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30, kGiBMax = std::uint64_t{1} << 20;
  const Nanos progress =
      options_.progress_deadline + kMountPatiencePerGiB * std::min(options_.segment_bytes / kGiB, kGiBMax);
  NMC_RETURN_IF_ERROR(channel.call({.op = number_of(Op::kMount), .body = body.bytes()}, nullptr, progress));
  return {};
}

Result<void> MasterLink::stand_for_segment() {
  MutexLock lock(join_mutex_);
  if (standing_ != nullptr && standing_->usable() && standing_->call({.op = number_of(Op::kPing)})) return {};
  NMC_ASSIGN_OR_RETURN(auto channel, Channel::connect(address_, channel_options()));
  BodyWriter body;
  body.put_string(options_.hostname);
  NMC_RETURN_IF_ERROR(channel->call({.op = number_of(Op::kJoin), .body = body.bytes()}));
  NMC_RETURN_IF_ERROR(mount(*channel));
  standing_ = std::move(channel);
  return {};
}

// Beside the socket, where we see the master's folder: that takes no message, nor a master that lives.
Result<UniqueFd> MasterLink::fetch_segment(std::uint32_t number) {
  const Path file = Path(unix_address_->path).parent_path() / Segment::file_name(number);
  if (UniqueFd fd(::open(file.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)); fd) return fd;
  BodyWriter body;
  body.put_u32(number);
  NMC_ASSIGN_OR_RETURN(auto channel, take_channel());
  auto fd = [&]() -> Result<UniqueFd> {
    NMC_ASSIGN_OR_RETURN(Channel::Reply reply,
                         channel->call({.op = number_of(Op::kSegmentFile), .body = body.bytes()}));
    if (reply.fds.size() != 1) return corrupt("store: {} files came for segment {}", reply.fds.size(), number);
    return std::move(reply.fds[0]);
  }();
  give_back(std::move(channel));
  return fd;
}

// ---- connections ----

Result<std::unique_ptr<Channel>> MasterLink::take_channel() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Channel> channel = std::move(idle_.back());
      idle_.pop_back();
      return channel;
    }
  }
  return connect();
}

Result<std::unique_ptr<Channel>> MasterLink::connect() {
  if (!unix_address_) return Channel::connect(address_, channel_options());
  NMC_ASSIGN_OR_RETURN(auto channel, Channel::connect(*unix_address_, channel_options()));
  Membership* const joined = membership();
  BodyWriter body;
  body.put_u32(joined->client()).put_u64(joined->reader().pins().identity());
  const auto attached = channel->call({.op = number_of(Op::kAttach), .body = body.bytes()});
  if (attached) return channel;
  if (attached.error().code != ErrorCode::kNotFound) return Failure(attached.error());
  // Another store than the one we know: join it, and bring our memory again.
  {
    MutexLock lock(join_mutex_);
    if (membership() == joined) {
      log_info("store: {} is a new store, joining it", unix_address_->to_string());
      NMC_ASSIGN_OR_RETURN(auto fresh, join_locked());
      if (options_.segment_bytes > 0) NMC_RETURN_IF_ERROR(mount(*fresh));
      return fresh;
    }
  }
  return take_channel();
}

void MasterLink::give_back(std::unique_ptr<Channel> channel) {
  MutexLock lock(mutex_);
  if (channel->usable() && idle_.size() < kIdleChannelsMax) {
    idle_.push_back(std::move(channel));
  } else {
    add_counters(*channel, past_unix_, past_tcp_);
  }
}

void MasterLink::forget_idle() {
  MutexLock lock(mutex_);
  for (const auto& channel : idle_) add_counters(*channel, past_unix_, past_tcp_);
  idle_.clear();
}

Result<void> MasterLink::call(Op op, net::ByteSpan body, const OnReply& on_reply,
                              std::span<const net::ByteSpan> payload, const Channel::PlacePayload& place) {
  for (int attempt = 0;; ++attempt) {
    if (auto injected = failpoint("store.call")) return Failure(*std::move(injected));
    NMC_ASSIGN_OR_RETURN(auto channel, attempt == 0 ? take_channel() : connect());
    const auto reply = channel->call({.op = number_of(op), .body = body, .payload = payload}, place);
    Result<void> done = {};
    if (!reply)
      done = Failure(reply.error());
    else if (on_reply)
      done = on_reply(*reply);
    const bool dead = !channel->usable() && !reply && reply.error().code == ErrorCode::kUnavailable;
    give_back(std::move(channel));
    if (!dead || attempt > 0) return done;
    forget_idle();
    if (!unix_address_ && options_.segment_bytes > 0) NMC_RETURN_IF_ERROR(stand_for_segment());
  }
}

void MasterLink::add_to(ClientCounters& counters) {
  MutexLock lock(mutex_);
  counters.unix_socket = past_unix_;
  counters.tcp = past_tcp_;
  for (const auto& channel : idle_) add_counters(*channel, counters.unix_socket, counters.tcp);
}

}  // namespace nmc::store
