// The ZIP archives of evidence bundles: entries are stored, not compressed, one after another, with fixed times and
// modes, so that equal files make equal bytes on any machine and with any library version, and so that nothing can
// unpack to more than it is. The reader takes that form and refuses every other by name: what a reviewer sees with one
// tool is what every other tool sees.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nmc::evidence {

inline constexpr std::uint64_t kZipBytesMax = 0xfffffffe;  // beyond it an archive has another form
inline constexpr std::size_t kZipEntriesMax = 10'000;

// By name, in that order. kInvalidArgument: too many entries, a name beyond 65,535 bytes, or too large altogether.
Result<std::string> write_zip(const std::map<std::string, std::string>& files);

// What isn't as it has to be, by the kinds of bundle.h.
struct ContainerFault {
  std::string kind, path, detail;
};

struct ZipEntry {
  std::string name;
  std::span<const std::byte> bytes;  // within the archive's
};
struct ZipContent {
  std::vector<ZipEntry> entries;  // in the archive's order; those with a fault aren't among them
  std::vector<ContainerFault> faults;
};
// Reads nothing outside of `archive`, whatever it says, and copies no content.
ZipContent read_zip(std::span<const std::byte> archive);

}  // namespace nmc::evidence
