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

}  // namespace nmc::engine
