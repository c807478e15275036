#include "store/disk_format.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "store/store.h"

namespace nmc::store::disk {
namespace {

static_assert(std::endian::native == std::endian::little, "structs below are the bytes on disk");

constexpr std::uint64_t magic(const char (&text)[9]) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(text[i]);
  return value;
}
constexpr std::uint64_t kFileMagic = magic("NMCDLOG\n");
constexpr std::uint64_t kRecordMagic = magic("\x89NMCREC\n");
constexpr std::uint64_t kTrailerMagic = magic("NMCTAIL\n");

struct FileHeaderBytes {
  std::uint64_t magic_number;
  std::uint16_t version;
  std::uint16_t zero16;
  std::uint32_t number;
  std::uint64_t salt;
  std::uint64_t zeros[4];
  std::uint64_t checksum;
};
static_assert(sizeof(FileHeaderBytes) == kPieceBytes);

struct MarkBytes {
  std::uint64_t sequence;
  std::uint64_t end;
  std::uint64_t salt;
  std::uint64_t checksum;  // of the 24 bytes before it
};
static_assert(sizeof(MarkBytes) == kMarkBytes);

struct RecordHeaderBytes {
  std::uint64_t magic_number;
  std::uint16_t version;
  std::uint16_t type;
  std::uint32_t entries;
  std::uint64_t sequence;
  std::uint64_t salt;
  std::uint64_t payload_bytes;
  std::uint32_t table_bytes;
  std::uint32_t zero32;
  std::uint64_t table_checksum;
  std::uint64_t checksum;
};
static_assert(sizeof(RecordHeaderBytes) == kPieceBytes);

struct TrailerBytes {
  std::uint64_t magic_number;
  std::uint16_t version;
  std::uint16_t zero16;
  std::uint32_t zero32;
  std::uint64_t salt;
  std::uint64_t footer_offset;
  std::uint64_t footer_bytes;
  std::uint64_t zeros[2];
  std::uint64_t checksum;
};
static_assert(sizeof(TrailerBytes) == kPieceBytes);

struct EntryHeadBytes {
  std::uint32_t key_bytes;
  std::uint32_t kind;
  std::uint64_t sequence;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t checksum;
};
static_assert(sizeof(EntryHeadBytes) == kEntryHeadBytes);

template <typename Struct>
std::uint64_t checksum_of(const Struct& value) {
  return checksum64(std::as_bytes(std::span(&value, 1)).first(sizeof(Struct) - sizeof value.checksum));
}

template <typename Struct>
std::array<std::byte, sizeof(Struct)> finish(Struct value) {
  value.checksum = checksum_of(value);
  return std::bit_cast<std::array<std::byte, sizeof(Struct)>>(value);
}

template <typename Struct>
Struct load(std::span<const std::byte> bytes) {
  Struct value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// What every checked piece shares: its magic, its checksum, the folder's salt, and then its version.
template <typename Struct>
Result<Struct> parse_piece(std::span<const std::byte, kPieceBytes> bytes, std::uint64_t expected_magic,
                           std::uint64_t salt, const char* what) {
  const auto value = load<Struct>(bytes);
  if (value.magic_number != expected_magic) {
    return corrupt("{} starts with {:#018x}, expected {:#018x}", what, value.magic_number, expected_magic);
  }
  if (const std::uint64_t sum = checksum_of(value); value.checksum != sum) {
    return corrupt("{} has checksum {:#018x}, its bytes give {:#018x}", what, value.checksum, sum);
  }
  if (value.version != kFormatVersion) {
    return version_mismatch("{} is of version {}, expected {}", what, value.version, kFormatVersion);
  }
  if (value.salt != salt) return corrupt("{} belongs to another log folder", what);
  return value;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

Failure reserved(const char* what) { return corrupt("{} has reserved bytes that aren't zero", what); }

// Takes the entry at the front of `table` off it.
Result<Entry> take_entry(std::span<const std::byte>& table) {
  if (table.size() < kEntryHeadBytes) return corrupt("record table ends inside an entry");
  const auto head = load<EntryHeadBytes>(table);
  if (head.key_bytes == 0 || head.key_bytes > kKeyBytesMax) {
    return corrupt("record table has a key of {} bytes, expected 1 to {}", head.key_bytes, kKeyBytesMax);
  }
  const std::size_t size = entry_bytes(head.key_bytes);
#if !defined(NMC_PLANT_DISK_RECORD)  // left out on purpose in a build that shows what fuzzing finds
  if (size > table.size()) return corrupt("record table ends inside a key of {} bytes", head.key_bytes);
#endif
  const auto* key = reinterpret_cast<const char*>(table.data() + kEntryHeadBytes);
  if (!all_zero({table.data() + kEntryHeadBytes + head.key_bytes, size - kEntryHeadBytes - head.key_bytes})) {
    return corrupt("record table has padding that isn't zero");
  }
  table = table.subspan(size);
  return Entry{{key, head.key_bytes}, EntryKind(head.kind), head.sequence, head.offset, head.bytes, head.checksum};
}

Result<void> check_kind(const Entry& entry) {
  switch (entry.kind) {
    case EntryKind::kObject: return {};
    case EntryKind::kTombstone:
      if (entry.offset != 0 || entry.bytes != 0 || entry.checksum != 0) return corrupt("a tombstone has a payload");
      return {};
  }
  return corrupt("record table has an entry of kind {}, expected 1 or 2", static_cast<std::uint32_t>(entry.kind));
}

Result<void> check_footer_entry(const Entry& entry, std::uint64_t data_end) {
  if (entry.sequence > kSequenceMax) return corrupt("footer has sequence number {}", entry.sequence);
  if (entry.kind == EntryKind::kTombstone) return {};
  if (entry.offset < kFileHeadBytes || entry.offset > data_end || entry.bytes > data_end - entry.offset) {
    return corrupt("footer names a payload of {} bytes at {}, expected it between {} and {}", entry.bytes, entry.offset,
                   kFileHeadBytes, data_end);
  }
  return {};
}

// `next`: where the payload of an object must start; moved past it.
Result<void> check_record_entry(const RecordHeader& header, const Entry& entry, std::uint64_t& next) {
  const EntryKind kind = header.type == RecordType::kObjects ? EntryKind::kObject : EntryKind::kTombstone;
  if (entry.kind != kind) return corrupt("record table has an entry of the wrong kind");
  if (entry.sequence != header.sequence) {
    return corrupt("record table says sequence number {}, its header {}", entry.sequence, header.sequence);
  }
  if (kind == EntryKind::kTombstone) return {};
  const std::uint64_t end = header.content_bytes();
  if (entry.offset != next || entry.bytes > end - next) {
    return corrupt("record has a payload of {} bytes at {}, expected it at {} and to end by {}", entry.bytes,
                   entry.offset, next, end);
  }
  next += entry.bytes;
  return {};
}

}  // namespace

std::size_t entry_bytes(std::size_t key_bytes) { return (kEntryHeadBytes + key_bytes + 7) / 8 * 8; }

Piece encode_file_header(std::uint32_t number, std::uint64_t salt) {
  FileHeaderBytes value{};
  value.magic_number = kFileMagic;
  value.version = kFormatVersion;
  value.number = number;
  value.salt = salt;
  return finish(value);
}

MarkSlot encode_mark(const Mark& mark, std::uint64_t salt) {
  return finish(MarkBytes{mark.sequence, mark.end, salt, 0});
}

Piece encode_record_header(const RecordHeader& header, std::uint64_t salt) {
  RecordHeaderBytes value{};
  value.magic_number = kRecordMagic;
  value.version = kFormatVersion;
  value.type = static_cast<std::uint16_t>(header.type);
  value.entries = header.entries;
  value.sequence = header.sequence;
  value.salt = salt;
  value.payload_bytes = header.payload_bytes;
  value.table_bytes = header.table_bytes;
  value.table_checksum = header.table_checksum;
  return finish(value);
}

Piece encode_trailer(const Trailer& trailer, std::uint64_t salt) {
  TrailerBytes value{};
  value.magic_number = kTrailerMagic;
  value.version = kFormatVersion;
  value.salt = salt;
  value.footer_offset = trailer.footer_offset;
  value.footer_bytes = trailer.footer_bytes;
  return finish(value);
}

void append_entry(std::vector<std::byte>& table, const Entry& entry) {
  NMC_REQUIRE(!entry.key.empty() && entry.key.size() <= kKeyBytesMax, "key of {} bytes", entry.key.size());
  const EntryHeadBytes head{static_cast<std::uint32_t>(entry.key.size()),
                            static_cast<std::uint32_t>(entry.kind),
                            entry.sequence,
                            entry.offset,
                            entry.bytes,
                            entry.checksum};
  const std::size_t at = table.size();
  table.resize(at + entry_bytes(entry.key.size()));
  std::memcpy(table.data() + at, &head, sizeof head);
  std::memcpy(table.data() + at + sizeof head, entry.key.data(), entry.key.size());
}

Result<void> parse_file_header(std::span<const std::byte, kPieceBytes> bytes, std::uint32_t number,
                               std::uint64_t salt) {
  NMC_ASSIGN_OR_RETURN(const auto value, parse_piece<FileHeaderBytes>(bytes, kFileMagic, salt, "file header"));
  if (value.zero16 != 0 || !all_zero(std::as_bytes(std::span(value.zeros)))) return reserved("file header");
  if (value.number != number) return corrupt("file header says file {}, its name {}", value.number, number);
  return {};
}

Result<Mark> parse_mark(std::span<const std::byte, kMarkBytes> bytes, std::uint64_t salt) {
  const auto value = load<MarkBytes>(bytes);
  if (value.checksum != checksum_of(value)) return corrupt("flush mark has a wrong checksum");
  if (value.salt != salt) return corrupt("flush mark belongs to another log folder");
  if (value.end < kFileHeadBytes || value.end % kAlignment != 0 || value.sequence > kSequenceMax) {
    return corrupt("flush mark says sequence number {} at {}", value.sequence, value.end);
  }
  return Mark{value.sequence, value.end};
}

Result<Trailer> parse_trailer(std::span<const std::byte, kPieceBytes> bytes, std::uint64_t salt) {
  NMC_ASSIGN_OR_RETURN(const auto value, parse_piece<TrailerBytes>(bytes, kTrailerMagic, salt, "trailer"));
  if (value.zero16 != 0 || value.zero32 != 0 || !all_zero(std::as_bytes(std::span(value.zeros))))
    return reserved("trailer");
  return Trailer{value.footer_offset, value.footer_bytes};
}

bool has_record_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof kRecordMagic && load<std::uint64_t>(bytes) == kRecordMagic;
}

Result<RecordHeader> parse_record_header(std::span<const std::byte, kPieceBytes> bytes, std::uint64_t salt,
                                         std::uint64_t room) {
  NMC_ASSIGN_OR_RETURN(const auto value, parse_piece<RecordHeaderBytes>(bytes, kRecordMagic, salt, "record header"));
  RecordHeader header{RecordType(value.type), value.entries,       value.table_bytes,
                      value.sequence,         value.payload_bytes, value.table_checksum};
  if (value.zero32 != 0) return reserved("record header");
  if (value.type < 1 || value.type > 3) return corrupt("record is of type {}, expected 1 to 3", value.type);
  if (header.sequence > kSequenceMax) return corrupt("record has sequence number {}", header.sequence);
  if (header.type != RecordType::kObjects && header.payload_bytes != 0) {
    return corrupt("record of type {} has {} payload bytes, expected none", value.type, header.payload_bytes);
  }
  if (header.entries > header.table_bytes / kEntryHeadBytes) {
    return corrupt("record has {} entries in a table of {} bytes", header.entries, header.table_bytes);
  }
  // In this order nothing overflows: the parts first, then their sum.
  if (header.payload_bytes > room || header.record_bytes() > room) {
    return corrupt("record of {} table and {} payload bytes runs past the {} bytes there are", header.table_bytes,
                   header.payload_bytes, room);
  }
  return header;
}

Result<std::vector<Entry>> parse_table(const RecordHeader& header, std::span<const std::byte> table,
                                       std::uint64_t data_end) {
  NMC_REQUIRE(table.size() == header.table_bytes, "table={} header={}", table.size(), header.table_bytes);
  if (const std::uint64_t sum = checksum64(table); sum != header.table_checksum) {
    return corrupt("record table has checksum {:#018x}, its bytes give {:#018x}", header.table_checksum, sum);
  }
  std::vector<Entry> entries;
  entries.reserve(header.entries);
  std::uint64_t next = header.payload_offset();
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    NMC_ASSIGN_OR_RETURN(const Entry entry, take_entry(table));
    NMC_RETURN_IF_ERROR(check_kind(entry));
    if (header.type == RecordType::kFooter) {
      NMC_RETURN_IF_ERROR(check_footer_entry(entry, data_end));
    } else {
      NMC_RETURN_IF_ERROR(check_record_entry(header, entry, next));
    }
    entries.push_back(entry);
  }
  if (!table.empty()) return corrupt("record table has {} bytes after its last entry", table.size());
  if (next != header.content_bytes()) {
    return corrupt("record has {} payload bytes that no entry names", header.content_bytes() - next);
  }
  return entries;
}

Result<void> check_payload(const Entry& entry, std::uint64_t checksum) {
  if (entry.checksum == checksum) return {};
  return corrupt("payload of {} bytes has checksum {:#018x}, its bytes give {:#018x}", entry.bytes, entry.checksum,
                 checksum);
}

Result<void> check_padding(std::span<const std::byte> padding) {
  if (!all_zero(padding)) return corrupt("record has padding that isn't zero");
  return {};
}

Result<Record> parse_record(std::span<const std::byte> file, std::uint64_t offset, std::uint64_t salt) {
  if (offset > file.size() || file.size() - offset < kPieceBytes) return corrupt("record header is cut off");
  const auto bytes = file.subspan(offset);
  Record record;
  NMC_ASSIGN_OR_RETURN(record.header, parse_record_header(bytes.first<kPieceBytes>(), salt, bytes.size()));
  const RecordHeader& header = record.header;
  NMC_ASSIGN_OR_RETURN(record.entries, parse_table(header, bytes.subspan(kPieceBytes, header.table_bytes), offset));
  if (header.type == RecordType::kObjects) {
    for (const Entry& entry : record.entries) {
      NMC_RETURN_IF_ERROR(check_payload(entry, checksum64(bytes.subspan(entry.offset, entry.bytes))));
    }
  }
  const std::uint64_t content = header.content_bytes();
  NMC_RETURN_IF_ERROR(check_padding(bytes.subspan(content, header.record_bytes() - content)));
  return record;
}

}  // namespace nmc::store::disk
