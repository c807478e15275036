#include "lab/kernel_usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace nmc::lab {
namespace {

double user_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
}

TEST(KernelUsageTest, OfThisProcessItAgreesWithTheSystemCalls) {
  const double begin = user_seconds();
  volatile std::uint64_t work = 0;
  while (user_seconds() < begin + 0.1) work = work + 1;
  const auto usage = read_process_usage(::getpid());
  ASSERT_TRUE(usage.has_value()) << usage.error().message;
  EXPECT_NEAR(usage->user_s, user_seconds(), 0.05);
  EXPECT_GT(usage->rss_bytes, 1u << 20);
  ASSERT_TRUE(usage->pss_bytes);
  EXPECT_LE(*usage->pss_bytes, usage->rss_bytes * 2);
  EXPECT_GT(usage->voluntary_switches + usage->involuntary_switches, 0u);
}

TEST(KernelUsageTest, NamesWithSpacesAndParenthesesDoNotShiftTheFields) {
  auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.has_value());
  std::string stat = "7 (a ) b(c)) S";
  for (int field = 4; field <= 52; ++field) stat += fmt::format(" {}", field * 100);
  ASSERT_TRUE(write_file_atomic(folder->path() / "7" / "stat", stat + "\n").has_value());
  ASSERT_TRUE(write_file_atomic(folder->path() / "7" / "task" / "8" / "status",
                                "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t3\n")
                  .has_value());
  const auto usage = read_process_usage(7, folder->path());
  ASSERT_TRUE(usage.has_value()) << usage.error().message;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_EQ(usage->user_s, 1400 / ticks);
  EXPECT_EQ(usage->system_s, 1500 / ticks);
  EXPECT_EQ(usage->rss_bytes, 2400u * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(usage->voluntary_switches, 5u);
  EXPECT_EQ(usage->involuntary_switches, 3u);
  EXPECT_FALSE(usage->pss_bytes) << "it isn't told";
  EXPECT_FALSE(usage->read_bytes);
}

TEST(KernelUsageTest, AProcessThatIsNotThereIsAnError) { EXPECT_FALSE(read_process_usage(1 << 30).has_value()); }

TEST(KernelUsageTest, BytesOfInterfacesAreReadByTheirColumns) {
  const auto interfaces = parse_network(
      "Inter-|   Receive    |  Transmit\n face |bytes packets |bytes\n"
      "    lo: 11 2 3 4 5 6 7 8 99 10 11 12 13 14 15 16\n  eth0:21 2 3 4 5 6 7 8 31 1 1 1 1 1 1 1\n  bad: 1 2\n");
  ASSERT_EQ(interfaces.size(), 2u);
  EXPECT_EQ(interfaces.at("lo").received, 11u);
  EXPECT_EQ(interfaces.at("lo").sent, 99u);
  EXPECT_EQ(interfaces.at("eth0").received, 21u);
  EXPECT_EQ(interfaces.at("eth0").sent, 31u);
}

TEST(KernelUsageTest, TheHostIsNamed) {
  const HostFacts facts = read_host();
  EXPECT_THAT(facts.kernel, ::testing::StartsWith("Linux "));
  EXPECT_GE(facts.cores, 1u);
  EXPECT_GT(facts.memory_bytes, 1u << 20);
}

}  // namespace
}  // namespace nmc::lab
