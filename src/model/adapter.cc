#include "model/adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/printable_name.h"
#include "model/safetensors_file.h"
#include "model/weight_source.h"

namespace nmc::model {
namespace {

constexpr std::uint64_t kConfigBytesMax = 1 << 20;
constexpr std::int64_t kRankMax = 4096;
constexpr std::string_view kPrefix = "base_model.model.model.layers.";

// A projection that can be adapted: its name inside a layer, and where it lies in the products.
struct Target {
  std::string_view name;
  Product product;
  std::size_t column;  // first of the product's output
  std::size_t rows;
  std::size_t columns;
};

std::vector<Target> targets_of(const ModelConfig& c) {
  return {{"self_attn.q_proj", Product::kQkv, 0, c.q_size(), c.hidden},
          {"self_attn.k_proj", Product::kQkv, c.q_size(), c.kv_size(), c.hidden},
          {"self_attn.v_proj", Product::kQkv, c.q_size() + c.kv_size(), c.kv_size(), c.hidden},
          {"self_attn.o_proj", Product::kOut, 0, c.hidden, c.q_size()},
          {"mlp.gate_proj", Product::kGateUp, 0, c.intermediate, c.hidden},
          {"mlp.up_proj", Product::kGateUp, c.intermediate, c.intermediate, c.hidden},
          {"mlp.down_proj", Product::kDown, 0, c.hidden, c.intermediate}};
}

struct AdapterConfig {
  std::size_t rank = 0;
  double scale = 1;
};

Result<void> refuse_variants(const JsonFields& fields) {
  NMC_ASSIGN_OR_RETURN(const std::string type, fields.string("peft_type"));
  if (type != "LORA") return unsupported("`peft_type`: expected \"LORA\", got {}", describe_json(Json(type)));
  NMC_ASSIGN_OR_RETURN(const std::string bias, fields.string_or("bias", "none"));
  if (bias != "none") return unsupported("`bias`: expected \"none\", got {}", describe_json(Json(bias)));
  for (const std::string_view name : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) {
    NMC_ASSIGN_OR_RETURN(const bool set, fields.boolean_or(name, false));
    if (set) return unsupported("`{}`: expected false, got true", name);
  }
  for (const std::string_view name :
       {"modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices", "layer_replication"}) {
    const Json* value = fields.find(name);
    if (value != nullptr && !value->empty()) {
      return unsupported("`{}`: expected none, got {}", name, describe_json(*value));
    }
  }
  return {};
}

Result<AdapterConfig> parse_adapter_config(const Json& json) {
  const JsonFields fields(json);
  NMC_RETURN_IF_ERROR(refuse_variants(fields));
  AdapterConfig config;
  NMC_ASSIGN_OR_RETURN(const std::int64_t rank, fields.integer("r", 1, kRankMax));
  config.rank = static_cast<std::size_t>(rank);
  NMC_ASSIGN_OR_RETURN(const double alpha, fields.number("lora_alpha", 0.0, 1e6));
  NMC_ASSIGN_OR_RETURN(const bool by_root, fields.boolean_or("use_rslora", false));
  config.scale = alpha / (by_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  return config;
}

}  // namespace

// Packs pairs of matrices into one adapter.
class AdapterBuilder {
 public:
  AdapterBuilder(const ModelConfig& config, std::size_t rank, ThreadPool& pool)
      : targets_(targets_of(config)), pool_(pool), adapter_(new Adapter()) {
    adapter_->rank_ = rank;
    adapter_->layers_.resize(config.layers);
  }

  const std::vector<Target>& targets() const { return targets_; }

  // Memory for all pairs that will be added: how many there are of each target.
  Result<void> reserve(const std::map<std::size_t, std::size_t>& count_by_target) {
    std::size_t bytes = 0;
    for (const auto& [target, count] : count_by_target) {
      bytes +=
          count * (piece(adapter_->rank_, targets_[target].columns) + piece(targets_[target].rows, adapter_->rank_));
    }
    NMC_ASSIGN_OR_RETURN(adapter_->memory_, Mapping::anonymous(bytes));
    return {};
  }

  // `down` is [rank][columns of the target], `up` [rows of the target][rank], the scale included.
  void add(std::size_t layer, std::size_t target, std::span<const float> down, std::span<const float> up) {
    const Target& place = targets_[target];
    Adapter::LowRank part{.column = place.column, .down = {}, .up = {}};
    part.down = pack(down, adapter_->rank_, place.columns);
    part.up = pack(up, place.rows, adapter_->rank_);
    adapter_->layers_[layer][index_of(place.product)].push_back(part);
  }

  std::shared_ptr<const Adapter> finish(std::string digest) {
    adapter_->digest_ = std::move(digest);
    return std::move(adapter_);
  }

 private:
  static std::size_t piece(std::size_t n, std::size_t k) {
    return (kernels::packed_bytes(n, k, Dtype::kF32) + 63) / 64 * 64;
  }

  kernels::PackedMatrix pack(std::span<const float> rows, std::size_t n, std::size_t k) {
    std::byte* const to = adapter_->memory_.data() + used_;
    used_ += piece(n, k);
    NMC_ASSERT(used_ <= adapter_->memory_.size(), "used={} size={}", used_, adapter_->memory_.size());
    kernels::pack_matrix(pool_, rows.data(), Dtype::kF32, n, k, to, Dtype::kF32, 0, n);
    return {to, n, k, Dtype::kF32};
  }

  const std::vector<Target> targets_;
  ThreadPool& pool_;
  std::shared_ptr<Adapter> adapter_;
  std::size_t used_ = 0;
};

namespace {

class AdapterReader {
 public:
  AdapterReader(const SafetensorsFile& file, const AdapterConfig& adapter, const ModelConfig& model, ThreadPool& pool)
      : file_(file), adapter_(adapter), model_(model), builder_(model, adapter.rank, pool) {}

  Result<std::shared_ptr<const Adapter>> read() {
    for (const TensorInfo& tensor : file_.header().tensors) NMC_RETURN_IF_ERROR(sort_in(tensor));
    if (pairs_.empty()) return corrupt("{}: expected lora_A and lora_B tensors, found none", file_.path().string());
    std::map<std::size_t, std::size_t> count_by_target;
    for (const auto& [place, pair] : pairs_) {
      NMC_RETURN_IF_ERROR(check_complete(place, pair));
      ++count_by_target[place.second];
    }
    NMC_RETURN_IF_ERROR(builder_.reserve(count_by_target));
    for (const auto& [place, pair] : pairs_) {
      std::vector<float> up = widened(*pair.up);
      for (float& value : up) value *= static_cast<float>(adapter_.scale);
      builder_.add(place.first, place.second, widened(*pair.down), up);
    }
    return builder_.finish(digest());
  }

 private:
  struct Pair {
    const TensorInfo* down = nullptr;
    const TensorInfo* up = nullptr;
  };
  using Place = std::pair<std::size_t, std::size_t>;  // layer, index of the target

  Failure misfit(const TensorInfo& tensor, std::string_view what) const {
    return corrupt("{}: tensor {}: {}", file_.path().string(), printable_name(tensor.name), what);
  }

  // "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight" to layer, target and side.
  Result<void> sort_in(const TensorInfo& tensor) {
    std::string_view rest = tensor.name;
    const auto no_place = [&] {
      return misfit(tensor,
                    "expected base_model.model.model.layers.N.PROJECTION.lora_A.weight or lora_B.weight of a "
                    "projection of attention or MLP");
    };
    if (!rest.starts_with(kPrefix)) return no_place();
    rest.remove_prefix(kPrefix.size());
    std::size_t layer = 0, digits = 0;
    while (digits < rest.size() && digits < 9 && rest[digits] >= '0' && rest[digits] <= '9') {
      layer = layer * 10 + static_cast<std::size_t>(rest[digits++] - '0');
    }
    if (digits == 0 || digits == rest.size() || rest[digits] != '.') return no_place();
    rest.remove_prefix(digits + 1);
    const bool down = rest.ends_with(".lora_A.weight");
    if (!down && !rest.ends_with(".lora_B.weight")) return no_place();
    rest.remove_suffix(std::string_view(".lora_A.weight").size());
    const auto target = std::ranges::find(builder_.targets(), rest, &Target::name);
    if (target == builder_.targets().end()) return no_place();
    if (layer >= model_.layers) {
      return misfit(tensor, fmt::format("the model has layers 0 to {}", model_.layers - 1));
    }
    const std::vector<std::uint64_t> shape = down ? std::vector<std::uint64_t>{adapter_.rank, target->columns}
                                                  : std::vector<std::uint64_t>{target->rows, adapter_.rank};
    if (tensor.shape != shape) {
      return misfit(tensor, fmt::format("expected shape {} ({} {}, rank {}), got {}", shape_text(shape),
                                        down ? "input" : "output", down ? target->columns : target->rows, adapter_.rank,
                                        shape_text(tensor.shape)));
    }
    if (!tensor.dtype) {
      return unsupported("{}: tensor {}: expected F32, BF16 or F16, got {}", file_.path().string(),
                         printable_name(tensor.name), tensor.dtype_name);
    }
    Pair& pair = pairs_[{layer, static_cast<std::size_t>(target - builder_.targets().begin())}];
    (down ? pair.down : pair.up) = &tensor;
    return {};
  }

  Result<void> check_complete(const Place& place, const Pair& pair) const {
    if (pair.down != nullptr && pair.up != nullptr) return {};
    const TensorInfo& there = pair.down != nullptr ? *pair.down : *pair.up;
    return misfit(
        there, fmt::format("its counterpart {} of layer {} {} is missing", pair.down != nullptr ? "lora_B" : "lora_A",
                           place.first, builder_.targets()[place.second].name));
  }

  std::vector<float> widened(const TensorInfo& tensor) const {
    std::vector<float> values(tensor.bytes() / dtype_bytes(*tensor.dtype));
    kernels::gather_row(file_.bytes(tensor).data(), *tensor.dtype, 0, values.size(), values.data());
    return values;
  }

  std::string digest() const {
    Sha256 hash;
    hash.update_field("nano-mooncake/adapter/v1").update_field(fmt::format("{} {:a}", adapter_.rank, adapter_.scale));
    for (const TensorInfo& tensor : file_.header().tensors) {
      hash.update_field(tensor.name).update_field(tensor.dtype_name);
      hash.update(file_.bytes(tensor));
    }
    return hash.finish().hex();
  }

  const SafetensorsFile& file_;
  const AdapterConfig& adapter_;
  const ModelConfig& model_;
  AdapterBuilder builder_;
  std::map<Place, Pair> pairs_;
};

}  // namespace

Result<std::shared_ptr<const Adapter>> Adapter::load(const Path& folder, const ModelConfig& config, ThreadPool& pool) {
  const Path path = folder / "adapter_config.json";
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  Result<AdapterConfig> adapter = parse_adapter_config(json);
  if (!adapter) return Failure(std::move(adapter).error().with_context(path.string()));
  NMC_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(folder / "adapter_model.safetensors"));
  return AdapterReader(file, *adapter, config, pool).read();
}

Result<std::shared_ptr<const Adapter>> Adapter::random(const ModelConfig& config, std::size_t rank, std::uint64_t seed,
                                                       ThreadPool& pool) {
  AdapterBuilder builder(config, rank, pool);
  std::map<std::size_t, std::size_t> count_by_target;
  for (std::size_t target = 0; target < builder.targets().size(); ++target) count_by_target[target] = config.layers;
  NMC_RETURN_IF_ERROR(builder.reserve(count_by_target));
  RandomWeights weights(seed, pool);
  const auto drawn = [&](const std::string& name, std::size_t rows, std::size_t columns) -> Result<std::vector<float>> {
    NMC_ASSIGN_OR_RETURN(const Weights tensor, weights.tensor(name, rows, columns));
    const auto* values = static_cast<const float*>(tensor.data);
    return std::vector<float>(values, values + rows * columns);
  };
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    for (std::size_t target = 0; target < builder.targets().size(); ++target) {
      const Target& place = builder.targets()[target];
      const std::string name = fmt::format("{}.{}", layer, place.name);
      NMC_ASSIGN_OR_RETURN(const std::vector<float> down, drawn(name + ".lora_A.weight", rank, place.columns));
      NMC_ASSIGN_OR_RETURN(const std::vector<float> up, drawn(name + ".lora_B.weight", place.rows, rank));
      builder.add(layer, target, down, up);
    }
  }
  return builder.finish(fmt::format("random/{}/{}", rank, seed));
}

}  // namespace nmc::model
