#include "store/pin_table.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/entropy.h"

namespace nmc::store {

PinTable::PinTable(UniqueFd fd, Mapping mapping)
    : fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      header_(reinterpret_cast<PinTableHeader*>(mapping_.data())),
      words_(reinterpret_cast<SharedWord*>(mapping_.data() + sizeof(PinTableHeader))),
      client_(header_->client),
      entry_count_(header_->entry_count) {}

Result<PinTable> PinTable::create(SharedFiles& files, const std::string& name, std::uint32_t client,
                                  std::uint32_t entry_count, std::uint64_t boot_id) {
  const std::size_t bytes = sizeof(PinTableHeader) + std::size_t{entry_count} * kWordsAnEntry * sizeof(SharedWord);
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, files.create(name, bytes));
  NMC_RETURN_IF_ERROR(reserve_memory(fd.get(), 0, sizeof(PinTableHeader), "a pin table"));
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd.get(), bytes, Mapping::Access::kReadWrite, "pin table"));
  auto* header = reinterpret_cast<PinTableHeader*>(mapping.data());  // the file's zeros are valid words
  header->magic = kPinTableMagic;
  header->version = kPinTableVersion;
  header->header_bytes = sizeof(PinTableHeader);
  header->file_bytes = bytes;
  header->boot_id = boot_id;
  header->client = client;
  header->identity = machine_random();
  header->entry_count = entry_count;
  return PinTable(std::move(fd), std::move(mapping));
}

Result<PinTable> PinTable::open(UniqueFd fd, std::uint64_t boot_id) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Failure(os_error("stat", "pin table"));
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < sizeof(PinTableHeader)) return corrupt("pin table: {} bytes, expected at least a header", bytes);
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd.get(), bytes, Mapping::Access::kReadWrite, "pin table"));
  const auto& header = *reinterpret_cast<const PinTableHeader*>(mapping.data());
  if (header.magic != kPinTableMagic) return corrupt("pin table: wrong magic");
  if (header.version != kPinTableVersion) {
    return version_mismatch("pin table: version {}, expected {}", header.version, kPinTableVersion);
  }
  const std::uint64_t expected =
      sizeof(PinTableHeader) + std::uint64_t{header.entry_count} * kWordsAnEntry * sizeof(SharedWord);
  if (header.header_bytes != sizeof(PinTableHeader) || header.file_bytes != bytes || expected != bytes) {
    return corrupt("pin table: {} bytes for {} entries, expected {}", bytes, header.entry_count, expected);
  }
  if (header.boot_id != boot_id) return version_mismatch("pin table: belongs to another index");
  return PinTable(std::move(fd), std::move(mapping));
}

Result<void> PinTable::reserve(std::uint32_t entries) {
  return reserve_memory(fd_.get(), 0,
                        sizeof(PinTableHeader) + std::uint64_t{entries} * kWordsAnEntry * sizeof(SharedWord),
                        "a pin table");
}

std::uint64_t PinTable::hits() const {
  std::uint64_t sum = 0;
  for (const LookupCell& cell : header_->lookups) sum += cell.hits.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t PinTable::misses() const {
  std::uint64_t sum = 0;
  for (const LookupCell& cell : header_->lookups) sum += cell.misses.load(std::memory_order_relaxed);
  return sum;
}

Result<void> PinTable::lock_for_life() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (retry_on_eintr([&] { return ::fcntl(fd_.get(), F_SETLK, &lock); }) == 0) return {};
  if (errno == EAGAIN || errno == EACCES) return already_exists("pin table {}: another process holds it", client_);
  return Failure(os_error("lock", "pin table"));
}

bool PinTable::locked_by_another() const {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  // An error isn't a proof of death.
  return retry_on_eintr([&] { return ::fcntl(fd_.get(), F_GETLK, &lock); }) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace nmc::store
