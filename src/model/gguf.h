// GGUF, the file format of llama.cpp: metadata and tensors in one file. Layout from its specification,
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian). The parser has no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nmc::model {

// How the elements of a tensor lie in the file: `elements` at a time in blocks of `bytes`, row by row.
struct GgufType {
  std::uint32_t id = 0;  // ggml_type
  std::string_view name;
  std::uint32_t elements = 1;
  std::uint32_t bytes = 4;
};
// The types we read: F32, F16, BF16, Q8_0, Q4_0, Q4_1; nullptr for all others.
const GgufType* find_gguf_type(std::uint32_t id);

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> shape;  // outermost dimension first: [rows][columns]
  std::uint32_t type_id = 0;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;   // 0 where we don't read the type
};

struct GgufHeader {
  Json metadata = Json::object();  // numbers, booleans, strings and arrays of those, by their full keys
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string, std::size_t> index;  // of tensors by name

  // nullptr when absent.
  const GgufTensor* find(const std::string& name) const;
};

// `file` is the whole file, `name` what messages call it. What is returned lies inside the file, and each name occurs
// once. Work and memory are bounded by the size of the header, its arrays by kGgufElementsMax elements in total.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view name);

inline constexpr std::uint64_t kGgufValuesMax = 4096;
inline constexpr std::uint64_t kGgufElementsMax = std::uint64_t{1} << 23;

// `count` elements (a multiple of the type's block) to f32. `from` has count / elements * bytes bytes.
void widen_gguf(const GgufType& type, const std::byte* from, std::size_t count, float* to);

}  // namespace nmc::model
