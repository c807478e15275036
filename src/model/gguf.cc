#include "model/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/dtype.h"
#include "model/printable_name.h"

namespace nmc::model {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are used as they lie in the file");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kAlignmentDefault = 32;
constexpr std::uint64_t kAlignmentMax = 1 << 20;
constexpr std::uint32_t kDimensionsMax = 4;
constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kBf16 = 30;

constexpr std::array kTypes = {
    GgufType{kF32, "F32", 1, 4},     GgufType{kF16, "F16", 1, 2},     GgufType{kBf16, "BF16", 1, 2},
    GgufType{kQ8_0, "Q8_0", 32, 34}, GgufType{kQ4_0, "Q4_0", 32, 18}, GgufType{kQ4_1, "Q4_1", 32, 20},
};

enum ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kFloat64,
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return file_.size() - at_; }

  template <typename T>
  Result<T> number(std::string_view what) {
    if (left() < sizeof(T)) return ended(what);
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  Result<std::string> string(std::string_view what) {
    NMC_ASSIGN_OR_RETURN(const std::uint64_t length, number<std::uint64_t>(what));
    if (left() < length) return ended(what);
    std::string text(reinterpret_cast<const char*>(file_.data()) + at_, length);
    at_ += length;
    return text;
  }

  Failure ended(std::string_view what) const {
    return corrupt("the file of {} bytes ends inside {} at {}", file_.size(), what, at_);
  }

 private:
  std::span<const std::byte> file_;
  std::size_t at_ = 0;
};

class Parser {
 public:
  explicit Parser(std::span<const std::byte> file) : file_(file), reader_(file) {}

  Result<GgufHeader> parse() {
    NMC_ASSIGN_OR_RETURN(const std::uint32_t magic, reader_.number<std::uint32_t>("the magic number"));
    if (magic != kMagic) return corrupt("expected a GGUF file, it doesn't begin with \"GGUF\"");
    NMC_ASSIGN_OR_RETURN(const std::uint32_t version, reader_.number<std::uint32_t>("the version"));
    if (version != 2 && version != 3) {
      return failure(ErrorCode::kVersionMismatch, "expected GGUF version 2 or 3, little-endian, got {:#x}", version);
    }
    NMC_ASSIGN_OR_RETURN(const std::uint64_t tensors, reader_.number<std::uint64_t>("the number of tensors"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t values, reader_.number<std::uint64_t>("the number of metadata values"));
    if (values > kGgufValuesMax) {
      return unsupported("expected at most {} metadata values, got {}", kGgufValuesMax, values);
    }
    for (std::uint64_t i = 0; i < values; ++i) NMC_RETURN_IF_ERROR(read_pair());
    for (std::uint64_t i = 0; i < tensors; ++i) NMC_RETURN_IF_ERROR(read_tensor());
    NMC_RETURN_IF_ERROR(place_tensors());
    return std::move(header_);
  }

 private:
  Result<void> read_pair() {
    NMC_ASSIGN_OR_RETURN(const std::string key, reader_.string("a metadata key"));
    NMC_ASSIGN_OR_RETURN(const std::uint32_t type, reader_.number<std::uint32_t>("a metadata type"));
    Result<Json> value = type == kArray ? read_array() : read_scalar(type);
    if (!value) return Failure(std::move(value).error().with_context(fmt::format("metadata {}", printable_name(key))));
    if (!header_.metadata.emplace(key, std::move(*value)).second) {
      return corrupt("metadata {} is there twice", printable_name(key));
    }
    return {};
  }

  template <typename T>
  Result<Json> json_number() {
    NMC_ASSIGN_OR_RETURN(const T value, reader_.number<T>("a number"));
    return Json(value);
  }

  Result<Json> read_scalar(std::uint32_t type) {
    switch (type) {
      case kU8: return json_number<std::uint8_t>();
      case kI8: return json_number<std::int8_t>();
      case kU16: return json_number<std::uint16_t>();
      case kI16: return json_number<std::int16_t>();
      case kU32: return json_number<std::uint32_t>();
      case kI32: return json_number<std::int32_t>();
      case kU64: return json_number<std::uint64_t>();
      case kI64: return json_number<std::int64_t>();
      case kFloat32: return json_number<float>();
      case kFloat64: return json_number<double>();
      case kBool: {
        NMC_ASSIGN_OR_RETURN(const std::uint8_t value, reader_.number<std::uint8_t>("a boolean"));
        return Json(value != 0);
      }
      case kString: {
        NMC_ASSIGN_OR_RETURN(std::string value, reader_.string("a string"));
        return Json(std::move(value));
      }
      default: return corrupt("unknown type {}", type);
    }
  }

  Result<Json> read_array() {
    NMC_ASSIGN_OR_RETURN(const std::uint32_t type, reader_.number<std::uint32_t>("an array's type"));
    NMC_ASSIGN_OR_RETURN(const std::uint64_t count, reader_.number<std::uint64_t>("an array's length"));
    if (type == kArray) return unsupported("arrays of arrays aren't read");
    if (count > reader_.left()) return reader_.ended("an array");  // an element takes a byte at least
    if ((elements_ += count) > kGgufElementsMax) {
      return unsupported("the metadata has more than {} array elements", kGgufElementsMax);
    }
    Json array = Json::array();
    for (std::uint64_t i = 0; i < count; ++i) {
      NMC_ASSIGN_OR_RETURN(Json value, read_scalar(type));
      array.push_back(std::move(value));
    }
    return array;
  }

  Result<void> read_tensor() {
    GgufTensor tensor;
    NMC_ASSIGN_OR_RETURN(tensor.name, reader_.string("a tensor's name"));
    NMC_ASSIGN_OR_RETURN(const std::uint32_t dimensions, reader_.number<std::uint32_t>("a number of dimensions"));
    if (dimensions == 0 || dimensions > kDimensionsMax) {
      return corrupt("tensor {}: expected 1 to {} dimensions, got {}", printable_name(tensor.name), kDimensionsMax,
                     dimensions);
    }
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      NMC_ASSIGN_OR_RETURN(const std::uint64_t size, reader_.number<std::uint64_t>("a dimension"));
      tensor.shape.push_back(size);
    }
    std::ranges::reverse(tensor.shape);
    NMC_ASSIGN_OR_RETURN(tensor.type_id, reader_.number<std::uint32_t>("a tensor's type"));
    NMC_ASSIGN_OR_RETURN(tensor.offset, reader_.number<std::uint64_t>("a tensor's offset"));
    if (!header_.index.emplace(tensor.name, header_.tensors.size()).second) {
      return corrupt("tensor {} is there twice", printable_name(tensor.name));
    }
    header_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Offsets in the file count from where the header ends, rounded up.
  Result<void> place_tensors() {
    std::uint64_t alignment = kAlignmentDefault;
    if (const auto it = header_.metadata.find("general.alignment"); it != header_.metadata.end()) {
      if (!it->is_number_unsigned() || it->get<std::uint64_t>() > kAlignmentMax ||
          !std::has_single_bit(it->get<std::uint64_t>())) {
        return corrupt("`general.alignment`: expected a power of two up to {}, got {}", kAlignmentMax,
                       describe_json(*it));
      }
      alignment = it->get<std::uint64_t>();
    }
    const std::uint64_t data = (reader_.at() + alignment - 1) / alignment * alignment;
    for (GgufTensor& tensor : header_.tensors) {
      Result<void> placed = place(tensor, data, alignment);
      if (!placed) {
        return Failure(std::move(placed).error().with_context(fmt::format("tensor {}", printable_name(tensor.name))));
      }
    }
    return {};
  }

  Result<void> place(GgufTensor& tensor, std::uint64_t data, std::uint64_t alignment) const {
    if (tensor.offset % alignment != 0) return corrupt("offset {} is no multiple of {}", tensor.offset, alignment);
    if (__builtin_add_overflow(tensor.offset, data, &tensor.offset) || tensor.offset > file_.size()) {
      return corrupt("it begins behind the end of the file of {} bytes", file_.size());
    }
    const GgufType* type = find_gguf_type(tensor.type_id);
    if (type == nullptr) return {};  // refused by name when it is asked for
    std::uint64_t elements = 1;
    for (const std::uint64_t size : tensor.shape) {
      if (size == 0 || __builtin_mul_overflow(elements, size, &elements)) {
        return corrupt("expected dimensions from 1 whose product fits 64 bits");
      }
    }
    if (tensor.shape.back() % type->elements != 0) {
      return corrupt("expected rows of whole blocks of {} elements ({}), got rows of {}", type->elements, type->name,
                     tensor.shape.back());
    }
    if (__builtin_mul_overflow(elements / type->elements, std::uint64_t{type->bytes}, &tensor.bytes)
#ifndef NMC_PLANT_GGUF  // defined only to show that fuzzing would find a missing check
        || tensor.bytes > file_.size() - tensor.offset
#endif
    ) {
      return corrupt("its {} elements of {} don't fit into the file of {} bytes from {} on", elements, type->name,
                     file_.size(), tensor.offset);
    }
    return {};
  }

  std::span<const std::byte> file_;
  Reader reader_;
  GgufHeader header_;
  std::uint64_t elements_ = 0;  // of arrays so far
};

// ---- Blocks ---------------------------------------------------------------------------------------------------------

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
float load_f16(const std::byte* from) { return f32_from_f16(load<std::uint16_t>(from)); }

// 32 signed bytes and the scale they share.
void widen_q8_0(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  for (std::size_t i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(load<std::int8_t>(block + 2 + i));
}

// Two elements a byte, 16 apart; the low half of each byte is the first 16.
template <typename Value>
void widen_nibbles(const std::byte* packed, Value value, float* to) {
  for (std::size_t i = 0; i < 16; ++i) {
    const auto byte = static_cast<std::uint8_t>(packed[i]);
    to[i] = value(byte & 15);
    to[i + 16] = value(byte >> 4);
  }
}

void widen_q4_0(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  widen_nibbles(
      block + 2, [scale](int nibble) { return scale * static_cast<float>(nibble - 8); }, to);
}

void widen_q4_1(const std::byte* block, float* to) {
  const float scale = load_f16(block);
  const float low = load_f16(block + 2);
  widen_nibbles(
      block + 4, [scale, low](int nibble) { return scale * static_cast<float>(nibble) + low; }, to);
}

}  // namespace

const GgufType* find_gguf_type(std::uint32_t id) {
  const auto it = std::ranges::find(kTypes, id, &GgufType::id);
  return it == kTypes.end() ? nullptr : &*it;
}

const GgufTensor* GgufHeader::find(const std::string& name) const {
  const auto it = index.find(name);
  return it == index.end() ? nullptr : &tensors[it->second];
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view name) {
  Result<GgufHeader> header = Parser(file).parse();
  if (!header) return Failure(std::move(header).error().with_context(name));
  return header;
}

void widen_gguf(const GgufType& type, const std::byte* from, std::size_t count, float* to) {
  NMC_REQUIRE(count % type.elements == 0, "count={} type={}", count, type.name);
  switch (type.id) {
    case kF32: std::memcpy(to, from, count * sizeof(float)); return;
    case kF16:
      for (std::size_t i = 0; i < count; ++i) to[i] = load_f16(from + 2 * i);
      return;
    case kBf16:
      for (std::size_t i = 0; i < count; ++i) to[i] = f32_from_bf16(load<std::uint16_t>(from + 2 * i));
      return;
    default: break;
  }
  for (std::size_t at = 0; at < count; at += type.elements, from += type.bytes, to += type.elements) {
    switch (type.id) {
      case kQ8_0: widen_q8_0(from, to); break;
      case kQ4_0: widen_q4_0(from, to); break;
      case kQ4_1: widen_q4_1(from, to); break;
      default: NMC_REQUIRE(false, "type={}", type.id);
    }
  }
}

}  // namespace nmc::model
