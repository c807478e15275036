// A safetensors file on disk, mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "base/files.h"
#include "base/result.h"
#include "model/safetensors.h"

namespace nmc::model {

// A mapped file. Immutable, thread-safe. Views last as long as the object, wherever it is moved. A file that is cut by
// somebody else while it is mapped is beyond what a process can guard against.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const Path& path);

  const Path& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  // Bytes of a tensor of header(). Those of a computable type are aligned to its element, also in files that don't
  // align their data: such tensors were copied at open.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

 private:
  SafetensorsFile() = default;
  Result<void> align_tensors();

  Path path_;
  SafetensorsHeader header_;
  Mapping mapping_;
  Mapping aligned_;                                  // copies of misaligned tensors
  std::map<std::uint64_t, std::size_t> aligned_at_;  // TensorInfo::begin -> offset in aligned_
};

}  // namespace nmc::model
