#include "store/disk_log_scan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/hash.h"

namespace nmc::store::disk {
namespace {

constexpr std::size_t kWindowBytes = 256 << 10;  // of payload or of a search for the next record, at a time

FileEntry owned(const Entry& entry, std::uint64_t base) {
  return {std::string(entry.key), entry.kind, entry.sequence, entry.offset + base, entry.bytes, entry.checksum};
}

FileEntry tombstone_for(const FileEntry& entry) { return {entry.key, EntryKind::kTombstone, entry.sequence, 0, 0, 0}; }

Result<std::uint64_t> checksum_range(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> window(std::min<std::uint64_t>(bytes, kWindowBytes));
  Checksum64 sum;
  while (bytes > 0) {
    const auto piece = std::span(window).first(std::min<std::uint64_t>(bytes, window.size()));
    NMC_RETURN_IF_ERROR(source.read(offset, piece));
    sum.update(piece);
    offset += piece.size();
    bytes -= piece.size();
  }
  return sum.value();
}

// Walks the records of one file into a FileContents.
class Scan {
 public:
  Scan(const ByteSource& source, std::uint64_t salt, std::optional<Mark> mark, FileContents& contents)
      : source_(source), salt_(salt), contents_(contents), size_(source.size()) {
    // Without a mark everything might have been acknowledged, so everything that doesn't parse is damage.
    acknowledged_ = mark ? mark->end : size_;
    if (mark) contents_.last_sequence = mark->sequence;
  }

  Result<void> run() {
    std::uint64_t at = kFileHeadBytes;
    while (at < size_) {
      NMC_ASSIGN_OR_RETURN(const Step step, read_record(at));
      if (step.footer) break;  // its index failed, and nothing but the trailer follows it
      if (step.error.empty()) {
        at += step.bytes;
        contents_.data_end = at;
        continue;
      }
      if (at >= acknowledged_) break;  // torn: never acknowledged
      NMC_ASSIGN_OR_RETURN(const std::uint64_t next,
                           step.bytes > 0 ? Result<std::uint64_t>(at + step.bytes) : find_record(at + kAlignment));
      contents_.damages.push_back({at, next - at, step.error});
      at = next;
      contents_.data_end = std::max(contents_.data_end, at);
    }
    contents_.data_end = (contents_.data_end + kAlignment - 1) / kAlignment * kAlignment;  // the file was cut anywhere
    if (size_ < acknowledged_) {
      contents_.damages.push_back(
          {size_, 0, fmt::format("file ends at {}, but {} bytes were flushed", size_, acknowledged_)});
    }
    return {};
  }

 private:
  struct Step {
    std::uint64_t bytes = 0;  // how far the next record is; 0: unknown, since the header is damaged
    std::string error;        // empty: intact, its entries are in contents_
    bool footer = false;
  };

  static Step damaged(Error error, std::uint64_t bytes = 0) { return {bytes, std::move(error.message), false}; }

  Result<Step> read_record(std::uint64_t at) {
    Piece piece;
    if (size_ - at < piece.size()) return Step{0, "record header is cut off", false};
    NMC_RETURN_IF_ERROR(source_.read(at, piece));
    auto header = parse_record_header(piece, salt_, size_ - at);
    if (!header) return damaged(std::move(header).error());
    if (header->type == RecordType::kFooter) return Step{header->record_bytes(), "", true};
    return read_body(at, *header);
  }

  Result<Step> read_body(std::uint64_t at, const RecordHeader& header) {
    std::vector<std::byte> table(header.table_bytes);
    NMC_RETURN_IF_ERROR(source_.read(at + kPieceBytes, table));
    auto entries = parse_table(header, table);
    if (!entries) return damaged(std::move(entries).error(), header.record_bytes());
    std::array<std::byte, kAlignment> padding;
    const auto used = std::span(padding).first(header.record_bytes() - header.content_bytes());
    NMC_RETURN_IF_ERROR(source_.read(at + header.content_bytes(), used));
    auto padded = check_padding(used);

    std::vector<FileEntry> found;
    std::vector<Damage> damages;
    for (const Entry& entry : *entries) {
      found.push_back(owned(entry, entry.kind == EntryKind::kObject ? at : 0));
      NMC_ASSIGN_OR_RETURN(auto damage, check_object(found.back()));
      if (!damage) continue;
      damages.push_back(std::move(*damage));
      found.back() = tombstone_for(found.back());
    }
    if (!padded) {
      const std::uint64_t from = at + header.content_bytes();
      damages.push_back({from, used.size(), std::move(padded).error().message});
    }
    // Above the mark a record counts only as a whole.
    if (!damages.empty() && at >= acknowledged_) return Step{0, std::move(damages.front().reason), false};
    ++contents_.records;
    contents_.last_sequence = std::max(contents_.last_sequence, header.sequence);
    std::move(found.begin(), found.end(), std::back_inserter(contents_.entries));
    std::move(damages.begin(), damages.end(), std::back_inserter(contents_.damages));
    return Step{header.record_bytes(), "", false};
  }

  Result<std::optional<Damage>> check_object(const FileEntry& entry) {
    if (entry.kind != EntryKind::kObject) return std::optional<Damage>();
    NMC_ASSIGN_OR_RETURN(const std::uint64_t sum, checksum_range(source_, entry.offset, entry.bytes));
    auto checked = check_payload(entry.view(), sum);
    if (checked) return std::optional<Damage>();
    return std::optional(Damage{entry.offset, entry.bytes, std::move(checked).error().message});
  }

  // The next place at or after `at` where a record header parses; the end of what was acknowledged if there is none.
  Result<std::uint64_t> find_record(std::uint64_t at) {
    const std::uint64_t end = std::min(size_, std::max(acknowledged_, at));
    std::vector<std::byte> window(kWindowBytes);
    while (at < end && end - at >= kPieceBytes) {
      const auto piece =
          std::span(window).first(std::min<std::uint64_t>(end - at, window.size()) / kAlignment * kAlignment);
      NMC_RETURN_IF_ERROR(source_.read(at, piece));
      for (std::size_t i = 0; i < piece.size(); i += kAlignment) {
        const auto header = piece.subspan(i).first<kPieceBytes>();
        if (has_record_magic(header) && parse_record_header(header, salt_, size_ - at - i)) return at + i;
      }
      at += piece.size();
    }
    return end;
  }

  const ByteSource& source_;
  std::uint64_t salt_;
  FileContents& contents_;
  std::uint64_t size_;
  std::uint64_t acknowledged_ = 0;
};

// The entries of a sealed file. Nothing when it isn't sealed, or its trailer or footer don't hold; a scan decides then.
Result<std::optional<FileContents>> read_footer(const ByteSource& source, std::uint64_t salt) {
  const std::optional<FileContents> nothing;
  const std::uint64_t size = source.size();
  if (size < kFileHeadBytes + 2 * kPieceBytes) return nothing;
  Piece piece;
  NMC_RETURN_IF_ERROR(source.read(size - kPieceBytes, piece));
  const auto trailer = parse_trailer(piece, salt);
  if (!trailer || trailer->footer_offset < kFileHeadBytes || trailer->footer_offset % kAlignment != 0 ||
      trailer->footer_bytes < kPieceBytes || trailer->footer_offset > size - kPieceBytes ||
      trailer->footer_bytes != size - kPieceBytes - trailer->footer_offset) {
    return nothing;
  }
  NMC_RETURN_IF_ERROR(source.read(trailer->footer_offset, piece));
  const auto header = parse_record_header(piece, salt, trailer->footer_bytes);
  if (!header || header->type != RecordType::kFooter) return nothing;
  std::vector<std::byte> table(header->table_bytes);
  NMC_RETURN_IF_ERROR(source.read(trailer->footer_offset + kPieceBytes, table));
  const auto entries = parse_table(*header, table, trailer->footer_offset);
  if (!entries) return nothing;
  FileContents contents;
  contents.sealed = true;
  contents.data_end = trailer->footer_offset;
  contents.last_sequence = header->sequence;
  for (const Entry& entry : *entries) contents.entries.push_back(owned(entry, 0));
  return std::optional(std::move(contents));
}

struct Head {
  std::optional<Mark> mark;  // nothing unless both slots hold: a damaged one may have been the newer
  std::vector<Damage> damages;
};

Result<Head> read_head(std::span<const std::byte, kFileHeadBytes> bytes, std::uint32_t number, std::uint64_t salt) {
  Head head;
  auto header = parse_file_header(bytes.first<kPieceBytes>(), number, salt);
  if (!header) {
    if (header.error().code == ErrorCode::kVersionMismatch) return Failure(std::move(header).error());
    head.damages.push_back({0, kPieceBytes, std::move(header).error().message});
  }
  auto first = parse_mark(bytes.subspan<kPieceBytes, kMarkBytes>(), salt);
  auto second = parse_mark(bytes.subspan<kPieceBytes + kMarkBytes, kMarkBytes>(), salt);
  if (first && second) head.mark = first->end > second->end ? *first : *second;
  if (!first) head.damages.push_back({kPieceBytes, kMarkBytes, std::move(first).error().message});
  if (!second) head.damages.push_back({kPieceBytes + kMarkBytes, kMarkBytes, std::move(second).error().message});
  return head;
}

}  // namespace

Result<FileContents> read_contents(const ByteSource& source, std::uint32_t number, std::uint64_t salt) {
  FileContents contents;
  std::array<std::byte, kFileHeadBytes> bytes{};
  if (source.size() < bytes.size()) {
    // A process that died between creating the file and writing its head leaves an empty one.
    if (source.size() > 0) contents.damages.push_back({0, source.size(), "file ends inside its head"});
    return contents;
  }
  NMC_RETURN_IF_ERROR(source.read(0, bytes));
  NMC_ASSIGN_OR_RETURN(Head head, read_head(bytes, number, salt));
  NMC_ASSIGN_OR_RETURN(auto from_footer, read_footer(source, salt));
  if (from_footer) contents = std::move(*from_footer);
  contents.damages = std::move(head.damages);
  if (!contents.sealed) NMC_RETURN_IF_ERROR(Scan(source, salt, head.mark, contents).run());
  return contents;
}

}  // namespace nmc::store::disk
