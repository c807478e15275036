#include "store/segment.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/check.h"
#include "base/failpoint.h"

namespace nmc::store {
namespace {

// A wish: where the system has huge pages for shared memory, TLB misses get fewer.
void ask_for_huge_pages(const Mapping& mapping) {
  ::madvise(const_cast<std::byte*>(mapping.data()), mapping.size(), MADV_HUGEPAGE);
}

Result<Mapping> map_segment(int fd, const SegmentId& id, Mapping::Access access) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Failure(os_error("stat", "segment"));
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < sizeof(SegmentHeader))
    return corrupt("segment {}: {} bytes, expected at least a header", id.number, bytes);
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd, bytes, access, "segment"));
  const auto& header = *reinterpret_cast<const SegmentHeader*>(mapping.data());
  if (header.magic != kSegmentMagic) return corrupt("segment {}: wrong magic", id.number);
  if (header.version != kSegmentVersion)
    return version_mismatch("segment {}: version {}, expected {}", id.number, header.version, kSegmentVersion);
  if (header.header_bytes != sizeof(SegmentHeader) || header.data_bytes != bytes - sizeof(SegmentHeader) ||
      header.name.back() != 0) {
    return corrupt("segment {}: its header doesn't describe a file of {} bytes", id.number, bytes);
  }
  if (header.boot_id != id.boot_id || header.number != id.number || header.incarnation != id.incarnation)
    return version_mismatch("segment {}: belongs to another index or an earlier time", id.number);
  ask_for_huge_pages(mapping);
  return mapping;
}

}  // namespace

Result<Segment> Segment::create(SharedFiles& files, const SegmentId& id, std::uint32_t owner, std::string_view name,
                                std::size_t bytes) {
  const std::string file = file_name(id.number);
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, files.create(file, sizeof(SegmentHeader) + bytes));
  auto mapping = [&]() -> Result<Mapping> {
    NMC_RETURN_IF_ERROR(reserve_memory(fd.get(), 0, sizeof(SegmentHeader) + bytes, "segment " + std::string(name)));
    if (auto injected = failpoint("store.mount")) return Failure(*std::move(injected));
    return Mapping::map(fd.get(), sizeof(SegmentHeader) + bytes, Mapping::Access::kReadWrite, "segment");
  }();
  if (!mapping) {
    files.remove(file);
    return Failure(std::move(mapping).error());
  }
  ask_for_huge_pages(*mapping);
  auto* header = reinterpret_cast<SegmentHeader*>(mapping->data());
  header->magic = kSegmentMagic;
  header->version = kSegmentVersion;
  header->header_bytes = sizeof(SegmentHeader);
  header->data_bytes = bytes;
  header->boot_id = id.boot_id;
  header->incarnation = id.incarnation;
  header->number = id.number;
  Segment segment(std::move(fd), *std::move(mapping));
  segment.set_owner(owner, name);
  return segment;
}

Result<Segment> Segment::open(UniqueFd fd, const SegmentId& id) {
  NMC_ASSIGN_OR_RETURN(Mapping mapping, map_segment(fd.get(), id, Mapping::Access::kReadWrite));
  NMC_RETURN_IF_ERROR(keep_memory(fd.get(), 0, mapping.size(), "a segment"));
  return Segment(std::move(fd), std::move(mapping));
}

void Segment::set_owner(std::uint32_t owner, std::string_view name) {
  NMC_REQUIRE(name.size() <= kNameBytesMax, "{} bytes", name.size());
  header().owner = owner;
  header().name.fill(0);
  std::copy(name.begin(), name.end(), header().name.begin());
}

std::string Segment::name() const { return std::string(header().name.data()); }

std::span<std::byte> Segment::bytes(std::uint64_t offset, std::size_t size) {
  NMC_REQUIRE(offset <= this->size() && size <= this->size() - offset, "offset={} size={} segment={}", offset, size,
              this->size());
  return {mapping_.data() + sizeof(SegmentHeader) + offset, size};
}

Result<SegmentView> SegmentView::open(int fd, const SegmentId& id) {
  NMC_ASSIGN_OR_RETURN(Mapping mapping, map_segment(fd, id, Mapping::Access::kRead));
  return SegmentView(std::move(mapping));
}

}  // namespace nmc::store
