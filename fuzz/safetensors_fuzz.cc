// A whole safetensors file. Whatever the bytes are, the parser answers with an error or with tensors that tile the
// data.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/json.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto header = nmc::model::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
  if (!header) {
    const std::string& message = header.error().message;
    NMC_ASSERT(message.starts_with("input: ") && nmc::is_valid_utf8(message), "{}", message);
    return 0;
  }
  std::uint64_t bytes = header->data_offset;
  for (const nmc::model::TensorInfo& tensor : header->tensors) {
    NMC_ASSERT(tensor.begin <= tensor.end && tensor.end <= size - header->data_offset);
    NMC_ASSERT(header->find(tensor.name) == &tensor);
    bytes += tensor.bytes();
  }
  NMC_ASSERT(bytes == size, "bytes={} size={}", bytes, size);
  return 0;
}
