// What a log file holds, found either from its footer (without reading payloads) or, when it has none or a damaged one,
// by walking its records and checking every byte. Damage is told from a torn tail by the file's own flush mark: bytes
// below it were written completely, so what doesn't parse there is damage; what doesn't parse above it was never
// acknowledged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/disk_format.h"

namespace nmc::store::disk {

// Bytes with random access: a file, or memory in tests and fuzzing.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  // All of `out` or an error. [offset, offset + out.size()) lies within size().
  virtual Result<void> read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

// An entry that owns its key; `offset` counts from the start of the file.
struct FileEntry {
  std::string key;
  EntryKind kind = EntryKind::kObject;
  std::uint64_t sequence = 0;
  std::uint64_t offset = 0, bytes = 0, checksum = 0;

  Entry view() const { return {key, kind, sequence, offset, bytes, checksum}; }
};

// A range of the file that fails its checks, and why.
struct Damage {
  std::uint64_t offset = 0, bytes = 0;
  std::string reason;
};

struct FileContents {
  std::vector<FileEntry> entries;  // in log order. A damaged object whose table is intact is a tombstone here, so that
                                   // no older version of its key comes back.
  std::vector<Damage> damages;
  std::uint64_t data_end = kFileHeadBytes;  // aligned; records lie below it; above it is the footer or a torn tail
  std::uint64_t last_sequence = 0;
  std::uint64_t records = 0;  // read one by one; 0 when the footer served
  bool sealed = false;        // the footer served
};

// kVersionMismatch when the file is intact but of another version, kIo and the like when it can't be read. Everything
// else that is wrong with it is in `damages`.
Result<FileContents> read_contents(const ByteSource& source, std::uint32_t number, std::uint64_t salt);

}  // namespace nmc::store::disk
