#include "store/segment.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/index.h"
#include "store/space.h"

namespace nmc::store {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kSizes[] = {2 * kGiB - 1, 2 * kGiB + 1, 4 * kGiB + 1};

// Nine GiB of a file without memory: only the header is ever touched.
TEST(SegmentSize, BytesBeyondTwoAndFourGiBAreWhereTheyWereAskedFor) {
  UniqueFd fd(::memfd_create("segment", MFD_CLOEXEC));
  ASSERT_TRUE(fd);
  const std::uint64_t bytes = 9 * kGiB;
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(sizeof(SegmentHeader) + bytes)), 0);
  const SegmentId id{7, 3, 1};
  SegmentHeader header{};
  header.magic = kSegmentMagic;
  header.version = kSegmentVersion;
  header.header_bytes = sizeof(SegmentHeader);
  header.data_bytes = bytes;
  header.boot_id = id.boot_id;
  header.incarnation = id.incarnation;
  header.number = id.number;
  ASSERT_EQ(::pwrite(fd.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  const SegmentView view = SegmentView::open(fd.get(), id).value();
  ASSERT_EQ(view.size(), bytes);
  const std::byte* const begin = view.bytes(0, 1).data();
  for (const std::uint64_t size : kSizes) {
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{64}, bytes - size}) {
      const auto span = view.bytes(offset, size);
      EXPECT_EQ(span.size(), size);
      EXPECT_EQ(static_cast<std::uint64_t>(span.data() - begin), offset);
    }
    EXPECT_TRUE(view.bytes(bytes - size + 1, size).empty());
    EXPECT_TRUE(view.bytes(UINT64_MAX - size + 1, size).empty()) << "offset and size wrap";
  }
}

TEST(SegmentSize, SpaceForObjectsBeyondTwoAndFourGiBDoesNotOverlapAndComesBackWhole) {
  SegmentSpace space(9 * kGiB, 256);
  std::vector<Place> places;
  for (std::uint32_t i = 0; i < 3; ++i) {
    places.push_back(space.take_bytes(kSizes[i], i).value());
    EXPECT_GE(places[i].bytes, kSizes[i]);
    EXPECT_LE(places[i].offset + places[i].bytes, space.capacity());
    for (std::uint32_t j = 0; j < i; ++j) {
      EXPECT_TRUE(places[i].offset + places[i].bytes <= places[j].offset ||
                  places[j].offset + places[j].bytes <= places[i].offset);
    }
    // As the index keeps it.
    const Location at = unpack_location(pack_location({3, places[i].offset}));
    EXPECT_EQ(at.offset, places[i].offset);
    EXPECT_EQ(at.segment, 3);
  }
  EXPECT_FALSE(space.take_bytes(kSizes[2], 3)) << "less is left";
  for (const Place& place : places) space.give(place);
  EXPECT_EQ(space.used_bytes(), 0u);
  EXPECT_TRUE(space.take_bytes(9 * kGiB, 0));
}

}  // namespace
}  // namespace nmc::store
