// The messages by which objects come and go, one function each, and the way of every message to its function.
#include "store/node_requests.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <regex>

#include "base/failpoint.h"
#include "base/hash.h"
#include "store/node_server.h"

namespace nmc::store {
namespace {

using boost::asio::awaitable;
using net::BodyWriter;
using net::Reply;
using net::Request;
using net::Session;

constexpr std::size_t kHashedBytes = 256 << 10;
// std::regex goes as deep as a pattern nests: some ten thousand brackets are the end of a thread's stack.
constexpr std::size_t kPatternBytesMax = 1024;

// Of a failed reservation of some bytes: more than any segment has is no room, too.
StoreCode no_room_code(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument ? StoreCode::kNoAvailableHandle : store_code_for(error);
}

// What a message counts as; `by_item`: its handler counts what went well and what didn't.
struct Counted {
  Operation operation;
  bool by_item;
};
std::optional<Counted> counted_as(Op op) {
  switch (op) {
    case Op::kMount: return Counted{Operation::kMountSegment, false};
    case Op::kUnmount: return Counted{Operation::kUnmountSegment, false};
    case Op::kReserve: return Counted{Operation::kPutStart, true};
    case Op::kCommit: return Counted{Operation::kPutEnd, true};
    case Op::kAbort: return Counted{Operation::kPutRevoke, true};
    case Op::kPut: return Counted{Operation::kPutStart, true};
    case Op::kExists: return Counted{Operation::kExistKey, true};
    case Op::kSizes:
    case Op::kRead:
    case Op::kRestore:
    case Op::kReplicas: return Counted{Operation::kGetReplicaList, true};
    case Op::kRemove: return Counted{Operation::kRemove, true};
    case Op::kRemoveMatching: return Counted{Operation::kRemoveByRegex, true};
    case Op::kPing: return Counted{Operation::kPing, false};
    default: return std::nullopt;
  }
}

awaitable<Result<void>> drop_payload(Request& request, std::uint64_t bytes) {
  std::vector<std::byte> scratch(std::min<std::uint64_t>(bytes, 64 << 10));
  while (bytes > 0) {
    const std::uint64_t take = std::min<std::uint64_t>(bytes, scratch.size());
    const Result<void> read = co_await request.read_payload(std::span(scratch).first(take));
    if (!read) co_return read;
    bytes -= take;
  }
  co_return Result<void>();
}

// The answer for one object's reservation.
void put_copies(BodyWriter& body, std::span<const MasterCore::Space> spaces) {
  put_code(body, StoreCode::kOk);
  body.put_u8(static_cast<std::uint8_t>(spaces.size()));
  for (const MasterCore::Space& space : spaces)
    put_place(body, {space.entry, space.generation, space.at.segment, space.at.offset});
}

void keep_as(const PutOptions& options, MasterCore::Commit& commit) {
  constexpr std::uint64_t kMost = std::uint64_t{365} * 24 * 3600 * 1000;  // beyond what any master grants
  commit.replace = options.replace;
  commit.soft_pin = options.soft_pin;
  if (options.soft_pin_ms) commit.soft_pin_lifetime = std::chrono::milliseconds(std::min(*options.soft_pin_ms, kMost));
  commit.hard_pin = options.hard_pin;
}

void abort_all(MasterCore& core, const MasterCore::Commit& commit) {
  core.abort(commit.entry, commit.generation, commit.client);
  for (const MasterCore::Held& copy : commit.copies) core.abort(copy.entry, copy.generation, commit.client);
}

}  // namespace

NodeServer::Awaited NodeServer::handle(Session& session, Request& request) {
  if (auto injected = failpoint("store.serve")) co_return *std::move(injected);
  const Op op = static_cast<Op>(request.op);
  // Not a conditional expression: g++ 12 destroys the temporaries of a co_await in one twice.
  Reply reply;
  if (op == Op::kPut)
    reply = co_await put(session, request);
  else if (op == Op::kMount)
    reply = co_await mount(session, request);
  else if (op == Op::kRead)
    reply = co_await read(request);
  else if (op == Op::kRestore)
    reply = co_await restore(request);
  else
    reply = answer(session, request);
  const std::optional<Counted> counted = counted_as(op);
  if (counted && (reply.error || !counted->by_item)) operations_.count(counted->operation, 1, reply.error ? 1 : 0);
  co_return reply;
}

Reply NodeServer::answer(Session& session, Request& request) {
  switch (static_cast<Op>(request.op)) {
    case Op::kWhere: return where();
    case Op::kJoin: return join(session, request);
    case Op::kAttach: return attach(session, request);
    case Op::kReady: return ready(session);
    case Op::kLeave: return leave(session);
    case Op::kSegmentFile: return segment_file(session, request);
    case Op::kUnmount: return unmount(session, request);
    case Op::kReserve: return reserve(session, request);
    case Op::kCommit: return commit(session, request);
    case Op::kAbort: return abort(session, request);
    case Op::kMount:
    case Op::kPut:
    case Op::kRead:
    case Op::kRestore: break;
    case Op::kExists: return exists(request);
    case Op::kSizes: return sizes(request);
    case Op::kRemove: return remove(request);
    case Op::kRemoveMatching: return remove_matching(request);
    case Op::kReplicas: return replicas(request);
    case Op::kPing: return ping();
    case Op::kStats: return stats();
  }
  return Error{ErrorCode::kUnsupported, fmt::format("store: there is no operation {}", request.op)};
}

Reply NodeServer::where() {
  BodyWriter body;
  body.put_u64(core_->index().boot_id()).put_string((options_.folder / kSocketName).string());
  return Reply(std::move(body));
}

Reply NodeServer::ping() {
  BodyWriter body;
  body.put_u64(core_->index().boot_id()).put_u64(core_->index().epoch());
  return Reply(std::move(body));
}

Reply NodeServer::stats() {
  StoreStats stats;
  fill_counters(stats);
  BodyWriter body;
  put_stats(body, stats);
  return Reply(std::move(body));
}

bool NodeServer::grants(const PutOptions& options) const {
  return !options.soft_pin_ms ||
         *options.soft_pin_ms <=
             static_cast<std::uint64_t>(options_.core.soft_pin_lifetime_max / std::chrono::milliseconds(1));
}

// One at least; further ones as wanted, in other segments, as far as there are such and they have room.
Result<std::vector<MasterCore::Space>> NodeServer::reserve_copies(MasterCore::Wish wish, const PutOptions& options) {
  std::vector<MasterCore::Space> spaces;
  std::vector<std::uint16_t> used;
  const std::size_t wanted = std::clamp<std::size_t>(options.replicas, 1, kCopiesMax);
  wish.preferred = options.preferred_segments;
  while (spaces.size() < wanted) {
    wish.avoid = used;
    const auto space = core_->reserve(wish);
    if (!space && spaces.empty()) {
      if (store_code_for(space.error()) == StoreCode::kNoAvailableHandle) operations_.count_no_room();
      return Failure(space.error());
    }
    if (!space) break;
    spaces.push_back(*space);
    used.push_back(space->at.segment);
  }
  operations_.count_value(wish.bytes);
  return spaces;
}

Reply NodeServer::reserve(Session& session, Request& request) {
  MasterCore::Wish wish;
  wish.client = static_cast<State&>(*session.state).client;
  const PutOptions options = get_options(request.body);
  const std::uint8_t object_class = request.body.get_u8("class");
  const Tenure tenure = static_cast<Tenure>(request.body.get_u8("tenure"));
  const std::uint32_t count = request.body.get_count("sizes", 8);
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t i = 0; i < count && request.body.ok(); ++i) sizes.push_back(request.body.get_u64("size"));
  if (const auto done = request.body.finish(); !done) return done.error();
  if (wish.client == 0) return Error{ErrorCode::kInvalidArgument, "store: places are for those who have joined"};
  if (object_class > static_cast<std::uint8_t>(ObjectClass::kObject) || tenure > Tenure::kHeld)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("store: there is no class {}, or no such tenure", object_class)};
  wish.object_class = static_cast<ObjectClass>(object_class);
  wish.by_client = true;
  wish.held_by_pin = tenure == Tenure::kHeld;
  if (wish.held_by_pin && wish.object_class == ObjectClass::kBlock) return reserve_blocks(wish, sizes);
  BodyWriter body;
  std::size_t failed = 0;
  for (const std::uint64_t bytes : sizes) {
    if (!grants(options)) {
      ++failed;
      put_code(body, StoreCode::kInvalidParams);
      continue;
    }
    wish.bytes = bytes;
    const auto spaces = reserve_copies(wish, options);
    if (!spaces) {
      ++failed;
      put_code(body, no_room_code(spaces.error()));
      continue;
    }
    put_copies(body, *spaces);
  }
  operations_.count(Operation::kPutStart, sizes.size(), failed);
  return Reply(std::move(body));
}

// All or none, of one size. What is wrong comes as the message's error: it says how much is pinned and reserved.
Reply NodeServer::reserve_blocks(const MasterCore::Wish& wish, std::span<const std::uint64_t> sizes) {
  for (const std::uint64_t bytes : sizes) {
    if (bytes != sizes[0])
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("store: blocks of {} and {} bytes in one message", sizes[0], bytes)};
  }
  std::vector<MasterCore::Space> spaces;
  if (!sizes.empty()) {
    MasterCore::Wish each = wish;
    each.bytes = sizes[0];
    auto reserved = core_->reserve_all(each, sizes.size());
    if (!reserved) {
      operations_.count_no_room();
      return std::move(reserved).error();
    }
    spaces = *std::move(reserved);
  }
  BodyWriter body;
  for (const MasterCore::Space& space : spaces) put_copies(body, std::span(&space, 1));
  operations_.count(Operation::kPutStart, sizes.size(), 0);
  return Reply(std::move(body));
}

Reply NodeServer::commit(Session& session, Request& request) {
  const std::uint32_t client = static_cast<State&>(*session.state).client;
  const PutOptions options = get_options(request.body);
  const std::uint64_t identity = request.body.get_u64("identity");
  const bool keep = request.body.get_u8("keep") != 0;
  const std::uint32_t count = request.body.get_count("places", 4 + 8 + 1 + 8 + 4);
  std::vector<MasterCore::Commit> commits;
  std::deque<std::vector<MasterCore::Held>> copies;
  for (std::uint32_t i = 0; i < count && request.body.ok(); ++i) {
    MasterCore::Commit commit;
    commit.entry = request.body.get_u32("entry");
    commit.generation = request.body.get_u64("generation");
    std::vector<MasterCore::Held>& further = copies.emplace_back(request.body.get_u8("copies"));
    for (MasterCore::Held& copy : further) {
      copy.entry = request.body.get_u32("entry");
      copy.generation = request.body.get_u64("generation");
    }
    commit.copies = further;
    commit.checksum = request.body.get_u64("checksum");
    commit.key = request.body.get_string("key");
    commit.client = client;
    commit.keep_if_taken = keep;
    keep_as(options, commit);
    commits.push_back(commit);
  }
  if (const auto done = request.body.finish(); !done) return done.error();
  if (const auto done = check_places_are_of(client, identity); !done) return done.error();
  BodyWriter body;
  std::size_t failed = 0;
  for (MasterCore::Commit& commit : commits) {
    commit.stamp = clock_.stamp();
    const auto wrong = wrong_key(commit.key);
    // An object that only lies in the tier below has the key, too. (Held places are blocks: their key names the bytes.)
    if (!wrong && !keep && !commit.replace && tiers_ && tiers_->known_size(commit.key)) {
      abort_all(*core_, commit);
      put_code(body, StoreCode::kOk);
      continue;
    }
    const auto held = wrong ? Result<MasterCore::Held>(invalid_argument("key")) : core_->commit(commit);
    if (!held && !keep) abort_all(*core_, commit);
    failed += held ? 0 : 1;
    put_code(body, wrong ? *wrong : held ? StoreCode::kOk : store_code_for(held.error()));
  }
  operations_.count(Operation::kPutEnd, commits.size(), failed);
  return Reply(std::move(body));
}

// Places that a client was given by another store, before it joined this one, may look like some of its own.
Result<void> NodeServer::check_places_are_of(std::uint32_t client, std::uint64_t identity) {
  const PinTable* table = client == 0 ? nullptr : core_->find_client(client);
  if (table == nullptr) return invalid_argument("store: places are for those who have joined");
  if (table->identity() != identity) return permission_denied("store: the places are of another store");
  return {};
}

Reply NodeServer::abort(Session& session, Request& request) {
  const std::uint32_t client = static_cast<State&>(*session.state).client;
  const std::uint64_t identity = request.body.get_u64("identity");
  const std::uint32_t count = request.body.get_count("places", 4 + 8);
  if (const auto done = check_places_are_of(client, identity); !done) return done.error();
  std::size_t failed = 0;
  for (std::uint32_t i = 0; i < count && request.body.ok(); ++i) {
    const std::uint32_t entry = request.body.get_u32("entry");
    const std::uint64_t generation = request.body.get_u64("generation");
    if (request.body.ok() && !core_->abort(entry, generation, client)) ++failed;
  }
  if (const auto done = request.body.finish(); !done) return done.error();
  operations_.count(Operation::kPutRevoke, count, failed);
  return Reply();
}

NodeServer::Awaited NodeServer::put(Session& session, Request& request) {
  struct Item {
    std::string_view key;
    std::uint64_t bytes;
  };
  const PutOptions options = get_options(request.body);
  const std::uint32_t count = request.body.get_count("items", 4 + 8);
  std::vector<Item> items;
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < count && request.body.ok(); ++i) {
    const std::string_view key = request.body.get_string("key");
    const std::uint64_t bytes = request.body.get_u64("bytes");
    if (bytes > request.payload_bytes - total)
      co_return Error{ErrorCode::kCorrupt, "store: the items' bytes are more than the payload"};
    total += bytes;
    items.push_back({key, bytes});
  }
  if (const auto done = request.body.finish(); !done) co_return done.error();
  BodyWriter body;
  std::size_t failed = 0;
  for (const Item& item : items) {
    const Result<StoreCode> code = co_await put_one(session, request, item.key, item.bytes, options);
    if (!code) co_return code.error();
    failed += *code == StoreCode::kOk ? 0 : 1;
    put_code(body, *code);
  }
  operations_.count(Operation::kPutStart, items.size(), failed);
  operations_.count(Operation::kPutEnd, items.size(), failed);
  co_return Reply(std::move(body));
}

// An error: the connection is gone.
awaitable<Result<StoreCode>> NodeServer::put_one(Session& session, Request& request, std::string_view key,
                                                 std::uint64_t bytes, const PutOptions& options) {
  std::optional<StoreCode> settled = wrong_key(key);
  if (!settled && (bytes == 0 || !grants(options))) settled = StoreCode::kInvalidParams;
  if (!settled && !options.replace && is_kept(key)) settled = StoreCode::kOk;
  std::vector<MasterCore::Space> spaces;
  const std::uint32_t client = static_cast<State&>(*session.state).client;
  if (!settled) {
    auto reserved = reserve_copies({.bytes = bytes, .client = client == 0 ? own_client_ : client}, options);
    if (reserved)
      spaces = *std::move(reserved);
    else
      settled = no_room_code(reserved.error());
  }
  if (settled) {
    if (const Result<void> dropped = co_await drop_payload(request, bytes); !dropped)
      co_return Failure(dropped.error());
    co_return *settled;
  }
  const auto give_back = [&] {
    for (const MasterCore::Space& space : spaces) core_->abort(space.entry, space.generation);
  };
  // Each piece is hashed while the cache still has it.
  Checksum64 checksum;
  for (std::span<std::byte> left = spaces[0].bytes; !left.empty();) {
    const std::span<std::byte> piece = left.first(std::min(left.size(), kHashedBytes));
    if (const Result<void> read = co_await request.read_payload(piece); !read) {
      give_back();
      co_return Failure(read.error());
    }
    checksum.update(piece);
    left = left.subspan(piece.size());
  }
  std::vector<MasterCore::Held> copies;
  for (std::size_t i = 1; i < spaces.size(); ++i) {
    std::memcpy(spaces[i].bytes.data(), spaces[0].bytes.data(), bytes);
    copies.push_back({spaces[i].entry, spaces[i].generation});
  }
  MasterCore::Commit commit;
  commit.entry = spaces[0].entry;
  commit.generation = spaces[0].generation;
  commit.key = key;
  commit.stamp = clock_.stamp();
  commit.checksum = checksum.value();
  keep_as(options, commit);
  commit.copies = copies;
  const auto held = core_->commit(commit);
  if (held) co_return StoreCode::kOk;
  give_back();
  co_return store_code_for(held.error());
}

Reply NodeServer::remove(Request& request) {
  const bool force = request.body.get_u8("force") != 0;
  const auto keys = get_keys(request);
  if (!keys) return keys.error();
  BodyWriter body;
  std::size_t failed = 0;
  for (const std::string_view key : *keys) {
    const auto wrong = wrong_key(key);
    const auto removal = wrong ? MasterCore::Removal::kAbsent : remove_object(key, force);
    failed += removal == MasterCore::Removal::kRemoved ? 0 : 1;
    put_code(body, wrong                                      ? *wrong
                   : removal == MasterCore::Removal::kRemoved ? StoreCode::kOk
                   : removal == MasterCore::Removal::kLeased  ? StoreCode::kObjectHasLease
                                                              : StoreCode::kObjectNotFound);
  }
  operations_.count_each(Operation::kRemove, keys->size(), failed);
  return Reply(std::move(body));
}

Reply NodeServer::remove_matching(Request& request) {
  const bool force = request.body.get_u8("force") != 0;
  const bool all = request.body.get_u8("all") != 0;
  const std::string pattern(request.body.get_string("pattern"));
  if (const auto done = request.body.finish(); !done) return done.error();
  if (pattern.size() > kPatternBytesMax)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("store: a pattern of {} bytes, {} is the most", pattern.size(), kPatternBytesMax)};
  std::regex regex;
  try {
    // Polynomial: no pattern makes it try for ever. That costs back references, which nobody needs here.
    if (!all) regex.assign(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("store: pattern {}: {}", pattern, error.what())};
  }
  const std::uint64_t removed = remove_keys(all ? nullptr : &regex, force);
  operations_.count(all ? Operation::kRemoveAll : Operation::kRemoveByRegex, 1, 0);
  BodyWriter body;
  body.put_u64(removed);
  return Reply(std::move(body));
}

// Below memory, too: it is gone once this returns, also for the next master.
MasterCore::Removal NodeServer::remove_object(std::string_view key, bool force) {
  const MasterCore::Removal removal = core_->remove(key, force);
  if (tiers_ != nullptr && removal != MasterCore::Removal::kLeased) tiers_->wait_removed(key);
  return removal;
}

std::uint64_t NodeServer::remove_keys(const std::regex* pattern, bool force) {
  const auto meant = [&](const std::string& key) {
    return !key.starts_with(kEngineKeyPrefix) && (pattern == nullptr || std::regex_search(key, *pattern));
  };
  std::uint64_t removed = 0;
  std::vector<std::string> keys = core_->keys();  // a list, so that matching holds nobody up
  if (tiers_ != nullptr) {
    std::vector<std::string> below = tiers_->known_keys();
    keys.insert(keys.end(), std::make_move_iterator(below.begin()), std::make_move_iterator(below.end()));
  }
  for (const std::string& key : keys) {
    if (meant(key)) removed += core_->remove(key, force) == MasterCore::Removal::kRemoved ? 1 : 0;
  }
  for (const std::string& key : core_->parked_keys()) {  // those mustn't come back with their owner
    if (meant(key)) core_->remove(key, force);
  }
  for (const std::string& key : keys) {
    if (tiers_ != nullptr && meant(key)) tiers_->wait_removed(key);
  }
  return removed;
}

std::uint64_t NodeServer::remove_all(bool force) {
  operations_.count(Operation::kRemoveAll, 1, 0);
  return remove_keys(nullptr, force);
}

}  // namespace nmc::store
