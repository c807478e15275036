// Parser of safetensors files: u64 LE header length, JSON header, data. Everything the header says is checked against
// the size of the file before any of it is used, so that a cut or lying file is one error and never a wild read. The
// parser does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace nmc::model {

inline constexpr std::uint64_t kSafetensorsHeaderLimit = 100'000'000;  // bytes, as in the reference implementation

struct TensorInfo {
  std::string name;
  std::string dtype_name;            // as the file says: "BF16", "I64", ...; always one of the format's own
  std::optional<Dtype> dtype;        // what we compute with; nullopt for the other types
  std::vector<std::uint64_t> shape;  // {} is one element; a 0 makes it empty
  std::uint64_t begin = 0;           // bytes, from the start of the data section
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by name, each name once
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // from the start of the file

  // nullptr when absent.
  const TensorInfo* find(std::string_view name) const;
};

// Checks a whole file. The tensors lie in the data section without hole, overlap or rest, and each one's byte range is
// exactly its shape times its type. `name` is the file in messages; no data byte is read, so mapped pages stay
// untouched.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view name);

// The part after the length: `json` is the header text, `data_size` what the file has behind it. data_offset stays 0.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_size,
                                                   std::string_view name);

// "[2048, 5632]"
std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace nmc::model
