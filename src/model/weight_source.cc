#include "model/weight_source.h"

#include <cmath>

#include "base/hash.h"
#include "base/rng.h"
#include "model/checkpoint.h"

namespace nmc::model {
namespace {

// Sum of four uniform 16-bit numbers, centred and scaled to variance 1: integer arithmetic and one product, so the bits
// are the same everywhere. |value| < 3.5.
float nearly_normal(std::uint64_t bits) {
  const std::int64_t sum = static_cast<std::int64_t>(bits & 0xffff) + static_cast<std::int64_t>((bits >> 16) & 0xffff) +
                           static_cast<std::int64_t>((bits >> 32) & 0xffff) + static_cast<std::int64_t>(bits >> 48);
  constexpr float kScale = 1.0f / 37837.23f;  // sqrt(4 * (65536^2 - 1) / 12)
  return static_cast<float>(sum - 2 * 65535) * kScale;
}

bool is_norm(std::string_view name) { return name.ends_with("norm.weight"); }
bool is_bias(std::string_view name) { return name.ends_with(".bias"); }

constexpr float kBiasScale = 0.25f;

}  // namespace

Result<Weights> CheckpointWeights::tensor(const std::string& name, std::size_t rows, std::size_t columns) {
  const bool vector = rows == 1 && (is_norm(name) || is_bias(name));
  Result<TensorView> view = vector ? checkpoint_.tensor(name, {columns}) : checkpoint_.tensor(name, {rows, columns});
  if (!view) return Failure(std::move(view).error());
  return Weights{view->bytes.data(), view->dtype};
}

std::string CheckpointWeights::digest() { return checkpoint_.weights_digest(pool_).hex(); }

Result<Weights> RandomWeights::tensor(const std::string& name, std::size_t rows, std::size_t columns) {
  buffer_.assign(rows * columns, 1.0f);
  if (!is_norm(name)) {
    const std::uint64_t stream = checksum64(name);
    const float scale = is_bias(name) ? kBiasScale : 1.0f / std::sqrt(static_cast<float>(columns));
    pool_.parallel_for(rows, 64, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t row = begin; row < end; ++row) {
        for (std::size_t column = 0; column < columns; ++column) {
          const std::size_t index = row * columns + column;
          float value = nearly_normal(keyed_random(seed_, stream, index)) * scale;
          if (adjust_) value = adjust_(name, row, column, value);
          buffer_[index] = value;
        }
      }
    });
  }
  return Weights{buffer_.data(), Dtype::kF32};
}

std::string RandomWeights::digest() { return fmt::format("{}/{}", kind_, seed_); }

}  // namespace nmc::model
