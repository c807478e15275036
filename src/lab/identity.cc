#include "lab/identity.h"

#include <hwy/highway.h>
#include <openssl/crypto.h>

#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include "base/failpoint.h"
#include "base/hash.h"
#include "base/version.h"
#include "evidence/canonical.h"
#include "kernels/kernels.h"
#include "lab/kernel_usage.h"

namespace nmc::lab {
namespace {

constexpr std::string_view kDirty = "+dirty";

std::string dotted(unsigned major, unsigned minor, unsigned patch) {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

// Those that shape what is computed, or how fast.
std::map<std::string, std::string> libraries() {
  return {
      {"boost", dotted(BOOST_VERSION / 100'000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)},
      {"fmt", dotted(FMT_VERSION / 10'000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"highway", dotted(HWY_MAJOR, HWY_MINOR, HWY_PATCH)},
      {"nlohmann-json", dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"openssl", ::OpenSSL_version(OPENSSL_VERSION_STRING)}};
}

}  // namespace

evidence::BuildIdentity build_identity() {
  const BuildInfo info = build_info();
  std::string_view commit = info.commit;
  const bool dirty = commit.ends_with(kDirty);
  if (dirty) commit.remove_suffix(kDirty.size());
  return {.version = info.version,
          .commit = std::string(commit),
          .source_digest = info.source_digest,
          .build_type = info.build_type,
          .compiler = info.compiler,
          .dirty = dirty,
          .failpoints = kHasFailpoints,
          .libraries = libraries()};
}

evidence::MachineIdentity machine_identity() {
  const HostFacts host = read_host();
  evidence::MachineIdentity machine{.fingerprint = "",
                                    .cpu = host.cpu,
                                    .kernel = host.kernel,
                                    .instruction_level = kernels::instruction_level(),
                                    .cpus = host.cores,
                                    .memory_bytes = host.memory_bytes};
  Sha256 hash;
  hash.update_field(machine.cpu).update_field(machine.kernel).update_field(machine.instruction_level);
  hash.update_field(std::to_string(machine.cpus));
  hash.update_field(std::to_string(machine.memory_bytes >> 30));  // whole GiB: the kernel keeps some for itself
  machine.fingerprint = hash.finish().hex();
  return machine;
}

evidence::ModelIdentity model_identity(const model::Model& model) {
  return {.name = model.name,
          .digest = sha256(model.decoder->weights_digest() + model.config.digest_text()).hex(),
          .dtype = std::string(dtype_name(model.decoder->dtype())),
          .parameters = model.config.parameters()};
}

std::string_view tier_of_model(std::string_view spec) {
  return spec == "tiny" ? evidence::kTierMechanism : evidence::kTierCheckpoint;
}

Json simulation_provenance_json(Json workload) {
  return provenance_json(
      {.evidence_tier = evidence::kTierSimulation, .workload = std::move(workload), .of_machine = false});
}

Json provenance_json(const Origin& origin) {
  Json json = evidence::provenance_json(
      {.evidence_tier = std::string(origin.evidence_tier),
       .build = build_identity(),
       .machine = origin.of_machine ? machine_identity() : evidence::MachineIdentity(),
       .model = origin.model != nullptr ? model_identity(*origin.model) : evidence::ModelIdentity()});
  if (!origin.of_machine) json["machine"] = nullptr;
  if (origin.model == nullptr) json["model"] = nullptr;
  json["workload_digest"] = evidence::canonical_digest(origin.workload).hex();
  return json;
}

}  // namespace nmc::lab
