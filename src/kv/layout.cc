#include "kv/layout.h"

#include <fmt/core.h>

namespace nmc::kv {

std::string KvLayout::to_string() const {
  return fmt::format("{} layers, {} kv heads of {}, {} tokens, {}", layers, kv_heads, head_dim, block_tokens,
                     dtype_name(dtype));
}

}  // namespace nmc::kv
