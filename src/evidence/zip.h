// The ZIP archives of evidence bundles: entries are stored, not compressed, one after another, with fixed times and
// modes, so that equal files make equal bytes on any machine and with any library version, and so that nothing can
// unpack to more than it is. The reader takes that form and refuses every other by name: what a reviewer sees with one
// tool is what every other tool sees.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"

namespace nmc::evidence {

// Far more than evidence needs, and little enough to be checked on any machine.
inline constexpr std::size_t kZipEntriesMax = 10'000;
inline constexpr std::size_t kZipNameBytesMax = 1024;
inline constexpr std::uint64_t kZipFileBytesMax = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kZipBytesMax = std::uint64_t{1} << 30;  // of the whole archive

// By name, in that order. kInvalidArgument names the limit that is exceeded.
Result<std::string> write_zip(const std::map<std::string, std::string>& files);

// What isn't as it has to be, by the kinds of bundle.h.
struct ContainerFault {
  std::string kind, path, detail;

  bool operator==(const ContainerFault&) const = default;
  auto operator<=>(const ContainerFault& other) const {  // by path first
    return std::tie(path, kind, detail) <=> std::tie(other.path, other.kind, other.detail);
  }
};

struct ZipEntry {
  std::string name;
  std::span<const std::byte> bytes;  // within the archive's
};
struct ZipContent {
  std::vector<ZipEntry> entries;  // in the archive's order; those with a fault have no bytes
  std::vector<ContainerFault> faults;
  bool complete = false;  // all entries were found; else a fault says where the archive can't be followed
};
// Reads nothing outside of `archive`, whatever it says, and copies no content. Without a fault, and with no name twice
// (which name_faults() of bundle.h tells), write_zip() of the entries is the archive, byte for byte: there is nothing
// in it that could be changed unseen.
ZipContent read_zip(std::span<const std::byte> archive);

}  // namespace nmc::evidence
