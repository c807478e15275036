#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"
#include "model/printable_name.h"

namespace nmc::model {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths and tensor data are used as they lie in the file");

constexpr std::uint64_t kLengthBytes = 8;

struct FileType {
  std::string_view name;
  unsigned bits;
  std::optional<Dtype> dtype;
};
constexpr std::array kFileTypes = {
    FileType{"F32", 32, Dtype::kF32},     FileType{"BF16", 16, Dtype::kBf16},   FileType{"F16", 16, Dtype::kF16},
    FileType{"F64", 64, std::nullopt},    FileType{"I64", 64, std::nullopt},    FileType{"U64", 64, std::nullopt},
    FileType{"C64", 64, std::nullopt},    FileType{"I32", 32, std::nullopt},    FileType{"U32", 32, std::nullopt},
    FileType{"I16", 16, std::nullopt},    FileType{"U16", 16, std::nullopt},    FileType{"I8", 8, std::nullopt},
    FileType{"U8", 8, std::nullopt},      FileType{"BOOL", 8, std::nullopt},    FileType{"F8_E4M3", 8, std::nullopt},
    FileType{"F8_E5M2", 8, std::nullopt}, FileType{"F8_E8M0", 8, std::nullopt}, FileType{"F6_E2M3", 6, std::nullopt},
    FileType{"F6_E3M2", 6, std::nullopt}, FileType{"F4", 4, std::nullopt},
};

const FileType* find_file_type(std::string_view name) {
  const auto it = std::ranges::find(kFileTypes, name, &FileType::name);
  return it == kFileTypes.end() ? nullptr : &*it;
}

std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// An array of numbers that are all non-negative integers below 2^63.
Result<std::vector<std::uint64_t>> read_counts(const JsonFields& fields, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const std::vector<std::int64_t> numbers, fields.integers(name));
  std::vector<std::uint64_t> counts;
  for (const std::int64_t number : numbers) {
    if (number < 0) return corrupt("`{}`: expected no negative number, got {}", name, number);
    counts.push_back(static_cast<std::uint64_t>(number));
  }
  return counts;
}

Result<std::uint64_t> byte_size(std::span<const std::uint64_t> shape, const FileType& type) {
  std::optional<std::uint64_t> bits = type.bits;
  for (const std::uint64_t size : shape) {
    bits = checked_product(*bits, size);
    if (!bits) return corrupt("shape {} of {} overflows 64 bits", shape_text(shape), type.name);
  }
  if (*bits % 8 != 0) return corrupt("shape {} of {} isn't a whole number of bytes", shape_text(shape), type.name);
  return *bits / 8;
}

Result<TensorInfo> parse_tensor(const std::string& name, const Json& json) {
  if (!json.is_object()) return corrupt("expected an object, got {}", json_type_name(json));
  const JsonFields fields(json);
  TensorInfo tensor;
  tensor.name = name;
  NMC_ASSIGN_OR_RETURN(tensor.dtype_name, fields.string("dtype"));
  const FileType* type = find_file_type(tensor.dtype_name);
  if (type == nullptr) return corrupt("unknown dtype {}", describe_json(*fields.find("dtype")));
  tensor.dtype = type->dtype;
  NMC_ASSIGN_OR_RETURN(tensor.shape, read_counts(fields, "shape"));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> offsets, read_counts(fields, "data_offsets"));
  if (offsets.size() != 2) return corrupt("`data_offsets`: expected two numbers, got {}", offsets.size());
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  if (tensor.begin > tensor.end) {
    return corrupt("`data_offsets`: expected begin before end, got [{}, {}]", tensor.begin, tensor.end);
  }
  NMC_ASSIGN_OR_RETURN(const std::uint64_t bytes, byte_size(tensor.shape, *type));
  if (bytes != tensor.bytes()) {
    return corrupt("shape {} of {} takes {} bytes, but data_offsets [{}, {}] hold {}", shape_text(tensor.shape),
                   tensor.dtype_name, bytes, tensor.begin, tensor.end, tensor.bytes());
  }
  return tensor;
}

Result<void> read_metadata(const Json& json, std::map<std::string, std::string>& metadata) {
  if (!json.is_object()) return corrupt("`__metadata__`: expected an object, got {}", json_type_name(json));
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return corrupt("`__metadata__`: expected strings only, got {} under {}", json_type_name(value),
                     printable_name(key));
    }
    metadata[key] = value.get<std::string>();
  }
  return {};
}

// The tensors must tile the data section: sorted by place, each begins where the one before it ends.
Result<void> check_tiling(const std::vector<TensorInfo>& tensors, std::uint64_t data_size) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const TensorInfo* tensor) { return std::pair(tensor->begin, tensor->end); });
  std::uint64_t at = 0;
  for (const TensorInfo* tensor : order) {
    if (tensor->begin != at) {
      return corrupt("tensor {}: begins at byte {} of the data, but the data before it ends at {}: {}",
                     printable_name(tensor->name), tensor->begin, at,
                     tensor->begin < at ? "tensors overlap" : "there is a hole");
    }
    at = tensor->end;
  }
  if (at > data_size) {
    return corrupt("tensor {}: {} bytes of data expected up to its end, but the file holds {}",
                   printable_name(order.back()->name), at, data_size);
  }
  if (at < data_size) return corrupt("{} bytes of data expected, but the file holds {}", at, data_size);
  return {};
}

Result<SafetensorsHeader> parse_header(std::string_view json_text, std::uint64_t data_size) {
  if (!json_text.starts_with('{')) return corrupt("header: expected a JSON object");
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(json_text, "header"));
  SafetensorsHeader header;
  header.tensors.reserve(json.size());
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      NMC_RETURN_IF_ERROR(read_metadata(value, header.metadata));
      continue;
    }
    Result<TensorInfo> tensor = parse_tensor(name, value);
    if (!tensor) {
      return Failure(std::move(tensor).error().with_context(fmt::format("tensor {}", printable_name(name))));
    }
    header.tensors.push_back(std::move(*tensor));
  }
  std::ranges::sort(header.tensors, {}, &TensorInfo::name);
  NMC_RETURN_IF_ERROR(check_tiling(header.tensors, data_size));
  return header;
}

// The code of a file that breaks its format is kCorrupt, also where a helper called it an invalid argument.
Failure in_file(Error error, std::string_view name) {
  if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kCorrupt;
  return Failure(std::move(error).with_context(name));
}

}  // namespace

const TensorInfo* SafetensorsHeader::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(tensors, name, {}, &TensorInfo::name);
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  constexpr std::size_t kShown = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i == kShown) {
      text += fmt::format(", ... {} in all", shape.size());
      break;
    }
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_size,
                                                   std::string_view name) {
  Result<SafetensorsHeader> header = parse_header(json, data_size);
  if (!header) return in_file(std::move(header).error(), name);
  return header;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < kLengthBytes) {
    return corrupt("{}: {} bytes, expected a header length of {} bytes first", name, file.size(), kLengthBytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (length > kSafetensorsHeaderLimit) {
    return corrupt("{}: header of {} bytes, expected at most {}", name, length, kSafetensorsHeaderLimit);
  }
#ifndef NMC_PLANT_SAFETENSORS  // a deliberate mistake, to see that fuzzing finds it
  if (length > rest.size()) {
    return corrupt("{}: header of {} bytes expected, but the file has only {} after the header's length", name, length,
                   rest.size());
  }
#endif
  const std::string_view json(reinterpret_cast<const char*>(rest.data()), length);
  NMC_ASSIGN_OR_RETURN(SafetensorsHeader header, parse_safetensors_header(json, rest.size() - length, name));
  header.data_offset = kLengthBytes + length;
  return header;
}

}  // namespace nmc::model
