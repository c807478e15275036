#include "model/cache_folder.h"

#include <cstdlib>

namespace nmc::model {
namespace {

constexpr const char* kSmollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";

// Empty where it isn't set.
Path variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? Path() : Path(value);
}

}  // namespace

Result<Path> cache_folder() {
  if (const Path own = variable("NANO_MOONCAKE_CACHE"); !own.empty()) return own;
  if (const Path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "nano-mooncake";
  if (const Path home = variable("HOME"); !home.empty()) return home / ".cache" / "nano-mooncake";
  return not_found("no cache folder: expected NANO_MOONCAKE_CACHE, XDG_CACHE_HOME or HOME in the environment");
}

Result<Path> smollm2_file() {
  NMC_ASSIGN_OR_RETURN(const Path folder, cache_folder());
  const Path file = folder / kSmollm2;
  std::error_code error;
  if (std::filesystem::is_regular_file(file, error)) return file;
  return not_found("{} isn't there: `make model` fetches it", file.string());
}

}  // namespace nmc::model
