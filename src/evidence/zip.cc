#include "evidence/zip.h"

#include <boost/crc.hpp>
#include <cstring>
#include <optional>

#include "base/hash.h"

namespace nmc::evidence {
namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50, kCentralSignature = 0x02014b50, kEndSignature = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::uint16_t kVersion = 20, kMadeByUnix = 0x0314, kUtf8Names = 0x0800, kStored = 0;
constexpr std::uint16_t kTime = 0, kDate = 0x0021;             // 1 January 1980, the first there is
constexpr std::uint32_t kMode = std::uint32_t{0100644} << 16;  // a file that all may read
constexpr std::uint32_t kModeType = 0170000, kModeLink = 0120000;
constexpr std::uint64_t kBombFactor = 50;  // what packs better than that wasn't evidence
constexpr std::uint64_t kBombBytes = 1 << 20;

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

// What local header and central directory have in common, from the version needed on.
void put_common(std::string& out, std::uint32_t crc, std::size_t size, std::size_t name) {
  put(out, kVersion, 2);
  put(out, kUtf8Names, 2);
  put(out, kStored, 2);
  put(out, kTime, 2);
  put(out, kDate, 2);
  put(out, crc, 4);
  put(out, size, 4);
  put(out, size, 4);
  put(out, name, 2);
  put(out, 0, 2);  // no extra field
}

std::string local_header(std::string_view name, std::uint32_t crc, std::size_t size) {
  std::string out;
  put(out, kLocalSignature, 4);
  put_common(out, crc, size, name.size());
  return out.append(name);
}

std::string central_header(std::string_view name, std::uint32_t crc, std::size_t size, std::size_t offset) {
  std::string out;
  put(out, kCentralSignature, 4);
  put(out, kMadeByUnix, 2);
  put_common(out, crc, size, name.size());
  put(out, 0, 2);  // no comment
  put(out, 0, 2);  // of the first part
  put(out, 0, 2);  // internal attributes
  put(out, kMode, 4);
  put(out, offset, 4);
  return out.append(name);
}

// Little-endian numbers of a piece that is there.
struct Fields {
  std::span<const std::byte> bytes;

  std::uint32_t at(std::size_t offset, int size) const {
    std::uint32_t value = 0;
    for (int i = 0; i < size; ++i) value |= static_cast<std::uint32_t>(bytes[offset + i]) << (8 * i);
    return value;
  }
  std::string text(std::size_t offset, std::size_t size) const {
    return {reinterpret_cast<const char*>(bytes.data()) + offset, size};
  }
};

// An entry as the central directory has it.
struct Central {
  std::uint32_t made_by, flags, method, crc, packed, size, name_bytes, extra_bytes, comment_bytes, attributes, offset;
  std::string name;
};

class ZipReader {
 public:
  explicit ZipReader(std::span<const std::byte> archive) : all_{archive} {}

  ZipContent read() {
    const std::optional<std::size_t> end = find_end();
    if (!end) return std::move(content_);
    const std::size_t count = all_.at(*end + 10, 2), size = all_.at(*end + 12, 4), begin = all_.at(*end + 16, 4);
    if (all_.at(*end + 4, 2) != 0 || all_.at(*end + 6, 2) != 0 || all_.at(*end + 8, 2) != count)
      fault("malformed", "", "the archive is in several parts");
    else if (begin > *end || size != *end - begin)
      fault("malformed", "", "the central directory isn't where the end says");
    else if (count > kZipEntriesMax)
      fault("malformed", "", fmt::format("{} entries, expected at most {}", count, kZipEntriesMax));
    else
      read_entries(begin, *end, count);
    return std::move(content_);
  }

 private:
  void fault(const char* kind, std::string path, std::string detail) {
    content_.faults.push_back({kind, std::move(path), std::move(detail)});
  }

  // The end record has to be the last thing there is.
  std::optional<std::size_t> find_end() {
    const std::size_t size = all_.bytes.size();
    if (size >= 4 && all_.at(0, 4) != kLocalSignature) {
      fault("malformed", "", "it doesn't begin as a ZIP archive does");
      return std::nullopt;
    }
    if (size >= kEndBytes && all_.at(size - kEndBytes, 4) == kEndSignature && all_.at(size - 2, 2) == 0)
      return size - kEndBytes;
    for (std::size_t at = size >= kEndBytes ? size - kEndBytes : 0; at-- > 0;) {
      if (size - at > kEndBytes + 0xffff) break;  // beyond the longest comment
      if (all_.at(at, 4) != kEndSignature) continue;
      fault("malformed", "", fmt::format("{} bytes after the end of the archive", size - at - kEndBytes));
      return std::nullopt;
    }
    fault("truncated", "", "the archive has no end");
    return std::nullopt;
  }

  void read_entries(std::size_t begin, std::size_t end, std::size_t count) {
    std::size_t at = begin, data = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (end - at < kCentralBytes || all_.at(at, 4) != kCentralSignature)
        return fault("malformed", "", fmt::format("entry {} of the central directory isn't one", i));
      Central entry = central_at(at);
      const std::size_t bytes = kCentralBytes + entry.name_bytes + entry.extra_bytes + entry.comment_bytes;
      if (end - at < bytes)
        return fault("malformed", "", fmt::format("entry {} of the central directory is cut off", i));
      if (entry.name_bytes > kZipNameBytesMax)
        return fault("malformed", "", fmt::format("entry {} has a name of {} bytes", i, entry.name_bytes));
      entry.name = all_.text(at + kCentralBytes, entry.name_bytes);
      if (!content_.entries.empty() && entry.name < content_.entries.back().name)
        fault("malformed", entry.name, "it comes after an entry of a later name");
      const std::size_t header = at;
      at += bytes;
      if (!read_entry(entry, header, begin, data)) return;
    }
    content_.complete = true;
    if (at != end) fault("malformed", "", "bytes between the central directory and its end");
    if (data != begin) fault("malformed", "", "bytes between the entries and the central directory");
  }

  Central central_at(std::size_t at) const {
    return {.made_by = all_.at(at + 4, 2),
            .flags = all_.at(at + 8, 2),
            .method = all_.at(at + 10, 2),
            .crc = all_.at(at + 16, 4),
            .packed = all_.at(at + 20, 4),
            .size = all_.at(at + 24, 4),
            .name_bytes = all_.at(at + 28, 2),
            .extra_bytes = all_.at(at + 30, 2),
            .comment_bytes = all_.at(at + 32, 2),
            .attributes = all_.at(at + 38, 4),
            .offset = all_.at(at + 42, 4),
            .name = ""};
  }

  // False where it can't be told where the next one begins.
  bool read_entry(const Central& entry, std::size_t header, std::size_t begin, std::size_t& data) {
    if (entry.offset != data) {
      fault("malformed", entry.name, "it overlaps another entry, or there are bytes of nobody before it");
      return false;
    }
    const std::uint64_t length = kLocalBytes + entry.name_bytes + std::uint64_t{entry.packed};
    if (length > begin - data) {
      fault("truncated", entry.name, "it reaches beyond the entries' part of the archive");
      return false;
    }
    const std::size_t local = data;
    data += length;
    if (std::optional<ContainerFault> refused = why_refused(entry, header, local)) {
      content_.faults.push_back(std::move(*refused));
      // A name that is refused is there nevertheless, for whoever looks for what is missing or there twice.
      content_.entries.push_back({entry.name, {}});
    } else {
      content_.entries.push_back({entry.name, all_.bytes.subspan(content_at(entry, local), entry.size)});
    }
    return true;
  }

  static std::size_t content_at(const Central& entry, std::size_t local) {
    return local + kLocalBytes + entry.name_bytes;
  }

  std::optional<ContainerFault> why_refused(const Central& entry, std::size_t header, std::size_t local) const {
    const auto refuse = [&](const char* kind, std::string detail) {
      return ContainerFault{kind, entry.name, std::move(detail)};
    };
    const std::uint32_t mode = entry.made_by >> 8 == 3 ? entry.attributes >> 16 : 0;
    if ((mode & kModeType) == kModeLink) return refuse("link", "a link, expected a file");
    if (entry.size > kZipFileBytesMax)
      return refuse("bomb",
                    fmt::format("{} bytes in {}, expected at most {}", entry.size, entry.packed, kZipFileBytesMax));
    if (entry.method != kStored && entry.size > kBombBytes && entry.size / kBombFactor > entry.packed)
      return refuse("bomb", fmt::format("{} bytes that unpack to {}", entry.packed, entry.size));
    if (entry.method != kStored || entry.packed != entry.size || entry.flags != kUtf8Names || entry.extra_bytes != 0 ||
        entry.comment_bytes != 0 || entry.name.ends_with('/'))
      return refuse("malformed", "expected a stored file without encryption, extra field or comment");
    if (!agrees(entry, local)) return refuse("inconsistent", "its local header and the central directory disagree");
    if (!holds(header, central_header(entry.name, entry.crc, entry.size, entry.offset)) ||
        !holds(local, local_header(entry.name, entry.crc, entry.size)))
      return refuse("malformed", "its time, mode or version isn't the one that an export writes");
    if (crc_of(all_.bytes.subspan(content_at(entry, local), entry.size)) != entry.crc)
      return refuse("modified", "its content doesn't have the checksum that the archive says");
    return std::nullopt;
  }

  bool holds(std::size_t at, const std::string& expected) const { return all_.text(at, expected.size()) == expected; }

  bool agrees(const Central& entry, std::size_t at) const {
    return all_.at(at, 4) == kLocalSignature && all_.at(at + 6, 2) == entry.flags &&
           all_.at(at + 8, 2) == entry.method && all_.at(at + 14, 4) == entry.crc &&
           all_.at(at + 18, 4) == entry.packed && all_.at(at + 22, 4) == entry.size &&
           all_.at(at + 26, 2) == entry.name_bytes && all_.at(at + 28, 2) == 0 &&
           all_.text(at + kLocalBytes, entry.name_bytes) == entry.name;
  }

  const Fields all_;
  ZipContent content_;
};

}  // namespace

Result<std::string> write_zip(const std::map<std::string, std::string>& files) {
  if (files.size() > kZipEntriesMax)
    return invalid_argument("{} files, expected at most {} in an archive", files.size(), kZipEntriesMax);
  std::string out, central;
  for (const auto& [name, content] : files) {
    if (name.size() > kZipNameBytesMax)
      return invalid_argument("a name of {} bytes, expected at most {}", name.size(), kZipNameBytesMax);
    if (content.size() > kZipFileBytesMax)
      return invalid_argument("{}: {} bytes, expected at most {}", name, content.size(), kZipFileBytesMax);
    const std::uint32_t crc = crc_of(as_bytes(content));
    central += central_header(name, crc, content.size(), out.size());
    out += local_header(name, crc, content.size());
    out += content;
    if (out.size() + central.size() + kEndBytes > kZipBytesMax)
      return invalid_argument("more than {} bytes, which an archive may have at most", kZipBytesMax);
  }
  const std::size_t begin = out.size();
  out += central;
  put(out, kEndSignature, 4);
  put(out, 0, 2);
  put(out, 0, 2);
  put(out, files.size(), 2);
  put(out, files.size(), 2);
  put(out, central.size(), 4);
  put(out, begin, 4);
  put(out, 0, 2);
  return out;
}

ZipContent read_zip(std::span<const std::byte> archive) { return ZipReader(archive).read(); }

}  // namespace nmc::evidence
