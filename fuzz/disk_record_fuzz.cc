// A log file of the disk tier, as a hostile or failing disk might return it: footer, scan, and each record by itself.
// With the first byte odd, salts and checksums are mended first, so that fuzzing gets past them to what they protect.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "store/disk_format.h"
#include "store/disk_log_scan.h"

namespace {

using namespace nmc;
using namespace nmc::store::disk;

constexpr std::uint64_t kSalt = 0x5a17;
constexpr std::uint32_t kNumber = 1;

class Memory final : public ByteSource {
 public:
  explicit Memory(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) std::abort();  // breaks ByteSource's contract
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
};

void put_word(std::span<std::byte> bytes, std::size_t at, std::uint64_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The places of salt and checksums: docs/formats.md, "Disk log".
void mend(std::span<std::byte> file) {
  if (file.size() >= kFileHeadBytes) {
    put_word(file, 16, kSalt);
    put_word(file, 56, checksum64(file.first(56)));
    for (const std::size_t slot : {kPieceBytes, kPieceBytes + kMarkBytes}) {
      put_word(file, slot + 16, kSalt);
      put_word(file, slot + 24, checksum64(file.subspan(slot, 24)));
    }
  }
  for (std::size_t at = kFileHeadBytes; at + kPieceBytes <= file.size(); at += kAlignment) {
    const auto piece = file.subspan(at);
    const bool last = piece.size() == kPieceBytes;
    if (!has_record_magic(piece) && !last) continue;
    std::uint32_t table_bytes;
    std::memcpy(&table_bytes, piece.data() + 40, sizeof table_bytes);
    if (last)
      put_word(piece, 16, kSalt);  // a trailer, perhaps
    else
      put_word(piece, 24, kSalt);
    if (!last && table_bytes <= piece.size() - kPieceBytes) {
      put_word(piece, 48, checksum64(piece.subspan(kPieceBytes, table_bytes)));
    }
    put_word(piece, 56, checksum64(piece.first(56)));
  }
}

void require(bool condition) {
  if (!condition) std::abort();
}

bool starts_with(std::span<const std::byte> bytes, std::span<const std::byte> start) {
  return bytes.size() >= start.size() && std::equal(start.begin(), start.end(), bytes.begin());
}

// What parses is what the encoder writes for it, bit for bit.
void require_round_trip(std::span<const std::byte> bytes, const Record& record) {
  std::vector<std::byte> table;
  for (const Entry& entry : record.entries) append_entry(table, entry);
  require(starts_with(bytes, encode_record_header(record.header, kSalt)));
  require(starts_with(bytes.subspan(kPieceBytes), table));
}

void check_pieces(std::span<const std::byte> file) {
  if (file.size() < kFileHeadBytes) return;
  const auto head = file.first<kPieceBytes>();
  if (parse_file_header(head, kNumber, kSalt)) require(starts_with(head, encode_file_header(kNumber, kSalt)));
  const auto slot = file.subspan<kPieceBytes, kMarkBytes>();
  if (const auto mark = parse_mark(slot, kSalt)) require(starts_with(slot, encode_mark(*mark, kSalt)));
  const auto last = file.last<kPieceBytes>();
  if (const auto trailer = parse_trailer(last, kSalt)) require(starts_with(last, encode_trailer(*trailer, kSalt)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes + 1, bytes + size);
  if (data[0] % 2 == 1) mend(file);

  check_pieces(file);
  for (std::size_t at = 0; at < file.size(); at += kAlignment) {
    const auto record = parse_record(file, at, kSalt);
    if (!record) continue;
    require_round_trip(std::span<const std::byte>(file).subspan(at), *record);
    require(record->entries.size() == record->header.entries);
    const auto* end = reinterpret_cast<const char*>(file.data() + file.size());
    for (const Entry& entry : record->entries) {
      require(!entry.key.empty() && entry.key.data() + entry.key.size() <= end);
    }
  }
  const auto contents = read_contents(Memory(file), kNumber, kSalt);
  if (!contents) return 0;
  require(contents->data_end % kAlignment == 0);
  for (const FileEntry& entry : contents->entries) {
    require(entry.offset <= file.size() && entry.bytes <= file.size() - entry.offset);
  }
  for (const Damage& damage : contents->damages) {
    require(!damage.reason.empty() && damage.offset <= file.size() && damage.bytes <= file.size() - damage.offset);
  }
  return 0;
}
