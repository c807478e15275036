// The messages by which clients join and leave a store, and bring memory to it.
// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "store/node_server.h"

namespace nmc::store {

using boost::asio::awaitable;
using net::BodyWriter;
using net::Reply;
using net::Request;
using net::Session;

// Over the Unix socket with a pin table to read by itself; over TCP only to own segments, which then lie in the memory
// of this host, for as long as the connection lasts.
Reply NodeServer::join(Session& session, Request& request) {
  State& state = static_cast<State&>(*session.state);
  const std::string hostname(request.body.get_string("hostname"));
  if (const auto done = request.body.finish(); !done) return done.error();
  if (state.client != 0) return Error{ErrorCode::kInvalidArgument, "store: a connection joins once"};
  const bool local = session.peer().has_value();
  const auto joined = [&]() -> Result<std::shared_ptr<ClientFiles>> {
    NMC_ASSIGN_OR_RETURN(const PinTable* table, core_->add_client(Clients::Kind::kUser));
    auto files = core_->files_for(*table);
    if (!files) {
      core_->drop_client(table->client());
      return Failure(std::move(files).error());
    }
    return std::make_shared<ClientFiles>(*std::move(files));
  }();
  if (!joined) return joined.error();
  state.client = (*joined)->client;
  {
    MutexLock lock(mutex_);
    const bool by_connection = !local || session.peer()->pid == ::getpid();
    clients_[state.client] = {.sessions = 1, .by_connection = by_connection, .hostname = hostname};
  }
  BodyWriter body;
  body.put_u32(state.client).put_u64(core_->index().boot_id());
  Reply reply(std::move(body));
  if (!local) return reply;
  reply.fds = {(*joined)->index.get(), (*joined)->pins.get()};
  reply.keep_alive = *joined;
  return reply;
}

Reply NodeServer::attach(Session& session, Request& request) {
  State& state = static_cast<State&>(*session.state);
  const std::uint32_t number = request.body.get_u32("client");
  const std::uint64_t identity = request.body.get_u64("identity");
  if (const auto done = request.body.finish(); !done) return done.error();
  if (!session.peer() || state.client != 0)
    return Error{ErrorCode::kInvalidArgument, "store: a connection attaches once, over the Unix socket"};
  MutexLock lock(mutex_);
  const auto found = clients_.find(number);
  const PinTable* table = found == clients_.end() ? nullptr : core_->find_client(number);
  if (table == nullptr || table->identity() != identity)
    return Error{ErrorCode::kNotFound, fmt::format("store: there is no such client {}: join anew", number)};
  ++found->second.sessions;
  found->second.by_connection = session.peer()->pid == ::getpid();
  state.client = number;
  return Reply();
}

Reply NodeServer::ready(Session& session) {
  const std::uint32_t number = static_cast<State&>(*session.state).client;
  MutexLock lock(mutex_);
  const auto found = clients_.find(number);
  if (found == clients_.end()) return Error{ErrorCode::kInvalidArgument, "store: this connection hasn't joined"};
  const PinTable* table = core_->find_client(number);
  if (!found->second.by_connection && !table->locked_by_another())
    return Error{ErrorCode::kInvalidArgument, "store: the pin table isn't locked"};
  found->second.ready = true;
  return Reply();
}

Reply NodeServer::leave(Session& session) {
  State& state = static_cast<State&>(*session.state);
  const std::uint32_t number = std::exchange(state.client, 0);
  if (number == 0) return Error{ErrorCode::kInvalidArgument, "store: this connection hasn't joined"};
  {
    MutexLock lock(mutex_);
    if (clients_.erase(number) == 0) return Reply();
  }
  for (const MasterCore::SegmentInfo& segment : core_->segments()) {
    if (segment.owner == number && segment.state == SegmentState::kMounted) (void)core_->unmount(segment.number);
  }
  core_->drop_client(number);
  return Reply();
}

Reply NodeServer::segment_file(Session& session, Request& request) {
  const std::uint32_t number = request.body.get_u32("segment");
  if (const auto done = request.body.finish(); !done) return done.error();
  if (!session.peer()) return Error{ErrorCode::kInvalidArgument, "store: files go over the Unix socket only"};
  auto fd = core_->open_segment(number);
  if (!fd) return fd.error();
  Reply reply;
  const auto kept = std::make_shared<UniqueFd>(*std::move(fd));
  reply.fds = {kept->get()};
  reply.keep_alive = kept;
  return reply;
}

NodeServer::Awaited NodeServer::mount(Session& session, Request& request) {
  const std::uint64_t bytes = request.body.get_u64("bytes");
  std::string name(request.body.get_string("name"));
  if (const auto done = request.body.finish(); !done) co_return done.error();
  const std::uint32_t client = static_cast<State&>(*session.state).client;
  if (client == 0) co_return Error{ErrorCode::kInvalidArgument, "store: segments are for those who have joined"};
  Result<std::uint32_t> number =
      co_await boost::asio::co_spawn(mount_thread_, mount_now(name, bytes, client, false), boost::asio::use_awaitable);
  const bool in_the_way = !number && (number.error().code == ErrorCode::kAlreadyExists ||
                                      number.error().code == ErrorCode::kResourceExhausted);
  if (in_the_way) {
    // Name or memory may be that of an owner who died just now; of one who did so while it mounted, the session has
    // ended by now, when its mount was answered ahead of us.
    number = co_await boost::asio::co_spawn(mount_thread_, mount_now(std::move(name), bytes, client, true),
                                            boost::asio::use_awaitable);
  }
  if (!number) co_return number.error();
  BodyWriter body;
  body.put_u32(*number);
  co_return Reply(std::move(body));
}

// On the one thread that mounts. `again`: after a look at who has died.
awaitable<Result<std::uint32_t>> NodeServer::mount_now(std::string name, std::uint64_t bytes, std::uint32_t client,
                                                       bool again) {
  if (again) look_after_clients();
  const Result<std::uint32_t> number = core_->mount(name, bytes, client);
  if (!number) co_return number;
  const bool left = [&] {
    MutexLock lock(mutex_);
    return !clients_.contains(client);
  }();
  if (left) {  // by another connection, and took along what was mounted by then. The number is still ours: see above
    (void)core_->unmount(*number);
    co_return cancelled("store: client {} left while its segment was mounted", client);
  }
  co_return number;
}

Reply NodeServer::unmount(Session& session, Request& request) {
  const std::uint32_t number = request.body.get_u32("segment");
  if (const auto done = request.body.finish(); !done) return done.error();
  const std::uint32_t client = static_cast<State&>(*session.state).client;
  for (const MasterCore::SegmentInfo& segment : core_->segments()) {
    if (segment.number != number || segment.owner != client || client == 0) continue;
    if (const auto done = core_->unmount(number); !done) return done.error();
    return Reply();
  }
  return Error{ErrorCode::kNotFound, fmt::format("store: segment {} isn't this client's", number)};
}

}  // namespace nmc::store
