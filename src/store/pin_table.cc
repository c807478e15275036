#include "store/pin_table.h"

#include <sys/stat.h>

#include <new>

namespace nmc::store {

PinTable::PinTable(UniqueFd fd, Mapping mapping)
    : fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      header_(reinterpret_cast<PinTableHeader*>(mapping_.data())),
      words_(reinterpret_cast<SharedWord*>(mapping_.data() + sizeof(PinTableHeader))),
      client_(header_->client),
      entry_count_(header_->entry_count) {}

Result<PinTable> PinTable::create(std::uint32_t client, std::uint32_t entry_count, std::uint64_t boot_id) {
  const std::size_t bytes = sizeof(PinTableHeader) + std::size_t{entry_count} * sizeof(SharedWord);
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, create_memfd("nmc-pins", bytes));
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd.get(), bytes, Mapping::Access::kReadWrite, "pin table"));
  auto* header = reinterpret_cast<PinTableHeader*>(mapping.data());  // the file's zeros are valid words
  header->magic = kPinTableMagic;
  header->version = kPinTableVersion;
  header->header_bytes = sizeof(PinTableHeader);
  header->file_bytes = bytes;
  header->boot_id = boot_id;
  header->client = client;
  header->entry_count = entry_count;
  return PinTable(std::move(fd), std::move(mapping));
}

Result<PinTable> PinTable::open(int fd, std::uint64_t boot_id) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Failure(os_error("stat", "pin table"));
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < sizeof(PinTableHeader)) return corrupt("pin table: {} bytes, expected at least a header", bytes);
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd, bytes, Mapping::Access::kReadWrite, "pin table"));
  const auto& header = *reinterpret_cast<const PinTableHeader*>(mapping.data());
  if (header.magic != kPinTableMagic) return corrupt("pin table: wrong magic");
  if (header.version != kPinTableVersion) {
    return version_mismatch("pin table: version {}, expected {}", header.version, kPinTableVersion);
  }
  const std::uint64_t expected = sizeof(PinTableHeader) + std::uint64_t{header.entry_count} * sizeof(SharedWord);
  if (header.header_bytes != sizeof(PinTableHeader) || header.first_entry != 0 || header.file_bytes != bytes ||
      expected != bytes) {
    return corrupt("pin table: {} bytes for {} entries, expected {}", bytes, header.entry_count, expected);
  }
  if (header.boot_id != boot_id) return version_mismatch("pin table: belongs to another index");
  return PinTable(UniqueFd(), std::move(mapping));
}

}  // namespace nmc::store
