// Names of KV: a prefix chain. key_0 = SHA-256(namespace); key_i = SHA-256(key_{i-1} || ids of block i as u32 LE), so a
// block's key names all tokens up to its end and everything that shapes their KV.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "kv/layout.h"

namespace nmc::kv {

using TokenId = std::uint32_t;
using PrefixKey = Digest;

// All that must be equal for KV to be interchangeable. Each part is hashed with its length, so parts can't run
// together.
struct Namespace {
  std::string weights;    // digest of the weights
  std::string config;     // digest of what else shapes the forward pass
  std::string tokenizer;  // digest of the tokenizer
  KvLayout layout;
  std::string adapter;  // "" = none
  std::string salt;     // tenant's salt, "" = none
  std::string scope;    // "" = shared by all workers; else the one worker whose blocks these are
  std::string instruction_level;
  std::uint32_t numerics_version = 0;

  Digest digest() const;
};

PrefixKey root_key(const Digest& ns);
PrefixKey next_key(const PrefixKey& parent, std::span<const TokenId> block);
// Names the tail object of a finished prompt: the partial block after `parent` and the last position's logits.
PrefixKey tail_key(const PrefixKey& parent, std::span<const TokenId> tail);

// The name under which the store keeps it: "nmc/" and 64 hex digits.
std::string object_key(const PrefixKey& key);

// Keys of the full blocks of a growing token sequence, computed once each. Not thread-safe.
class PrefixChain {
 public:
  PrefixChain(const Digest& ns, std::uint32_t block_tokens);

  // Appends tokens; keys of blocks that became full are added.
  void append(std::span<const TokenId> tokens);
  void append(TokenId token) { append(std::span(&token, 1)); }

  std::span<const PrefixKey> keys() const { return keys_; }  // one a full block
  std::span<const TokenId> tail() const { return tail_; }    // fewer than block_tokens ids
  PrefixKey last_key() const { return keys_.empty() ? root_ : keys_.back(); }
  PrefixKey tail_object_key() const { return tail_key(last_key(), tail_); }

 private:
  std::uint32_t block_tokens_;
  PrefixKey root_;
  std::vector<PrefixKey> keys_;
  std::vector<TokenId> tail_;
};

}  // namespace nmc::kv
