// Element types of weights and KV, and scalar conversions between them and f32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nmc {

enum class Dtype : std::uint8_t { kF32 = 0, kBf16 = 1, kF16 = 2 };  // values are part of file and wire formats

constexpr std::size_t dtype_bytes(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }
constexpr std::string_view dtype_name(Dtype dtype) {
  return dtype == Dtype::kF32 ? "f32" : dtype == Dtype::kBf16 ? "bf16" : "f16";
}
constexpr std::optional<Dtype> parse_dtype(std::string_view name) {
  if (name == "f32") return Dtype::kF32;
  if (name == "bf16") return Dtype::kBf16;
  if (name == "f16") return Dtype::kF16;
  return std::nullopt;
}

// Round to nearest, ties to even; NaN stays a (quiet) NaN.
constexpr std::uint16_t bf16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
constexpr float f32_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr float f32_from_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;  // subnormal or zero
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}
constexpr std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal in f16: adding 0.5 aligns the mantissa and rounds to even
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace nmc
