#include "model/weights_digest.h"

#include <fmt/format.h>

#include <algorithm>

namespace nmc::model {
namespace {

constexpr std::size_t kLeafBytes = 1 << 20;

std::size_t leaf_count(std::size_t bytes) { return (bytes + kLeafBytes - 1) / kLeafBytes; }

Digest tensor_digest(const NamedTensor& tensor, std::span<const Digest> leaves) {
  Sha256 hash;
  hash.update_field(tensor.name).update_field(tensor.type);
  hash.update_field(fmt::format("{}", fmt::join(tensor.shape, ",")));
  return hash.update(std::as_bytes(leaves)).finish();
}

}  // namespace

Digest weights_digest(std::span<const NamedTensor> tensors, ThreadPool& pool) {
  std::vector<std::span<const std::byte>> leaves;
  for (const NamedTensor& tensor : tensors) {
    for (std::size_t at = 0; at < tensor.bytes.size(); at += kLeafBytes) {
      leaves.push_back(tensor.bytes.subspan(at, std::min(kLeafBytes, tensor.bytes.size() - at)));
    }
  }
  std::vector<Digest> digests(leaves.size());
  pool.parallel_for(leaves.size(), 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) digests[i] = sha256(leaves[i]);
  });

  Sha256 root;
  root.update_field("nano-mooncake/weights/v1");
  std::span<const Digest> rest = digests;
  for (const NamedTensor& tensor : tensors) {
    const std::size_t count = leaf_count(tensor.bytes.size());
    const Digest digest = tensor_digest(tensor, rest.first(count));
    root.update(std::as_bytes(std::span(digest.bytes)));
    rest = rest.subspan(count);
  }
  return root.finish();
}

}  // namespace nmc::model
