// A whole GGUF file. Whatever the bytes are, the parser answers with an error or with tensors that lie inside the file
// and can be widened; what comes of the metadata is a shape or an error.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "model/gguf.h"
#include "model/gguf_model.h"

namespace {

void check_refused(const nmc::Error& error) {
  NMC_ASSERT(error.message.starts_with("input: ") && nmc::is_valid_utf8(error.message), "{}", error.message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = nmc::model::parse_gguf(file, "input");
  if (!header) {
    check_refused(header.error());
    return 0;
  }
  std::vector<float> row;
  for (const nmc::model::GgufTensor& tensor : header->tensors) {
    NMC_ASSERT(header->find(tensor.name) == &tensor);
    const nmc::model::GgufType* type = nmc::model::find_gguf_type(tensor.type_id);
    if (type == nullptr) continue;
    NMC_ASSERT(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
    row.resize(tensor.shape.back());
    nmc::model::widen_gguf(*type, file.data() + tensor.offset, row.size(), row.data());
    nmc::model::widen_gguf(*type,
                           file.data() + tensor.offset + tensor.bytes - row.size() / type->elements * type->bytes,
                           row.size(), row.data());
  }
  if (const auto config = nmc::model::gguf_config(*header, "input"); !config) {
    check_refused(config.error());
  } else {
    NMC_ASSERT(config->heads % config->kv_heads == 0 && config->head_dim % 2 == 0 && config->parameters() > 0);
  }
  return 0;
}
