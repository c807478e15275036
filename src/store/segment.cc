#include "store/segment.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/check.h"

namespace nmc::store {
namespace {

// A wish: where the system has huge pages for shared memory, TLB misses get fewer.
void ask_for_huge_pages(const Mapping& mapping) {
  ::madvise(const_cast<std::byte*>(mapping.data()), mapping.size(), MADV_HUGEPAGE);
}

}  // namespace

Result<Segment> Segment::create(std::size_t bytes) {
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, create_memfd("nmc-segment", bytes));
  NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(fd.get(), bytes, Mapping::Access::kReadWrite, "segment"));
  ask_for_huge_pages(mapping);
  return Segment(std::move(fd), std::move(mapping));
}

std::span<std::byte> Segment::bytes(std::uint64_t offset, std::size_t size) {
  NMC_REQUIRE(offset <= mapping_.size() && size <= mapping_.size() - offset, "offset={} size={} segment={}", offset,
              size, mapping_.size());
  return {mapping_.data() + offset, size};
}

Result<SegmentView> SegmentView::open(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Failure(os_error("stat", "segment"));
  NMC_ASSIGN_OR_RETURN(Mapping mapping,
                       Mapping::map(fd, static_cast<std::size_t>(info.st_size), Mapping::Access::kRead, "segment"));
  ask_for_huge_pages(mapping);
  return SegmentView(std::move(mapping));
}

}  // namespace nmc::store
