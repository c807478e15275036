// How a product is cut: shared by the driver and the kernels of every instruction set.
#pragma once

#include <cstddef>

#include "kernels/kernels.h"

namespace nmc::kernels {

// Rows in tiles as equal as can be: the first `longer` tiles have base + 1 rows, the others base.
struct RowTiles {
  std::size_t tiles = 0;
  std::size_t base = 0;
  std::size_t longer = 0;

  RowTiles(std::size_t rows, std::size_t rows_max)
      : tiles((rows + rows_max - 1) / rows_max), base(rows / tiles), longer(rows % tiles) {}
  std::size_t rows_of(std::size_t tile) const { return base + (tile < longer ? 1 : 0); }
  std::size_t start_of(std::size_t tile) const { return tile * base + (tile < longer ? tile : longer); }
};

// Part of a product: some rows of x against all of w. Threads take ranges of panels.
struct ProductPart {
  const float* x = nullptr;
  std::size_t rows = 0;
  PackedMatrix w;
  float* y = nullptr;
  std::size_t y_stride = 0;
  const float* packed_x = nullptr;  // for the tiled kernel: tile after tile, each [k][rows of the tile]

  std::size_t panels() const { return (w.n + kPanelColumns - 1) / kPanelColumns; }
  std::size_t panel_bytes() const { return kPanelColumns * w.k * dtype_bytes(w.dtype); }
};

// What the instruction set at hand can do.
struct TileLimits {
  std::size_t direct_rows = 0;    // up to so many rows, x is used where it lies
  std::size_t direct_panels = 0;  // panels that the widest such kernel takes at once
  std::size_t tile_rows = 0;
};

}  // namespace nmc::kernels
