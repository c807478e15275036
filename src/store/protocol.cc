#include "store/protocol.h"

#include <iterator>

namespace nmc::store {
namespace {

constexpr std::uint8_t kReplace = 1, kSoftPin = 2, kHardPin = 4, kNoSoftPin = 8, kSoftPinTime = 16;

// All that StoreStats has, in the order in which they travel: new ones are added at the end.
constexpr std::uint64_t StoreStats::*kStatsOnWire[] = {
    &StoreStats::segment_bytes,
    &StoreStats::used_bytes,
    &StoreStats::tail_bytes,
    &StoreStats::limbo_bytes,
    &StoreStats::blocks_reserved,
    &StoreStats::blocks_cached,
    &StoreStats::objects,
    &StoreStats::soft_pinned,
    &StoreStats::reservations,
    &StoreStats::commits,
    &StoreStats::commit_duplicates,
    &StoreStats::aborts,
    &StoreStats::removes,
    &StoreStats::evicted_objects,
    &StoreStats::evicted_bytes,
    &StoreStats::evict_skipped_pinned,
    &StoreStats::evict_attempts,
    &StoreStats::evict_failures,
    &StoreStats::lookups,
    &StoreStats::hits,
    &StoreStats::misses,
    &StoreStats::index_entries,
    &StoreStats::index_entries_used,
    &StoreStats::index_rebuilds,
    &StoreStats::disk_objects,
    &StoreStats::disk_used_bytes,
    &StoreStats::disk_cap_bytes,
    &StoreStats::disk_written_bytes,
    &StoreStats::disk_read_bytes,
    &StoreStats::disk_hits,
    &StoreStats::disk_write_dropped,
    &StoreStats::disk_errors,
    &StoreStats::quarantined_entries,
    &StoreStats::quarantined_bytes,
};

}  // namespace

std::optional<StoreCode> wrong_key(std::string_view key) {
  if (key.empty()) return StoreCode::kInvalidParams;
  if (key.size() > kKeyBytesMax) return StoreCode::kInvalidKey;
  return std::nullopt;
}

void put_stats(net::BodyWriter& writer, const StoreStats& stats) {
  writer.put_u8(stats.disk ? 1 : 0).put_u32(std::size(kStatsOnWire));
  for (const auto member : kStatsOnWire) writer.put_u64(stats.*member);
}

StoreStats get_stats(net::BodyReader& reader) {
  StoreStats stats;
  stats.disk = reader.get_u8("disk") != 0;
  const std::uint32_t count = reader.get_count("stats", 8);
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const std::uint64_t value = reader.get_u64("stat");
    if (i < std::size(kStatsOnWire)) stats.*kStatsOnWire[i] = value;
  }
  return stats;
}

void put_options(net::BodyWriter& writer, const PutOptions& options) {
  const int flags = (options.replace ? kReplace : 0) | (options.soft_pin == SoftPin::kPin ? kSoftPin : 0) |
                    (options.hard_pin ? kHardPin : 0) | (options.soft_pin == SoftPin::kDrop ? kNoSoftPin : 0) |
                    (options.soft_pin_ms ? kSoftPinTime : 0);
  writer.put_u8(static_cast<std::uint8_t>(flags));
  if (options.soft_pin_ms) writer.put_u64(*options.soft_pin_ms);
  writer.put_u32(options.replicas);
  writer.put_u32(static_cast<std::uint32_t>(options.preferred_segments.size()));
  for (const std::string& segment : options.preferred_segments) writer.put_string(segment);
}

PutOptions get_options(net::BodyReader& reader) {
  PutOptions options;
  const std::uint8_t flags = reader.get_u8("flags");
  options.replace = (flags & kReplace) != 0;
  if ((flags & kSoftPin) != 0) options.soft_pin = SoftPin::kPin;
  if ((flags & kNoSoftPin) != 0) options.soft_pin = SoftPin::kDrop;
  options.hard_pin = (flags & kHardPin) != 0;
  if ((flags & kSoftPinTime) != 0) options.soft_pin_ms = reader.get_u64("soft pin's time");
  options.replicas = reader.get_u32("replicas");
  const std::uint32_t preferred = reader.get_count("preferred segments", 4);
  for (std::uint32_t i = 0; i < preferred && reader.ok(); ++i)
    options.preferred_segments.emplace_back(reader.get_string("preferred segment"));
  return options;
}

void put_read(net::BodyWriter& writer, const ReadOnWire& read) {
  writer.put_string(read.key).put_u8(read.whole ? 1 : 0).put_u64(read.offset).put_u64(read.bytes);
  writer.put_u64(read.generation);
}

ReadOnWire get_read(net::BodyReader& reader) {
  ReadOnWire read;
  read.key = reader.get_string("key");
  read.whole = reader.get_u8("whole") != 0;
  read.offset = reader.get_u64("offset");
  read.bytes = reader.get_u64("bytes");
  read.generation = reader.get_u64("generation");
  return read;
}

void put_answer(net::BodyWriter& writer, const ReadAnswer& answer) {
  writer.put_u64(static_cast<std::uint64_t>(answer.outcome)).put_u64(answer.bytes).put_u64(answer.generation);
}

ReadAnswer get_answer(net::BodyReader& reader) {
  ReadAnswer answer;
  answer.outcome = static_cast<Outcome>(reader.get_u64("outcome"));
  answer.bytes = reader.get_u64("object's bytes");
  answer.generation = reader.get_u64("generation");
  return answer;
}

}  // namespace nmc::store
