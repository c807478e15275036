#include "model/safetensors_file.h"

#include <cstring>
#include <utility>

namespace nmc::model {
namespace {

bool is_misaligned(const TensorInfo& tensor, std::uint64_t data_offset) {
  return tensor.dtype && (data_offset + tensor.begin) % dtype_bytes(*tensor.dtype) != 0;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const Path& path) {
  SafetensorsFile file;
  file.path_ = path;
  NMC_ASSIGN_OR_RETURN(file.mapping_, map_file(path));
  NMC_ASSIGN_OR_RETURN(file.header_, parse_safetensors(std::as_const(file.mapping_).bytes(), path.string()));
  NMC_RETURN_IF_ERROR(file.align_tensors());
  return file;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  const auto copy = aligned_at_.find(tensor.begin);
  if (copy != aligned_at_.end() && tensor.bytes() > 0) {
    return aligned_.bytes().subspan(copy->second, tensor.bytes());
  }
  return mapping_.bytes().subspan(header_.data_offset + tensor.begin, tensor.bytes());
}

// The reference writer pads its headers to 8 bytes, but nothing obliges a file to. Copies go widest type first, so each
// is aligned without padding and together they take what they take in the file.
Result<void> SafetensorsFile::align_tensors() {
  std::size_t size = 0;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    for (const TensorInfo& tensor : header_.tensors) {
      if (tensor.dtype != dtype || tensor.bytes() == 0 || !is_misaligned(tensor, header_.data_offset)) continue;
      aligned_at_.emplace(tensor.begin, size);
      size += tensor.bytes();
    }
  }
  if (size == 0) return {};
  NMC_ASSIGN_OR_RETURN(Mapping aligned, Mapping::anonymous(size));
  for (const TensorInfo& tensor : header_.tensors) {
    const auto copy = aligned_at_.find(tensor.begin);
    if (copy == aligned_at_.end() || tensor.bytes() == 0) continue;
    const auto from = mapping_.bytes().subspan(header_.data_offset + tensor.begin, tensor.bytes());
    std::memcpy(aligned.data() + copy->second, from.data(), from.size());
  }
  aligned_ = std::move(aligned);
  return {};
}

}  // namespace nmc::model
