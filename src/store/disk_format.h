// Bytes of the disk log: layout, encoders, and parsers that work on memory alone. docs/formats.md, "Disk log", draws
// it.
//
// A file is a 128-byte head (header and two flush-mark slots), then records at multiples of kAlignment, and when it is
// sealed a footer (a record that lists every entry of the file) and a 64-byte trailer at its very end. All integers are
// little-endian. Each 64-byte piece ends with the checksum of its first 56 bytes.
//
// Parsers check every length against the bytes given before they use it and allocate no more than those bytes. The salt
// is a random number of the folder; without it an object whose payload looks like a record could pass for one when a
// scan looks for the next record behind damage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nmc::store::disk {

inline constexpr std::uint16_t kFormatVersion = 1;
inline constexpr std::size_t kAlignment = 64;
inline constexpr std::size_t kPieceBytes = 64;  // file header, record header, trailer
inline constexpr std::size_t kMarkBytes = 32;
inline constexpr std::size_t kFileHeadBytes = kPieceBytes + 2 * kMarkBytes;
inline constexpr std::size_t kEntryHeadBytes = 40;  // an entry without its key
inline constexpr std::uint64_t kSequenceMax = std::uint64_t{1} << 62;

enum class RecordType : std::uint16_t { kObjects = 1, kTombstones = 2, kFooter = 3 };
enum class EntryKind : std::uint32_t { kObject = 1, kTombstone = 2 };

using Piece = std::array<std::byte, kPieceBytes>;
using MarkSlot = std::array<std::byte, kMarkBytes>;

// One line of a table. `offset` counts from the start of the record, in a footer from the start of the file.
struct Entry {
  std::string_view key;
  EntryKind kind = EntryKind::kObject;
  std::uint64_t sequence = 0;
  std::uint64_t offset = 0, bytes = 0, checksum = 0;  // of the payload; all 0 for a tombstone
};

struct RecordHeader {
  RecordType type = RecordType::kObjects;
  std::uint32_t entries = 0;
  std::uint32_t table_bytes = 0;
  std::uint64_t sequence = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t table_checksum = 0;

  std::uint64_t payload_offset() const { return kPieceBytes + std::uint64_t{table_bytes}; }
  std::uint64_t content_bytes() const { return payload_offset() + payload_bytes; }  // without the padding
  std::uint64_t record_bytes() const { return (content_bytes() + kAlignment - 1) / kAlignment * kAlignment; }
};

// Everything in the file below `end` was written completely; `sequence` is that of the last record below it.
struct Mark {
  std::uint64_t sequence = 0;
  std::uint64_t end = kFileHeadBytes;
};

struct Trailer {
  std::uint64_t footer_offset = 0;
  std::uint64_t footer_bytes = 0;  // record_bytes() of the footer
};

// ---- encoding
Piece encode_file_header(std::uint32_t number, std::uint64_t salt);
MarkSlot encode_mark(const Mark& mark, std::uint64_t salt);
Piece encode_record_header(const RecordHeader& header, std::uint64_t salt);
Piece encode_trailer(const Trailer& trailer, std::uint64_t salt);
void append_entry(std::vector<std::byte>& table, const Entry& entry);
std::size_t entry_bytes(std::size_t key_bytes);  // encoded size of an entry

// ---- parsing. kVersionMismatch: intact, but of another version; kCorrupt: anything else that is wrong.
Result<void> parse_file_header(std::span<const std::byte, kPieceBytes> bytes, std::uint32_t number, std::uint64_t salt);
Result<Mark> parse_mark(std::span<const std::byte, kMarkBytes> bytes, std::uint64_t salt);
Result<Trailer> parse_trailer(std::span<const std::byte, kPieceBytes> bytes, std::uint64_t salt);
// True when the piece starts with a record's magic: worth parsing when looking for the next record.
bool has_record_magic(std::span<const std::byte> bytes);
// `room`: bytes from the record's start to the end of what may be read; the whole record must fit.
Result<RecordHeader> parse_record_header(std::span<const std::byte, kPieceBytes> bytes, std::uint64_t salt,
                                         std::uint64_t room);
// Keys view `table`, which is table_bytes long. Checks the table's checksum, that payloads lie back to back and fill
// the record exactly, and that kinds and sequences are the header's. For a footer: that they lie in [kFileHeadBytes,
// data_end).
Result<std::vector<Entry>> parse_table(const RecordHeader& header, std::span<const std::byte> table,
                                       std::uint64_t data_end = 0);
// The checks of one payload and of a record's padding.
Result<void> check_payload(const Entry& entry, std::uint64_t checksum);
Result<void> check_padding(std::span<const std::byte> padding);

struct Record {
  RecordHeader header;
  std::vector<Entry> entries;
};

// All of the above for the record at `offset` of a file image, every byte of it checked.
Result<Record> parse_record(std::span<const std::byte> file, std::uint64_t offset, std::uint64_t salt);

}  // namespace nmc::store::disk
