#include "kv/prefix.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace nmc::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as little-endian u32");

PrefixKey chain(const PrefixKey& parent, std::span<const TokenId> ids, std::string_view suffix) {
  return Sha256().update(std::as_bytes(std::span(parent.bytes))).update(std::as_bytes(ids)).update(suffix).finish();
}

}  // namespace

Digest Namespace::digest() const {
  Sha256 hash;
  hash.update_field("nano-mooncake/kv-namespace/v1");
  hash.update_field(weights).update_field(config).update_field(tokenizer);
  hash.update_field(fmt::format("{}/{}/{}/{}/{}/{}", layout.layers, layout.kv_heads, layout.head_dim,
                                layout.block_tokens, dtype_name(layout.dtype), static_cast<int>(layout.kind)));
  hash.update_field(adapter).update_field(salt).update_field(scope).update_field(instruction_level);
  hash.update_field(fmt::format("{}", numerics_version));
  return hash.finish();
}

PrefixKey root_key(const Digest& ns) { return sha256(std::as_bytes(std::span(ns.bytes))); }

PrefixKey next_key(const PrefixKey& parent, std::span<const TokenId> block) { return chain(parent, block, ""); }

PrefixKey tail_key(const PrefixKey& parent, std::span<const TokenId> tail) { return chain(parent, tail, "tail"); }

std::string object_key(const PrefixKey& key) { return "nmc/" + key.hex(); }

PrefixChain::PrefixChain(const Digest& ns, std::uint32_t block_tokens)
    : block_tokens_(block_tokens), root_(root_key(ns)) {
  NMC_REQUIRE(block_tokens > 0);
}

void PrefixChain::append(std::span<const TokenId> tokens) {
  while (!tokens.empty()) {
    const std::size_t take = std::min<std::size_t>(tokens.size(), block_tokens_ - tail_.size());
    tail_.insert(tail_.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(take));
    tokens = tokens.subspan(take);
    if (tail_.size() == block_tokens_) {
      keys_.push_back(next_key(last_key(), tail_));
      tail_.clear();
    }
  }
}

}  // namespace nmc::kv
