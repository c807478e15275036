// The messages by which objects are looked at: those of clients who can't do it by themselves, and those for what has
// left memory.
// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "store/node_requests.h"
#include "store/node_server.h"

namespace nmc::store {

using boost::asio::awaitable;
using net::BodyWriter;
using net::Reply;
using net::Request;

Result<std::vector<std::string_view>> get_keys(net::Request& request) {
  const std::uint32_t count = request.body.get_count("keys", 4);
  if (count > kBatchItemsMax) return invalid_argument("{} keys in one message, {} is the most", count, kBatchItemsMax);
  std::vector<std::string_view> keys;
  keys.reserve(count);
  for (std::uint32_t i = 0; i < count && request.body.ok(); ++i) keys.push_back(request.body.get_string("key"));
  NMC_RETURN_IF_ERROR(request.body.finish());
  return keys;
}

bool NodeServer::is_kept(std::string_view key) {
  return reader_->contains(key) || (tiers_ != nullptr && tiers_->known_size(key));
}

Reply NodeServer::exists(Request& request) {
  const auto keys = get_keys(request);
  if (!keys) return keys.error();
  BodyWriter body;
  for (const std::string_view key : *keys) {
    const bool there = !key.empty() && (reader_->probe(key) || (tiers_ != nullptr && tiers_->known_size(key)));
    body.put_u32(there ? 1 : 0);
  }
  operations_.count(Operation::kExistKey, keys->size(), 0);
  return Reply(std::move(body));
}

Reply NodeServer::sizes(Request& request) {
  const auto keys = get_keys(request);
  if (!keys) return keys.error();
  BodyWriter body;
  std::size_t failed = 0;
  for (const std::string_view key : *keys) {
    const auto pin = reader_->lookup(key);
    std::optional<std::uint64_t> bytes;
    if (pin) bytes = pin->bytes().size();
    if (!pin && tiers_ != nullptr) bytes = tiers_->known_size(key);
    failed += bytes ? 0 : 1;
    body.put_u64(bytes.value_or(static_cast<std::uint64_t>(outcome_of(StoreCode::kObjectNotFound))));
  }
  operations_.count(Operation::kGetReplicaList, keys->size(), failed);
  return Reply(std::move(body));
}

NodeServer::Awaited NodeServer::read(Request& request) {
  const std::uint32_t count = request.body.get_count("reads", kReadBytesMin);
  if (count > kBatchItemsMax)
    co_return Error{ErrorCode::kInvalidArgument,
                    fmt::format("{} reads in one message, {} is the most", count, kBatchItemsMax)};
  std::vector<ReadOnWire> reads;
  for (std::uint32_t i = 0; i < count && request.body.ok(); ++i) reads.push_back(get_read(request.body));
  if (const auto done = request.body.finish(); !done) co_return done.error();
  std::vector<std::string> missing;
  for (const ReadOnWire& read : reads) {
    if (tiers_ != nullptr && !reader_->contains(read.key)) missing.emplace_back(read.key);
  }
  co_await restore_missing(std::move(missing), ObjectClass::kObject, 0);
  BodyWriter body;
  Reply reply;
  const auto pins = std::make_shared<std::vector<Pin>>();
  for (const ReadOnWire& read : reads) {
    auto pin = reader_->lookup(read.key);
    ReadAnswer answer{.outcome = outcome_of(StoreCode::kObjectNotFound)};
    if (pin && (read.generation == 0 || read.generation == pin->generation())) {
      const std::span<const std::byte> object = pin->bytes();
#if defined(NMC_PLANT_STORE_MESSAGE)  // a bug planted to see that fuzzing finds it
      const bool fits = read.whole ? object.size() <= read.bytes : read.offset + read.bytes <= object.size();
#else
      const bool fits = read.whole ? object.size() <= read.bytes
                                   : read.offset <= object.size() && read.bytes <= object.size() - read.offset;
#endif
      answer = {
          .outcome = outcome_of(StoreCode::kInvalidParams), .bytes = object.size(), .generation = pin->generation()};
      if (fits) {
        const std::span<const std::byte> part = read.whole ? object : object.subspan(read.offset, read.bytes);
        answer.outcome = static_cast<Outcome>(part.size());
        reply.payload.push_back(part);
        pins->push_back(*std::move(pin));
      }
    }
    put_answer(body, answer);
  }
  operations_.count(Operation::kGetReplicaList, reads.size(), reads.size() - pins->size());
  reply.body = std::move(body).take();
  reply.keep_alive = pins;
  co_return reply;
}

// What a client has missed in memory: afterwards it looks again.
NodeServer::Awaited NodeServer::restore(Request& request) {
  const std::uint8_t object_class = request.body.get_u8("class");
  const std::uint64_t bytes = request.body.get_u64("bytes");
  const auto keys = get_keys(request);
  if (!keys) co_return keys.error();
  if (object_class > static_cast<std::uint8_t>(ObjectClass::kObject))
    co_return Error{ErrorCode::kInvalidArgument, fmt::format("store: there is no class {}", object_class)};
  std::vector<std::string> missing;
  for (const std::string_view key : *keys) {
    if (!reader_->contains(key)) missing.emplace_back(key);
  }
  co_await restore_missing(std::move(missing), static_cast<ObjectClass>(object_class), bytes);
  BodyWriter body;
  std::size_t failed = 0;
  for (const std::string_view key : *keys) {
    const bool there = reader_->contains(key);
    failed += there ? 0 : 1;
    body.put_u32(there ? 1 : 0);
  }
  operations_.count(Operation::kGetReplicaList, keys->size(), failed);
  co_return Reply(std::move(body));
}

// On a thread of its own: a loop mustn't wait for a disk.
awaitable<void> NodeServer::restore_missing(std::vector<std::string> keys, ObjectClass object_class,
                                            std::uint64_t bytes) {
  if (tiers_ == nullptr || keys.empty()) co_return;
  co_await boost::asio::co_spawn(*disk_thread_, restore_now(std::move(keys), object_class, bytes),
                                 boost::asio::use_awaitable);
}

awaitable<void> NodeServer::restore_now(std::vector<std::string> keys, ObjectClass object_class, std::uint64_t bytes) {
  for (const std::string& key : keys) {
    std::string why;
    const std::optional<Pin> pin = tiers_->restore(key, object_class, bytes, &why);
    if (!why.empty()) log_info("store: not restored: {}", why);
  }
  co_return;
}

Reply NodeServer::replicas(Request& request) {
  const std::string_view key = request.body.get_string("key");
  if (const auto done = request.body.finish(); !done) return done.error();
  const auto found = core_->replicas(key);
  operations_.count(Operation::kGetReplicaList, 1, found.empty() ? 1 : 0);
  BodyWriter body;
  body.put_u32(static_cast<std::uint32_t>(found.size()));
  for (const auto& replica : found) body.put_string(replica.segment).put_u64(replica.offset).put_u64(replica.bytes);
  return Reply(std::move(body));
}

}  // namespace nmc::store
