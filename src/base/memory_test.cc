#include "base/memory.h"

#include <gmock/gmock.h>

#include <cstdint>

namespace nmc {
namespace {

using testing::HasSubstr;

constexpr std::string_view kMeminfo =
    "MemTotal:       24684096 kB\n"
    "MemAvailable:   24276356 kB\n"
    "HugePages_Total:       0\n"
    "Odd:            many kB\n"
    "Huge:           99999999999999999 kB\n"
    "Last: 1 kB";

TEST(MeminfoField, IsInBytes) {
  EXPECT_EQ(*meminfo_field(kMeminfo, "MemAvailable"), std::uint64_t{24276356} * 1024);
  EXPECT_EQ(*meminfo_field(kMeminfo, "Last"), 1024u);
}

TEST(MeminfoField, NeedsTheWholeName) {
  EXPECT_EQ(meminfo_field(kMeminfo, "Mem").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(meminfo_field("", "Mem").error().code, ErrorCode::kNotFound);
}

TEST(MeminfoField, RefusesWhatIsNoNumberOfKilobytes) {
  for (const std::string_view name : {"HugePages_Total", "Odd", "Huge"}) {
    const auto value = meminfo_field(kMeminfo, name);
    ASSERT_FALSE(value) << name;
    EXPECT_EQ(value.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(value.error().message, HasSubstr(name));
  }
}

TEST(TotalMemory, IsAtLeastWhatIsAvailable) { EXPECT_GE(total_memory(), available_memory()); }

TEST(AvailableMemory, IsLessThanTheAddressSpace) {
  EXPECT_GT(available_memory(), 1u << 20);
  EXPECT_LT(available_memory(), std::uint64_t{1} << 50);
}

}  // namespace
}  // namespace nmc
