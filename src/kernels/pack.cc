#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/kernels.h"

namespace nmc::kernels {
namespace {

constexpr std::size_t kHalf = kPanelColumns / 2;

// Where column `column` of a panel lies in each row of it. bf16 rows are 16 words of 32 bits that hold columns i and
// i + 16: widening to f32 is then one shift for the low half and one mask for the high half, whatever the vector's
// size.
constexpr std::size_t position(std::size_t column, Dtype dtype) {
  if (dtype != Dtype::kBf16) return column;
  return column < kHalf ? 2 * column : 2 * (column - kHalf) + 1;
}

template <typename T>
T load(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

struct FromF32 {
  using Stored = float;
  static float widen(float value) { return value; }
};
struct FromBf16 {
  using Stored = std::uint16_t;
  static float widen(std::uint16_t value) { return f32_from_bf16(value); }
};
struct FromF16 {
  using Stored = std::uint16_t;
  static float widen(std::uint16_t value) { return f32_from_f16(value); }
};
struct ToF32 {
  using Stored = float;
  static float narrow(float value) { return value; }
};
struct ToBf16 {
  using Stored = std::uint16_t;
  static std::uint16_t narrow(float value) { return bf16_from_f32(value); }
};
struct ToF16 {
  using Stored = std::uint16_t;
  static std::uint16_t narrow(float value) { return f16_from_f32(value); }
};

// One row of w (k values of one output column) to its place in a panel.
template <typename From, typename To>
void pack_column(const std::byte* row, std::size_t k, std::byte* panel, std::size_t at) {
  auto* const to = reinterpret_cast<typename To::Stored*>(panel) + at;
  for (std::size_t i = 0; i < k; ++i) {
    to[i * kPanelColumns] = To::narrow(From::widen(load<typename From::Stored>(row, i)));
  }
}

using PackColumn = void (*)(const std::byte*, std::size_t, std::byte*, std::size_t);

template <typename From>
PackColumn pack_column_to(Dtype to) {
  switch (to) {
    case Dtype::kF32: return pack_column<From, ToF32>;
    case Dtype::kBf16: return pack_column<From, ToBf16>;
    case Dtype::kF16: return pack_column<From, ToF16>;
  }
  return nullptr;
}

PackColumn pack_column_for(Dtype from, Dtype to) {
  switch (from) {
    case Dtype::kF32: return pack_column_to<FromF32>(to);
    case Dtype::kBf16: return pack_column_to<FromBf16>(to);
    case Dtype::kF16: return pack_column_to<FromF16>(to);
  }
  return nullptr;
}

void clear_columns(std::byte* panel, std::size_t k, Dtype dtype, std::size_t first) {
  const std::size_t bytes = dtype_bytes(dtype);
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t column = first; column < kPanelColumns; ++column) {
      std::memset(panel + (i * kPanelColumns + position(column, dtype)) * bytes, 0, bytes);
    }
  }
}

}  // namespace

std::size_t packed_bytes(std::size_t n, std::size_t k, Dtype dtype) {
  return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns * k * dtype_bytes(dtype);
}

void pack_matrix(ThreadPool& pool, const void* w, Dtype from, std::size_t n, std::size_t k, std::byte* to, Dtype dtype,
                 std::size_t column_offset, std::size_t n_total) {
  NMC_REQUIRE(column_offset <= n_total && n <= n_total - column_offset, "column_offset={} n={} n_total={}",
              column_offset, n, n_total);
  NMC_REQUIRE(column_offset % kPanelColumns == 0, "column_offset={}", column_offset);
  NMC_REQUIRE(n % kPanelColumns == 0 || column_offset + n == n_total, "n={} column_offset={} n_total={}", n,
              column_offset, n_total);
  NMC_REQUIRE(reinterpret_cast<std::uintptr_t>(to) % alignof(float) == 0);
  const PackColumn pack = pack_column_for(from, dtype);
  const std::size_t row_bytes = k * dtype_bytes(from);
  const std::size_t panel_bytes = kPanelColumns * k * dtype_bytes(dtype);
  std::byte* const first_panel = to + column_offset / kPanelColumns * panel_bytes;
  pool.parallel_for((n + kPanelColumns - 1) / kPanelColumns, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t panel = begin; panel < end; ++panel) {
      std::byte* const out = first_panel + panel * panel_bytes;
      const std::size_t columns = std::min(kPanelColumns, n - panel * kPanelColumns);
      for (std::size_t column = 0; column < columns; ++column) {
        const std::byte* const row = static_cast<const std::byte*>(w) + (panel * kPanelColumns + column) * row_bytes;
        pack(row, k, out, position(column, dtype));
      }
      clear_columns(out, k, dtype, columns);
    }
  });
}

}  // namespace nmc::kernels
