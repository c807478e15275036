#include "store/disk_log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/hash.h"

namespace nmc::store::disk {
namespace {

iovec to_iovec(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // pwritev only reads
}

// Writes all of `parts` back to back from `offset`.
Result<void> write_parts(int fd, std::uint64_t offset, std::vector<iovec> parts, const Path& path) {
  std::span<iovec> rest(parts);
  while (!rest.empty()) {
    if (rest.front().iov_len == 0) {
      rest = rest.subspan(1);
      continue;
    }
    const int count = static_cast<int>(std::min<std::size_t>(rest.size(), IOV_MAX));
    const ssize_t size = retry_on_eintr([&] { return ::pwritev(fd, rest.data(), count, static_cast<off_t>(offset)); });
    if (size < 0) return Failure(os_error("write", path.string()));
    if (size == 0) return failure(ErrorCode::kIo, "write {}: nothing was taken", path.string());
    offset += static_cast<std::uint64_t>(size);
    std::size_t left = static_cast<std::size_t>(size);
    while (left > 0) {
      iovec& part = rest.front();
      const std::size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
      if (part.iov_len == 0) rest = rest.subspan(1);
    }
  }
  return {};
}

std::uint64_t footer_record_bytes(std::size_t table_bytes) {
  RecordHeader header;
  header.table_bytes = static_cast<std::uint32_t>(table_bytes);
  return header.record_bytes();
}

std::vector<std::byte> head_and_table(const RecordHeader& header, std::uint64_t salt,
                                      std::span<const std::byte> table) {
  const Piece piece = encode_record_header(header, salt);
  std::vector<std::byte> bytes(piece.size() + table.size());
  std::copy(piece.begin(), piece.end(), bytes.begin());
  std::copy(table.begin(), table.end(), bytes.begin() + kPieceBytes);
  return bytes;
}

}  // namespace

LogFile::LogFile(Path path, UniqueFd fd, std::uint32_t number, std::uint64_t salt, std::uint64_t size)
    : path_(std::move(path)), fd_(std::move(fd)), number_(number), salt_(salt), size_(size) {}

Result<std::unique_ptr<LogFile>> LogFile::create(const Path& path, std::uint32_t number, std::uint64_t salt) {
  UniqueFd fd(
      retry_on_eintr([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644); }));
  if (!fd) return Failure(os_error("create", path.string()));
  std::unique_ptr<LogFile> file(new LogFile(path, std::move(fd), number, salt, 0));
  auto ready = file->reopen(FileContents());
  if (!ready) {
    (void)file->remove();
    return Failure(std::move(ready).error());
  }
  return file;
}

Result<std::unique_ptr<LogFile>> LogFile::open(const Path& path, std::uint32_t number, std::uint64_t salt) {
  UniqueFd fd(retry_on_eintr([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }));
  if (!fd) return Failure(os_error("open", path.string()));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Failure(os_error("stat", path.string()));
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: expected a regular file", path.string());
  return std::unique_ptr<LogFile>(
      new LogFile(path, std::move(fd), number, salt, static_cast<std::uint64_t>(info.st_size)));
}

Result<void> LogFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t size =
        retry_on_eintr([&] { return ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset)); });
    if (size < 0) return Failure(os_error("read", path_.string()));
    if (size == 0) return corrupt("{} ends at {}, expected {} bytes more", path_.string(), offset, out.size());
    out = out.subspan(static_cast<std::size_t>(size));
    offset += static_cast<std::uint64_t>(size);
  }
  return {};
}

std::uint64_t LogFile::sealed_bytes() const {
  return data_end_ + footer_record_bytes(footer_table_.size()) + kPieceBytes;
}

std::uint64_t LogFile::added_bytes(std::span<const DiskItem> items) {
  std::uint64_t table = 0, payload = 0;
  for (const DiskItem& item : items) {
    table += entry_bytes(item.key.size());
    payload += item.payload.size();
  }
  // Record with its padding, and the footer's lines with what they may add to its padding.
  return kPieceBytes + table + payload + kAlignment + table + kAlignment;
}

Result<std::vector<Entry>> LogFile::append(std::uint64_t sequence, std::span<const DiskItem> items, SyncData sync) {
  std::vector<Entry> entries;
  std::size_t table_bytes = 0;
  for (const DiskItem& item : items) table_bytes += entry_bytes(item.key.size());
  std::uint64_t offset = kPieceBytes + table_bytes;
  std::vector<std::byte> table;
  table.reserve(table_bytes);
  for (const DiskItem& item : items) {
    entries.push_back({item.key, EntryKind::kObject, sequence, offset, item.payload.size(), checksum64(item.payload)});
    append_entry(table, entries.back());
    entries.back().offset += data_end_;
    offset += item.payload.size();
  }
  RecordHeader header{.type = RecordType::kObjects, .sequence = sequence};
  header.payload_bytes = offset - kPieceBytes - table_bytes;
  return append_record(header, std::move(table), std::move(entries), items, sync);
}

Result<std::vector<Entry>> LogFile::append_tombstones(std::uint64_t sequence, std::span<const std::string_view> keys,
                                                      SyncData sync) {
  std::vector<Entry> entries;
  std::vector<std::byte> table;
  for (const std::string_view key : keys) {
    entries.push_back({key, EntryKind::kTombstone, sequence, 0, 0, 0});
    append_entry(table, entries.back());
  }
  const RecordHeader header{.type = RecordType::kTombstones, .sequence = sequence};
  return append_record(header, std::move(table), std::move(entries), {}, sync);
}

Result<std::vector<Entry>> LogFile::append_record(RecordHeader header, std::vector<std::byte> table,
                                                  std::vector<Entry> entries, std::span<const DiskItem> items,
                                                  SyncData sync) {
  NMC_REQUIRE(appendable_, "{} is sealed", name());
  header.entries = static_cast<std::uint32_t>(entries.size());
  header.table_bytes = static_cast<std::uint32_t>(table.size());
  header.table_checksum = checksum64(table);
  const std::uint64_t old_end = data_end_, old_sequence = last_sequence_;

  unsynced_ = true;
  Result<void> done = write_record(head_and_table(header, salt_, table), items,
                                   static_cast<std::size_t>(header.record_bytes() - header.content_bytes()));
  if (done && sync == SyncData::kYes) done = this->sync();
  if (done) {
    data_end_ = old_end + header.record_bytes();
    done = publish_mark(header.sequence);
  }
  if (!done) {
    data_end_ = old_end;
    last_sequence_ = old_sequence;
    // Should this fail too, what is left lies above the flush mark and the next append writes over it.
    (void)truncate(old_end);
    return Failure(std::move(done).error());
  }
  for (const Entry& entry : entries) append_entry(footer_table_, entry);
  footer_entries_ += header.entries;
  return entries;
}

// In two steps, so that a test can stop the process, or the disk, in the middle of a record.
Result<void> LogFile::write_record(std::span<const std::byte> head, std::span<const DiskItem> items,
                                   std::size_t padding) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  NMC_RETURN_IF_ERROR(truncate(data_end_));  // a no-op unless an append failed and couldn't clean up
  std::uint64_t bytes = head.size() + padding;
  std::vector<iovec> parts;
  for (const DiskItem& item : items) {
    parts.push_back(to_iovec(item.payload));
    bytes += item.payload.size();
  }
  parts.push_back(to_iovec(std::span(kZeros).first(padding)));
  size_.store(data_end_ + bytes, std::memory_order_relaxed);  // at most; a failed write may leave any part of it
  NMC_RETURN_IF_ERROR(write_parts(fd_.get(), data_end_, {to_iovec(head)}, path_));
  if (auto hit = failpoint("disklog.append.partial")) return Failure(*std::move(hit));
  return write_parts(fd_.get(), data_end_ + head.size(), std::move(parts), path_);
}

Result<void> LogFile::seal() {
  NMC_REQUIRE(appendable_, "{} is sealed", name());
  appendable_ = false;
  if (auto hit = failpoint("disklog.seal")) return Failure(*std::move(hit));
  RecordHeader header{.type = RecordType::kFooter, .entries = footer_entries_, .sequence = last_sequence_};
  header.table_bytes = static_cast<std::uint32_t>(footer_table_.size());
  header.table_checksum = checksum64(footer_table_);
  std::vector<std::byte> bytes = head_and_table(header, salt_, footer_table_);
  bytes.resize(header.record_bytes() + kPieceBytes);
  const Piece trailer = encode_trailer({data_end_, header.record_bytes()}, salt_);
  std::copy(trailer.begin(), trailer.end(), bytes.end() - kPieceBytes);
  auto written = write(data_end_, bytes);
  if (!written) (void)truncate(data_end_);
  footer_table_ = {};
  return written;
}

Result<void> LogFile::reopen(const FileContents& contents) {
  data_end_ = contents.data_end;
  last_sequence_ = contents.last_sequence;
  footer_table_.clear();
  footer_entries_ = 0;
  for (const FileEntry& entry : contents.entries) append_entry(footer_table_, entry.view());
  footer_entries_ = static_cast<std::uint32_t>(contents.entries.size());
  // Head first: a process that dies before the cut leaves a sealed file, or a tail above its mark.
  NMC_RETURN_IF_ERROR(write_head());
  NMC_RETURN_IF_ERROR(truncate(data_end_));
  appendable_ = true;
  return {};
}

Result<void> LogFile::sync() {
  if (!unsynced_) return {};
  if (::fdatasync(fd_.get()) != 0) return Failure(os_error("fdatasync", path_.string()));
  unsynced_ = false;
  return {};
}

Result<void> LogFile::rename(const Path& to) {
  if (::rename(path_.c_str(), to.c_str()) != 0) return Failure(os_error("rename to", to.string()));
  path_ = to;
  return {};
}

Result<void> LogFile::remove() {
  if (::unlink(path_.c_str()) != 0) return Failure(os_error("remove", path_.string()));
  return {};
}

Result<void> LogFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  unsynced_ = true;
  size_.store(std::max(size(), offset + bytes.size()), std::memory_order_relaxed);
  return write_parts(fd_.get(), offset, {to_iovec(bytes)}, path_);
}

Result<void> LogFile::truncate(std::uint64_t new_size) {
  if (size() == new_size) return {};
  unsynced_ = true;
  if (::ftruncate(fd_.get(), static_cast<off_t>(new_size)) != 0) return Failure(os_error("truncate", path_.string()));
  size_.store(new_size, std::memory_order_relaxed);
  return {};
}

Result<void> LogFile::write_head() {
  const Piece header = encode_file_header(number_, salt_);
  const MarkSlot mark = encode_mark({last_sequence_, data_end_}, salt_);
  std::array<std::byte, kFileHeadBytes> bytes;
  std::copy(header.begin(), header.end(), bytes.begin());
  std::copy(mark.begin(), mark.end(), bytes.begin() + kPieceBytes);
  std::copy(mark.begin(), mark.end(), bytes.begin() + kPieceBytes + kMarkBytes);
  return write(0, bytes);
}

// Slots take turns, so that losing one in the middle of a write (power, not process death) leaves the other.
Result<void> LogFile::publish_mark(std::uint64_t sequence) {
  const MarkSlot slot = encode_mark({sequence, data_end_}, salt_);
  NMC_RETURN_IF_ERROR(write(kPieceBytes + next_mark_slot_ * kMarkBytes, slot));
  next_mark_slot_ ^= 1;
  last_sequence_ = sequence;
  return {};
}

}  // namespace nmc::store::disk
