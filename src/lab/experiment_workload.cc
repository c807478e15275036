#include "lab/experiment_workload.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/json.h"
#include "base/rng.h"

namespace nmc::lab {
namespace {

constexpr std::string_view kSchema = "nano-mooncake/workloads/v1";
constexpr std::int64_t kRequestsMax = 100'000, kTokensMax = 1'000'000;

constexpr char kBuiltIn[] =
#include "workload_bundles.inc"  // generated at build time from docs/workload_bundles.json
    ;

Result<WorkloadSpec> parse_one(const std::string& name, const Json& json, const std::string& path) {
  WorkloadSpec spec{.name = name, .about = ""};
  const JsonFields fields(json, path);
  NMC_ASSIGN_OR_RETURN(spec.about, fields.string("about"));
  const auto count = [&](const char* member, std::int64_t low, std::int64_t high, std::size_t& value) -> Result<void> {
    NMC_ASSIGN_OR_RETURN(const std::int64_t number, fields.integer(member, low, high));
    value = static_cast<std::size_t>(number);
    return {};
  };
  NMC_RETURN_IF_ERROR(count("requests", 1, kRequestsMax, spec.requests));
  NMC_RETURN_IF_ERROR(count("groups", 1, kRequestsMax, spec.groups));
  NMC_RETURN_IF_ERROR(count("prefix_tokens", 0, kTokensMax, spec.prefix_tokens));
  NMC_RETURN_IF_ERROR(count("suffix_tokens", 0, kTokensMax, spec.suffix_tokens));
  NMC_RETURN_IF_ERROR(count("output_tokens", 1, kTokensMax, spec.output_tokens));
  NMC_RETURN_IF_ERROR(count("concurrency", 1, kRequestsMax, spec.concurrency));
  if (fields.has("max_queue")) NMC_RETURN_IF_ERROR(count("max_queue", 1, kRequestsMax, spec.max_queue));
  if (spec.prefix_tokens + spec.suffix_tokens == 0)
    return invalid_argument("`{}`: `prefix_tokens` and `suffix_tokens` are 0: expected a prompt of at least one token",
                            path);
  if (spec.max_queue > 0 && spec.prefix_tokens > 0)
    return invalid_argument("`{}`: with `max_queue` all requests come at once: expected `prefix_tokens` 0", path);
  return spec;
}

// Independent draws by what they are for.
enum Stream : std::uint64_t { kPrefixes, kSuffixes, kOthers };

std::vector<engine::TokenId> draw(std::uint64_t key, Stream stream, std::uint64_t number, std::size_t tokens,
                                  std::uint32_t vocab) {
  Rng rng(keyed_random(key, stream, number));
  std::vector<engine::TokenId> ids(tokens);
  for (engine::TokenId& id : ids) id = static_cast<engine::TokenId>(rng.below(vocab));
  return ids;
}

std::string digest_of(const Workload& workload) {
  Sha256 hash;
  for (const auto& wave : workload.waves) {
    hash.update_field("wave");
    for (const WorkloadRequest& request : wave) {
      hash.update_field(request.id);
      hash.update_field(std::to_string(request.output_tokens));
      hash.update_field(
          {reinterpret_cast<const char*>(request.prompt.data()), request.prompt.size() * sizeof(engine::TokenId)});
    }
  }
  hash.update_field(std::to_string(workload.spec.max_queue));
  return hash.finish().hex();
}

}  // namespace

Result<std::vector<WorkloadSpec>> parse_workloads(std::string_view text, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, name));
  const auto in_file = [&](Error error) { return Failure(std::move(error).with_context(name)); };
  const JsonFields fields(json);
  auto schema = fields.string("schema");
  if (!schema) return in_file(std::move(schema).error());
  if (*schema != kSchema) return version_mismatch("{}: `schema`: expected \"{}\", got \"{}\"", name, kSchema, *schema);
  const Json* const all = fields.find("workloads");
  if (all == nullptr || !all->is_object() || all->empty())
    return invalid_argument("{}: `workloads`: expected an object with a member for each workload", name);
  std::vector<WorkloadSpec> specs;
  for (const auto& [key, value] : all->items()) {
    auto spec = parse_one(key, value, "workloads." + key);
    if (!spec) return in_file(std::move(spec).error());
    specs.push_back(std::move(*spec));
  }
  return specs;
}

std::string_view built_in_workloads() { return kBuiltIn; }

std::size_t Workload::tokens() const {
  std::size_t tokens = 0;
  for (const auto& wave : waves) {
    for (const WorkloadRequest& request : wave) tokens += request.prompt.size() + request.output_tokens;
  }
  return tokens;
}

Workload make_workload(const WorkloadSpec& spec, std::uint64_t seed, std::uint32_t vocab,
                       std::optional<std::size_t> max_new_tokens) {
  const std::uint64_t key = mix64(seed) ^ checksum64(spec.name);
  Workload workload{.spec = spec, .waves = {}, .digest = ""};
  const std::size_t output_tokens = std::min(spec.output_tokens, max_new_tokens.value_or(spec.output_tokens));
  const auto make = [&](std::size_t i) {
    WorkloadRequest request{.id = fmt::format("r{}", i),
                            .prompt = draw(key, kPrefixes, i % spec.groups, spec.prefix_tokens, vocab),
                            .output_tokens = output_tokens};
    const auto suffix = draw(key, kSuffixes, i, spec.suffix_tokens, vocab);
    request.prompt.insert(request.prompt.end(), suffix.begin(), suffix.end());
    return request;
  };
  const std::size_t leads = spec.prefix_tokens > 0 ? std::min(spec.groups, spec.requests) : 0;
  for (std::size_t i = 0; i < spec.requests; ++i) {
    const bool fresh = i <= leads || workload.waves.back().size() == spec.concurrency;
    if (fresh) workload.waves.emplace_back();
    workload.waves.back().push_back(make(i));
  }
  workload.digest = digest_of(workload);
  return workload;
}

std::vector<engine::TokenId> other_prompt(std::uint64_t seed, std::uint64_t number, std::size_t tokens,
                                          std::uint32_t vocab) {
  return draw(mix64(seed), kOthers, number, tokens, vocab);
}

}  // namespace nmc::lab
