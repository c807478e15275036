// For tests: safetensors files and checkpoint folders, right ones and wrong ones.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/safetensors_file.h"

namespace nmc::model {

// Not synced to disk, unlike write_file_atomic(): tests write thousands.
inline void write_test_file(const Path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  NMC_ASSERT(file.flush().good(), "{}", path.string());
}

// A file with that header length, header and data, whether they fit together or not.
inline std::string safetensors_bytes(std::uint64_t length, std::string_view header, std::string_view data) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes.append(header).append(data);
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data = "") {
  return safetensors_bytes(header.size(), header, data);
}

// One tensor's header entry.
inline std::string tensor_entry(std::string_view name, std::string_view dtype, std::string_view shape,
                                std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

// A right file of bf16 tensors; data byte i of a tensor is the i-th of a sequence that depends on its name.
inline std::string safetensors_of(const std::vector<ExpectedTensor>& tensors) {
  std::string header;
  std::string data;
  for (const ExpectedTensor& tensor : tensors) {
    std::size_t bytes = 2;
    for (const std::uint64_t size : tensor.shape) bytes *= size;
    header += fmt::format("{}{}", header.empty() ? "{" : ",",
                          tensor_entry(tensor.name, "BF16", shape_text(tensor.shape),
                                       fmt::format("[{},{}]", data.size(), data.size() + bytes)));
    std::size_t state = tensor.name.size();
    for (const char c : tensor.name) state = state * 31 + static_cast<unsigned char>(c);
    for (std::size_t i = 0; i < bytes; ++i) data.push_back(static_cast<char>((state = state * 131 + 7) >> 8));
  }
  return safetensors_bytes(header.empty() ? "{}" : header + "}", data);
}

inline constexpr std::string_view kSmallConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12,
  "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
  "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"})";

}  // namespace nmc::model
