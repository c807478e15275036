#include "store/disk_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/hash.h"

namespace nmc::store::disk {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSalt = 0x0807060504030201;

std::vector<std::byte> bytes_from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// The example of docs/formats.md, "Disk log".
const std::vector<std::byte> kExample = bytes_from_hex(
    "894e4d435245430a0100010001000000"
    "05000000000000000102030405060708"
    "03000000000000003000000000000000"
    "4df98c8d7243497fe3dc74c04736036c"
    "06000000010000000500000000000000"
    "70000000000000000300000000000000"
    "f94aa679c29daff86e6d632f37660000"
    "4b562100000000000000000000000000");

// A record of `header` and `table` whose checksums hold, whatever else is wrong with it.
std::vector<std::byte> record_of(RecordHeader header, std::span<const std::byte> table, std::string_view payload = "") {
  header.table_bytes = static_cast<std::uint32_t>(table.size());
  header.table_checksum = checksum64(table);
  const Piece piece = encode_record_header(header, kSalt);
  std::vector<std::byte> record(header.record_bytes());
  std::copy(piece.begin(), piece.end(), record.begin());
  std::copy(table.begin(), table.end(), record.begin() + kPieceBytes);
  const auto bytes = as_bytes(payload);
  std::copy(bytes.begin(), bytes.end(), record.begin() + static_cast<std::ptrdiff_t>(header.payload_offset()));
  return record;
}

std::string error_of(const std::vector<std::byte>& file) {
  const auto record = parse_record(file, 0, kSalt);
  return record ? "parsed" : record.error().message;
}

TEST(DiskFormat, WritesAndReadsTheDocumentedExample) {
  const auto record = parse_record(kExample, 0, kSalt);
  ASSERT_TRUE(record) << record.error().message;
  ASSERT_EQ(record->entries.size(), 1u);
  const Entry& entry = record->entries[0];
  EXPECT_EQ(entry.key, "nmc/7f");
  EXPECT_EQ(entry.sequence, 5u);
  EXPECT_EQ(entry.offset, 0x70u);
  EXPECT_EQ(entry.checksum, checksum64("KV!"));

  std::vector<std::byte> table;
  append_entry(table, entry);
  EXPECT_EQ(record_of({.entries = 1, .sequence = 5, .payload_bytes = 3}, table, "KV!"), kExample);
}

TEST(DiskFormat, EveryFlippedBitOfARecordIsFound) {
  for (std::size_t bit = 0; bit < kExample.size() * 8; ++bit) {
    std::vector<std::byte> damaged = kExample;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(parse_record(damaged, 0, kSalt)) << "bit " << bit;
  }
}

TEST(DiskFormat, ACutRecordIsRefused) {
  for (std::size_t size = 0; size < kExample.size(); ++size) {
    EXPECT_FALSE(parse_record(std::span(kExample).first(size), 0, kSalt)) << size;
  }
  EXPECT_FALSE(parse_record(kExample, kExample.size() + 1, kSalt));
}

TEST(DiskFormat, ARecordOfAnotherFolderIsRefused) {
  EXPECT_THAT(parse_record(kExample, 0, kSalt + 1).error().message, HasSubstr("belongs to another log folder"));
}

// Checksums hold; what they protect contradicts itself.
TEST(DiskFormat, LiesThatPassTheirChecksumsAreRefused) {
  const Entry object{"k", EntryKind::kObject, 5, kPieceBytes + entry_bytes(1), 2, checksum64("ab")};
  const auto with = [&](RecordHeader header, std::vector<Entry> entries) {
    std::vector<std::byte> table;
    for (const Entry& entry : entries) append_entry(table, entry);
    return error_of(record_of(header, table, "ab"));
  };
  const RecordHeader good{.entries = 1, .sequence = 5, .payload_bytes = 2};
  ASSERT_EQ(with(good, {object}), "parsed");

  RecordHeader header = good;
  header.entries = 2;
  EXPECT_THAT(with(header, {object}), HasSubstr("2 entries in a table of 48 bytes"));
  header = good;
  header.entries = 0;
  EXPECT_THAT(with(header, {object}), HasSubstr("48 bytes after its last entry"));
  header = good;
  header.sequence = kSequenceMax + 1;
  EXPECT_THAT(with(header, {object}), HasSubstr("sequence number"));
  header = good;
  header.type = RecordType::kTombstones;
  EXPECT_THAT(with(header, {object}), HasSubstr("2 payload bytes, expected none"));
  header = good;
  header.type = static_cast<RecordType>(4);
  EXPECT_THAT(with(header, {object}), HasSubstr("type 4, expected 1 to 3"));

  Entry entry = object;
  entry.offset -= 1;
  EXPECT_THAT(with(good, {entry}), HasSubstr("expected it at 112"));
  entry = object;
  entry.bytes = ~0ull;
  EXPECT_THAT(with(good, {entry}), HasSubstr("expected it at 112 and to end by 114"));
  entry = object;
  entry.bytes = 1;
  EXPECT_THAT(with(good, {entry}), HasSubstr("1 payload bytes that no entry names"));
  entry = object;
  entry.sequence = 6;
  EXPECT_THAT(with(good, {entry}), HasSubstr("says sequence number 6, its header 5"));
  entry = object;
  entry.kind = static_cast<EntryKind>(3);
  EXPECT_THAT(with(good, {entry}), HasSubstr("kind 3"));
  entry.kind = EntryKind::kTombstone;
  EXPECT_THAT(with(good, {entry}), HasSubstr("a tombstone has a payload"));

  RecordHeader footer{.type = RecordType::kFooter, .entries = 1, .sequence = 5};
  EXPECT_THAT(with(footer, {object}), HasSubstr("footer names a payload of 2 bytes at 112"));
}

TEST(DiskFormat, HugeSizesDontOverflow) {
  for (const std::uint64_t payload_bytes : {~0ull, ~0ull - 63, ~0ull - 4096, 1ull << 63}) {
    RecordHeader header{.entries = 0, .table_bytes = 0, .sequence = 1, .payload_bytes = payload_bytes};
    const Piece piece = encode_record_header(header, kSalt);
    EXPECT_FALSE(parse_record_header(piece, kSalt, 1 << 20)) << payload_bytes;
  }
  RecordHeader header{.entries = 0, .table_bytes = ~0u, .sequence = 1};
  EXPECT_FALSE(parse_record_header(encode_record_header(header, kSalt), kSalt, 1 << 20));
}

TEST(DiskFormat, MarksAndTrailersComeBackAndDamageIsFound) {
  const MarkSlot slot = encode_mark({7, 4096}, kSalt);
  EXPECT_EQ(parse_mark(slot, kSalt)->sequence, 7u);
  EXPECT_EQ(parse_mark(slot, kSalt)->end, 4096u);
  EXPECT_FALSE(parse_mark(slot, kSalt + 1));
  EXPECT_FALSE(parse_mark(encode_mark({7, 4097}, kSalt), kSalt)) << "not aligned";
  EXPECT_FALSE(parse_mark(encode_mark({7, 64}, kSalt), kSalt)) << "inside the head";
  const Piece trailer = encode_trailer({1024, 256}, kSalt);
  EXPECT_EQ(parse_trailer(trailer, kSalt)->footer_offset, 1024u);
  EXPECT_EQ(parse_trailer(trailer, kSalt)->footer_bytes, 256u);
  for (std::size_t at = 0; at < kPieceBytes; ++at) {
    Piece damaged = trailer;
    damaged[at] ^= std::byte{1};
    EXPECT_FALSE(parse_trailer(damaged, kSalt)) << at;
  }
}

}  // namespace
}  // namespace nmc::store::disk
