// What a KV block is: one contiguous piece of memory that holds the keys and values of `block_tokens` consecutive
// positions, layer by layer, so that a layer of a block (a "span") is one range of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/hash.h"

namespace nmc::kv {

// Values are part of file and wire formats.
enum class LayoutKind : std::uint8_t {
  kKTransposed = 1,  // span = K [kv_heads][head_dim][block_tokens], then V [kv_heads][block_tokens][head_dim]
};

struct KvLayout {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_tokens = 16;
  Dtype dtype = Dtype::kBf16;
  LayoutKind kind = LayoutKind::kKTransposed;

  std::size_t span_bytes() const { return std::size_t{2} * kv_heads * head_dim * block_tokens * dtype_bytes(dtype); }
  std::size_t block_bytes() const { return layers * span_bytes(); }
  std::size_t span_offset(std::size_t layer) const { return layer * span_bytes(); }
  std::size_t blocks_for(std::size_t tokens) const { return (tokens + block_tokens - 1) / block_tokens; }
  std::string to_string() const;  // "22 layers, 4 kv heads of 64, 16 tokens, bf16"

  bool operator==(const KvLayout&) const = default;
};

}  // namespace nmc::kv
