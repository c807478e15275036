#include "engine/request.h"

namespace nmc::engine {

const char* cache_source_name(CacheSource source) {
  switch (source) {
    case CacheSource::kNone: return "none";
    case CacheSource::kDram: return "dram";
    case CacheSource::kDisk: return "disk";
    case CacheSource::kRemote: return "remote";
    case CacheSource::kMixed: return "mixed";
  }
  return "none";
}

std::vector<TokenId> ending_ids(const GenerateRequest& request, std::span<const TokenId> eos_ids) {
  std::vector<TokenId> ids = request.stop_ids;
  if (!request.ignore_eos) ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  return ids;
}

}  // namespace nmc::engine
