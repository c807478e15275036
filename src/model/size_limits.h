// Upper ends of what a model's files may claim as sizes. Well above every published model, and small enough that
// products of a few of them can't overflow.
#pragma once

#include <cstdint>

namespace nmc::model {

inline constexpr std::int64_t kLayersMax = 1024;
inline constexpr std::int64_t kWidthMax = 1 << 20;  // hidden, intermediate, heads * head_dim
inline constexpr std::int64_t kHeadsMax = 4096;
inline constexpr std::int64_t kHeadDimMax = 1024;
inline constexpr std::int64_t kVocabMax = 1 << 24;
inline constexpr std::int64_t kPositionsMax = 1 << 24;

}  // namespace nmc::model
