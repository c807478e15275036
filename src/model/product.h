// The products of a decoder layer.
#pragma once

#include <cstddef>

namespace nmc::model {

// Several projections of the model that read the same rows share a product: queries, keys and values; gate and up.
enum class Product { kQkv, kOut, kGateUp, kDown };
inline constexpr std::size_t kProducts = 4;
constexpr std::size_t index_of(Product product) { return static_cast<std::size_t>(product); }

}  // namespace nmc::model
