// XXH3 of short texts, compiled with XXH_INLINE_ALL: the library's own function is a call by way of a table, which
// costs a third of a look in the store's index.
#include <xxhash.h>

#include "base/hash.h"

namespace nmc {

std::uint64_t checksum64(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace nmc
