#include "model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "model/printable_name.h"
#include "model/weights_digest.h"

namespace nmc::model {
namespace {

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::uint64_t kIndexBytesMax = 64 << 20;
constexpr std::uint64_t kSmallJsonBytesMax = 16 << 20;

// Collects what is wrong with a checkpoint, so that one error tells all of it; the list in the message is bounded.
class Problems {
 public:
  explicit Problems(const Path& subject) : subject_(subject.string()) {}

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (++count_ <= kListed) listed_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  Result<void> result() const {
    if (count_ == 0) return {};
    std::string text = fmt::format("{}", fmt::join(listed_, "; "));
    if (count_ > kListed) text += fmt::format("; and {} more", count_ - kListed);
    return corrupt("{}: {}", subject_, text);
  }

 private:
  static constexpr std::size_t kListed = 64;
  std::string subject_;
  std::vector<std::string> listed_;
  std::size_t count_ = 0;
};

bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Result<std::vector<std::string>> safetensors_names(const Path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(folder, error);
  while (!error && it != std::filesystem::directory_iterator()) {
    if (it->path().extension() == ".safetensors") names.push_back(it->path().filename().string());
    it.increment(error);
  }
  if (error) return Failure(os_error("list", folder.string(), error.value()));
  std::ranges::sort(names);
  return names;
}

struct ShardIndex {
  std::map<std::string, std::string> file_of;  // tensor -> shard
  std::vector<std::string> files;              // sorted, each once
};

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

Result<ShardIndex> read_shard_index(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kIndexBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  const Json* map = JsonFields(json).find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    return invalid_argument("{}: `weight_map`: expected an object of tensor names and file names", path.string());
  }
  ShardIndex index;
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      return invalid_argument("{}: `weight_map`: expected the name of a file beside it for {}, got {}", path.string(),
                              printable_name(tensor), describe_json(file));
    }
    index.file_of.emplace(tensor, file.get<std::string>());
    files.insert(file.get<std::string>());
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

// `found` has the file each tensor lies in.
void compare_with_index(const ShardIndex& index, const std::map<std::string, std::string>& found,
                        const std::set<std::string>& unreadable, Problems& problems) {
  for (const auto& [tensor, file] : index.file_of) {
    const auto it = found.find(tensor);
    if (it == found.end()) {
      problems.add("tensor {} is missing: {} {}", printable_name(tensor), file,
                   unreadable.contains(file) ? "can't be read" : "doesn't hold it");
    } else if (it->second != file) {
      problems.add("tensor {} is expected in {}, but lies in {}", printable_name(tensor), file, it->second);
    }
  }
  for (const auto& [tensor, file] : found) {
    if (!index.file_of.contains(tensor))
      problems.add("tensor {} of {} isn't in the index", printable_name(tensor), file);
  }
}

// What a checkpoint may hold beside the tensors we use.
bool is_ignorable(std::string_view name, const ModelConfig& config) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;  // a buffer of older exports, computed from the config
  return config.tie_embeddings && name == "lm_head.weight";
}

Result<void> read_generation_config(const Path& folder, ModelConfig& config, GenerationDefaults& defaults) {
  const Path path = folder / "generation_config.json";
  if (!is_there(path)) return {};
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kSmallJsonBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  auto ids = read_token_ids(JsonFields(json), "eos_token_id", static_cast<std::int64_t>(config.vocab) - 1);
  if (!ids) return Failure(std::move(ids).error().with_context(path.string()));
  if (!ids->empty()) config.eos_ids = std::move(*ids);
  auto suggested = parse_generation_defaults(JsonFields(json));
  if (!suggested) return Failure(std::move(suggested).error().with_context(path.string()));
  defaults = *suggested;
  return {};
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  const std::uint64_t hidden = config.hidden, q = config.q_size(), kv = config.kv_size();
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"model.embed_tokens.weight", {config.vocab, hidden}});
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const auto norm = [&](const char* name, std::uint64_t size) {
      tensors.push_back({fmt::format("model.layers.{}.{}.weight", layer, name), {size}});
    };
    const auto projection = [&](const char* name, std::uint64_t rows, std::uint64_t columns, bool bias) {
      tensors.push_back({fmt::format("model.layers.{}.{}.weight", layer, name), {rows, columns}});
      if (bias) tensors.push_back({fmt::format("model.layers.{}.{}.bias", layer, name), {rows}});
    };
    norm("input_layernorm", hidden);
    projection("self_attn.q_proj", q, hidden, config.qkv_bias);
    projection("self_attn.k_proj", kv, hidden, config.qkv_bias);
    projection("self_attn.v_proj", kv, hidden, config.qkv_bias);
    projection("self_attn.o_proj", hidden, q, config.out_bias);
    if (config.qk_norm) {
      norm("self_attn.q_norm", config.head_dim);
      norm("self_attn.k_norm", config.head_dim);
    }
    norm("post_attention_layernorm", hidden);
    projection("mlp.gate_proj", config.intermediate, hidden, config.mlp_bias);
    projection("mlp.up_proj", config.intermediate, hidden, config.mlp_bias);
    projection("mlp.down_proj", hidden, config.intermediate, config.mlp_bias);
  }
  tensors.push_back({"model.norm.weight", {hidden}});
  if (!config.tie_embeddings) tensors.push_back({"lm_head.weight", {config.vocab, hidden}});
  return tensors;
}

Result<Checkpoint> Checkpoint::open(const Path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return not_found("{}: expected a folder with config.json and {}", folder.string(), kSingleName);
  }
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  NMC_ASSIGN_OR_RETURN(checkpoint.config_, read_config(folder / "config.json"));
  NMC_RETURN_IF_ERROR(read_generation_config(folder, checkpoint.config_, checkpoint.defaults_));

  NMC_ASSIGN_OR_RETURN(const std::vector<std::string> names, safetensors_names(folder));
  const bool has_single = std::ranges::binary_search(names, kSingleName);
  if (is_there(folder / kIndexName)) {
    NMC_RETURN_IF_ERROR(checkpoint.open_sharded(folder / kIndexName));
  } else if (names.empty()) {
    return not_found("{}: expected {} or {}, found neither", folder.string(), kSingleName, kIndexName);
  } else if (!has_single || names.size() > 1) {
    const std::size_t shown = std::min<std::size_t>(names.size(), 8);
    return invalid_argument("{}: {} is missing, but needed: found {} files ({}), expected {} alone", folder.string(),
                            kIndexName, names.size(), fmt::join(std::span(names).first(shown), ", "), kSingleName);
  } else {
    NMC_RETURN_IF_ERROR(checkpoint.open_single(folder / kSingleName));
  }
  NMC_RETURN_IF_ERROR(checkpoint.validate(checkpoint.config_));
  return checkpoint;
}

Result<void> Checkpoint::open_single(const Path& path) {
  NMC_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  files_.push_back(std::move(file));
  const std::vector<TensorInfo>& tensors = files_.back().header().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors_.emplace(tensors[i].name, Place{0, i});
  return {};
}

Result<void> Checkpoint::open_sharded(const Path& index_path) {
  NMC_ASSIGN_OR_RETURN(const ShardIndex index, read_shard_index(index_path));
  Problems problems(index_path);
  if (is_there(folder_ / kSingleName) && !std::ranges::binary_search(index.files, kSingleName)) {
    problems.add("{} is in the folder too, but the index doesn't name it: which one holds the weights is unclear",
                 kSingleName);
  }
  std::set<std::string> unreadable;
  for (const std::string& name : index.files) {
    Result<SafetensorsFile> file = SafetensorsFile::open(folder_ / name);
    if (!file) {
      problems.add("{}", file.error().message);
      unreadable.insert(name);
      continue;
    }
    files_.push_back(std::move(*file));
    const std::vector<TensorInfo>& tensors = files_.back().header().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto [it, is_new] = tensors_.emplace(tensors[i].name, Place{files_.size() - 1, i});
      if (!is_new) {
        problems.add("tensor {} is in two files, {} and {}", printable_name(tensors[i].name),
                     files_[it->second.file].path().filename().string(), name);
      }
    }
  }
  std::map<std::string, std::string> found;
  for (const auto& [tensor, place] : tensors_) found.emplace(tensor, files_[place.file].path().filename().string());
  compare_with_index(index, found, unreadable, problems);
  return problems.result();
}

Result<TensorView> Checkpoint::tensor(std::string_view name, std::span<const std::uint64_t> shape) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return not_found("{}: tensor {} is missing", folder_.string(), printable_name(name));
  const SafetensorsFile& file = files_[it->second.file];
  const TensorInfo& found = info(it->second);
  if (!std::ranges::equal(found.shape, shape)) {
    return corrupt("{}: tensor {}: expected shape {}, got {}", file.path().string(), printable_name(name),
                   shape_text(shape), shape_text(found.shape));
  }
  if (!found.dtype) {
    return unsupported("{}: tensor {}: expected F32, BF16 or F16, got {}", file.path().string(), printable_name(name),
                       found.dtype_name);
  }
  return TensorView{file.bytes(found), *found.dtype, found.shape};
}

Result<TensorView> Checkpoint::tensor(std::string_view name, std::initializer_list<std::uint64_t> shape) const {
  return tensor(name, std::span(shape.begin(), shape.size()));
}

Result<void> Checkpoint::validate(const ModelConfig& config) const {
  Problems problems(folder_);
  std::set<std::string, std::less<>> expected_names;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const auto it = tensors_.find(expected.name);
    if (it == tensors_.end()) {
      problems.add("tensor {} is missing", printable_name(expected.name));
    } else if (const TensorInfo& found = info(it->second); found.shape != expected.shape) {
      problems.add("tensor {}: config.json makes its shape {}, but {} has {}", printable_name(expected.name),
                   shape_text(expected.shape), files_[it->second.file].path().filename().string(),
                   shape_text(found.shape));
    } else if (!found.dtype) {
      problems.add("tensor {}: expected F32, BF16 or F16, got {}", printable_name(expected.name), found.dtype_name);
    }
    expected_names.insert(expected.name);
  }
  for (const auto& [name, place] : tensors_) {
    if (!expected_names.contains(name) && !is_ignorable(name, config)) {
      problems.add("tensor {} has no place in a model of type {}", printable_name(name), config.model_type);
    }
  }
  return problems.result();
}

std::uint64_t Checkpoint::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, place] : tensors_) bytes += info(place).bytes();
  return bytes;
}

Digest Checkpoint::weights_digest(ThreadPool& pool) const {
  std::vector<NamedTensor> tensors;  // tensors_ is in order of names
  for (const auto& [name, place] : tensors_) {
    const TensorInfo& tensor = info(place);
    tensors.push_back({name, tensor.dtype_name, tensor.shape, files_[place.file].bytes(tensor)});
  }
  return model::weights_digest(tensors, pool);
}

}  // namespace nmc::model
