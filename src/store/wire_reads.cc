#include "store/wire_reads.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "base/log.h"
#include "store/protocol.h"

namespace nmc::store {
namespace {

using net::BodyReader;
using net::BodyWriter;
using net::Channel;

constexpr std::size_t kLanesMax = 4;
constexpr std::uint64_t kLaneBytes = 1 << 20;  // at least so many are worth a lane
// Larger objects come in parts.
constexpr std::uint64_t kWholeBytes = 2 << 20;
// What an object counts for in a batch as long as nobody knows its size.
constexpr std::uint64_t kUnknownBytes = 64 << 10;
constexpr std::size_t kReadsInMessage = 4096;
constexpr std::size_t kKeyBytesInMessage = 1 << 20;
constexpr int kTries = 3;  // of reading an object in parts, before it comes as a whole

Outcome code_of(StoreCode code) { return outcome_of(code); }
Outcome code_of(const Error& error) { return outcome_of(store_code_for(error)); }

// The part of what `spans` hold from `offset` on, `bytes` long, onto the end of `to`.
Result<void> append_part(std::vector<std::span<std::byte>>& to, Spans spans, std::uint64_t offset,
                         std::uint64_t bytes) {
  for (const std::span<std::byte> span : spans) {
    if (bytes == 0) return {};
    if (offset >= span.size()) {
      offset -= span.size();
      continue;
    }
    const std::uint64_t take = std::min<std::uint64_t>(span.size() - offset, bytes);
    to.push_back(span.subspan(offset, take));
    bytes -= take;
    offset = 0;
  }
  if (bytes > 0) return invalid_argument("store: {} bytes more than there is room for", bytes);
  return {};
}

// One reading of a batch.
class Reading {
 public:
  Reading(MasterLink& link, std::span<const WireRead> reads, const PlaceRead& place, std::span<Outcome> outcomes)
      : link_(link), reads_(reads), place_(place), outcomes_(outcomes), large_(reads.size()) {}

  void run() {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      if (const auto wrong = wrong_key(reads_[i].key))
        outcomes_[i] = code_of(*wrong);
      else
        left.push_back(i);
    }
    for (int tries = 0; !left.empty(); ++tries) {
      ask(left, tries < kTries ? kWholeBytes : UINT64_MAX);
      std::erase_if(left, [this](std::size_t i) { return !large_[i].generation; });
      fetch_parts(left);
      std::erase_if(left, [this](std::size_t i) { return !large_[i].changed; });
    }
  }

 private:
  // Of an object that is to come in parts.
  struct Large {
    std::uint64_t generation = 0;  // 0: none
    std::uint64_t bytes = 0;
    Spans to;
    bool changed = false;  // it was another one when a part was asked for
  };
  struct Part {
    std::size_t read;
    std::uint64_t offset, bytes;
  };

  // ---- whole objects, and parts as the caller wants them ----

  void ask(std::span<const std::size_t> which, std::uint64_t whole_max) {
    std::vector<std::uint64_t> expected;
    std::uint64_t total = 0;
    for (const std::size_t i : which) {
      const WireRead& read = reads_[i];
      expected.push_back(!read.whole                ? read.bytes
                         : read.bytes == UINT64_MAX ? kUnknownBytes
                                                    : std::min(read.bytes, whole_max));
      total += expected.back();
    }
    std::vector<std::vector<std::size_t>> lanes = deal_to_lanes(expected, lanes_for(total));
    for (std::vector<std::size_t>& lane : lanes) {
      for (std::size_t& k : lane) k = which[k];
    }
    in_lanes(lanes.size(), [&](std::size_t lane) { ask_in_messages(lanes[lane], whole_max); });
  }

  void ask_in_messages(std::span<const std::size_t> which, std::uint64_t whole_max) {
    while (!which.empty()) {
      std::size_t count = 0, key_bytes = 0;
      for (; count < std::min(which.size(), kReadsInMessage) && key_bytes < kKeyBytesInMessage; ++count)
        key_bytes += reads_[which[count]].key.size();
      ask_message(which.first(count), whole_max);
      which = which.subspan(count);
    }
  }

  void ask_message(std::span<const std::size_t> which, std::uint64_t whole_max) {
    BodyWriter body;
    body.put_u32(static_cast<std::uint32_t>(which.size()));
    for (const std::size_t i : which) {
      const WireRead& read = reads_[i];
      put_read(body, {.key = read.key,
                      .whole = read.whole,
                      .offset = read.offset,
                      .bytes = read.whole ? std::min(read.bytes, whole_max) : read.bytes});
    }
    std::vector<ReadAnswer> answers(which.size());
    std::vector<std::span<std::byte>> to;
    const auto place_all = [&]() -> Result<void> {
      to.clear();
      for (std::size_t k = 0; k < which.size(); ++k) {
        if (answers[k].outcome <= 0) continue;
        const auto bytes = static_cast<std::uint64_t>(answers[k].outcome);
        NMC_ASSIGN_OR_RETURN(const Spans spans, place_(which[k], bytes));
        NMC_RETURN_IF_ERROR(append_part(to, spans, 0, bytes));
      }
      return {};
    };
    const auto check = [&](std::size_t k, const ReadAnswer& answer) -> Result<void> {
      const WireRead& read = reads_[which[k]];
      const auto came = static_cast<std::uint64_t>(answer.outcome);
      const bool fits =
          read.whole ? came <= std::min(read.bytes, whole_max) && came == answer.bytes : came == read.bytes;
      if (answer.outcome < 0 || fits) return {};
      return corrupt("store: {} bytes came of an object of {}, {} were asked for", came, answer.bytes, read.bytes);
    };
    const Result<void> done = read_message(body, answers, check, place_all, to);
    for (std::size_t k = 0; k < which.size(); ++k) {
      const std::size_t i = which[k];
      outcomes_[i] = done ? answers[k].outcome : code_of(done.error());
      large_[i] = {};
      const bool in_parts = done && reads_[i].whole && answers[k].outcome == code_of(StoreCode::kInvalidParams) &&
                            answers[k].bytes > whole_max && answers[k].bytes <= reads_[i].bytes;
      if (in_parts) large_[i] = {.generation = answers[k].generation, .bytes = answers[k].bytes, .to = {}};
    }
  }

  // ---- large objects ----

  void fetch_parts(std::span<const std::size_t> which) {
    std::uint64_t total = 0;
    std::vector<std::size_t> placed;
    for (const std::size_t i : which) {
      Large& large = large_[i];
      const auto spans = place_(i, large.bytes);
      outcomes_[i] = spans ? static_cast<Outcome>(large.bytes) : code_of(spans.error());
      if (!spans) {
        log_warning("store: {}", spans.error().message);
        continue;
      }
      large.to = *spans;
      total += large.bytes;
      placed.push_back(i);
    }
    if (placed.empty()) return;
    const std::vector<std::vector<Part>> lanes = cut(placed, total, lanes_for(total));
    // Each lane writes what it found of its own parts; an object may be in several.
    std::vector<std::vector<Outcome>> found(lanes.size());
    in_lanes(lanes.size(), [&](std::size_t lane) { found[lane] = parts_message(lanes[lane]); });
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t k = 0; k < lanes[lane].size(); ++k) {
        const Part& part = lanes[lane][k];
        if (found[lane][k] >= 0) continue;
        if (found[lane][k] == code_of(StoreCode::kObjectNotFound))
          large_[part.read].changed = true;
        else
          outcomes_[part.read] = found[lane][k];
      }
    }
    for (const std::size_t i : placed) {  // gone with its connection: there is nothing to try anew
      if (outcomes_[i] < 0) large_[i].changed = false;
    }
  }

  // The bytes of all, one object after another, dealt to the lanes.
  std::vector<std::vector<Part>> cut(std::span<const std::size_t> which, std::uint64_t total, std::size_t lanes) {
    constexpr std::uint64_t kAlignment = 64 << 10;
    const std::uint64_t share = (total / lanes / kAlignment + 1) * kAlignment;
    std::vector<std::vector<Part>> parts(1);
    std::uint64_t room = share;
    for (const std::size_t i : which) {
      for (std::uint64_t offset = 0; offset < large_[i].bytes;) {
        if (room == 0) {
          parts.emplace_back();
          room = share;
        }
        const std::uint64_t bytes = std::min(large_[i].bytes - offset, room);
        parts.back().push_back({.read = i, .offset = offset, .bytes = bytes});
        offset += bytes;
        room -= bytes;
      }
    }
    return parts;
  }

  std::vector<Outcome> parts_message(std::span<const Part> parts) {
    BodyWriter body;
    body.put_u32(static_cast<std::uint32_t>(parts.size()));
    for (const Part& part : parts) {
      put_read(body, {.key = reads_[part.read].key,
                      .whole = false,
                      .offset = part.offset,
                      .bytes = part.bytes,
                      .generation = large_[part.read].generation});
    }
    std::vector<ReadAnswer> answers(parts.size());
    std::vector<std::span<std::byte>> to;
    const auto place_all = [&]() -> Result<void> {
      to.clear();
      for (std::size_t k = 0; k < parts.size(); ++k) {
        if (answers[k].outcome > 0)
          NMC_RETURN_IF_ERROR(append_part(to, large_[parts[k].read].to, parts[k].offset, parts[k].bytes));
      }
      return {};
    };
    const auto check = [&](std::size_t k, const ReadAnswer& answer) -> Result<void> {
      if (answer.outcome < 0 || static_cast<std::uint64_t>(answer.outcome) == parts[k].bytes) return {};
      return corrupt("store: {} bytes came, {} were asked for", answer.outcome, parts[k].bytes);
    };
    const Result<void> done = read_message(body, answers, check, place_all, to);
    std::vector<Outcome> found;
    for (const ReadAnswer& answer : answers) found.push_back(done ? answer.outcome : code_of(done.error()));
    return found;
  }

  // ---- messages ----

  // `answers` are those of the reply, each passed by `check` before `place_all` puts into `to` where the bytes go.
  template <typename Check, typename PlaceAll>
  Result<void> read_message(const BodyWriter& body, std::span<ReadAnswer> answers, const Check& check,
                            const PlaceAll& place_all, const std::vector<std::span<std::byte>>& to) {
    const auto take = [&](net::ByteSpan reply, std::uint64_t payload_bytes) -> Result<void> {
      BodyReader reader(reply);
      std::uint64_t total = 0;
      for (std::size_t k = 0; k < answers.size(); ++k) {
        answers[k] = get_answer(reader);
        if (answers[k].bytes > net::FrameLimits{}.payload_bytes_max)
          return corrupt("store: an object of {} bytes, which no message can carry", answers[k].bytes);
        NMC_RETURN_IF_ERROR(check(k, answers[k]));
        if (answers[k].outcome > 0) total += static_cast<std::uint64_t>(answers[k].outcome);
      }
      NMC_RETURN_IF_ERROR(reader.finish());
      if (total != payload_bytes) return corrupt("store: {} bytes came, {} were announced", payload_bytes, total);
      return {};
    };
    const Result<void> done = link_.call(
        Op::kRead, body.bytes(), [&](const Channel::Reply& reply) { return take(reply.body, reply.payload_bytes); }, {},
        [&](net::ByteSpan reply, std::uint64_t bytes) -> Result<std::span<const net::MutableByteSpan>> {
          NMC_RETURN_IF_ERROR(take(reply, bytes));
          NMC_RETURN_IF_ERROR(place_all());
          return std::span<const net::MutableByteSpan>(to);
        });
    if (!done && (done.error().code == ErrorCode::kCorrupt || done.error().code == ErrorCode::kResourceExhausted))
      log_warning("store: reading over TCP failed: {}", done.error().message);
    return done;
  }

  MasterLink& link_;
  const std::span<const WireRead> reads_;
  const PlaceRead& place_;
  const std::span<Outcome> outcomes_;
  std::vector<Large> large_;  // of each read
};

}  // namespace

void read_over_wire(MasterLink& link, std::span<const WireRead> reads, const PlaceRead& place,
                    std::span<Outcome> outcomes) {
  Reading(link, reads, place, outcomes).run();
}

std::size_t lanes_for(std::uint64_t bytes) {
  static const std::size_t most = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kLanesMax);
  return std::clamp<std::size_t>(bytes / kLaneBytes, 1, most);
}

std::vector<std::vector<std::size_t>> deal_to_lanes(std::span<const std::uint64_t> bytes, std::size_t lanes) {
  std::vector<std::vector<std::size_t>> dealt(std::min(lanes, bytes.size()));
  std::vector<std::uint64_t> load(dealt.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto lightest = std::min_element(load.begin(), load.end());
    *lightest += bytes[i] + 1;  // those without bytes are spread, too
    dealt[static_cast<std::size_t>(lightest - load.begin())].push_back(i);
  }
  return dealt;
}

void in_lanes(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> threads;
  std::size_t started = 1;
  for (; started < count; ++started) {
    try {
      threads.emplace_back([&work, started] { work(started); });
    } catch (const std::system_error&) {  // no more threads: the rest one after another
      break;
    }
  }
  if (count > 0) work(0);
  for (std::size_t i = started; i < count; ++i) work(i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace nmc::store
