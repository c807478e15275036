#include "evidence/zip.h"

#include <gmock/gmock.h>

#include "base/hash.h"
#include "base/rng.h"

namespace nmc::evidence {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;

// An archive of two files, and where its parts are.
class ZipTest : public ::testing::Test {
 protected:
  const std::map<std::string, std::string> files = {{"a.json", "{}\n"}, {"b/c", std::string("\0\xff text", 7)}};
  const std::string archive = *write_zip(files);
  const std::size_t second = kLocalBytes + 6 + 3;  // local header
  const std::size_t central = second + kLocalBytes + 3 + 7;
  const std::size_t second_central = central + kCentralBytes + 6;
  const std::size_t end = archive.size() - kEndBytes;

  static ZipContent read(const std::string& bytes) { return read_zip(as_bytes(bytes)); }
  static std::vector<std::string> kinds(const std::string& bytes) {
    std::vector<std::string> found;
    const ZipContent content = read(bytes);
    for (const ContainerFault& fault : content.faults) found.push_back(fault.kind);
    return found;
  }
  // With `value` in `size` bytes at `at`.
  static std::string with(std::string bytes, std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
    return bytes;
  }
};

TEST_F(ZipTest, ReadsWhatItWrites) {
  const ZipContent content = read(archive);
  EXPECT_THAT(content.faults, ElementsAre());
  std::map<std::string, std::string> found;
  for (const auto& [name, bytes] : content.entries)
    found.emplace(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  EXPECT_EQ(found, files);
}

// What a reviewer was shown can't differ in one bit from what was verified.
TEST_F(ZipTest, EveryChangedBitIsAFault) {
  for (std::size_t at = 0; at < archive.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = archive;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_THAT(kinds(changed), ::testing::Not(ElementsAre())) << "bit " << bit << " of byte " << at;
    }
  }
}

TEST_F(ZipTest, EveryByteTooFewOrTooManyIsAFault) {
  for (std::size_t at = 0; at < archive.size(); ++at) {
    EXPECT_THAT(kinds(archive.substr(0, at)), ::testing::Not(ElementsAre())) << at;
    EXPECT_THAT(kinds(std::string(archive).insert(at, 1, '\0')), ::testing::Not(ElementsAre())) << at;
    EXPECT_THAT(kinds(std::string(archive).erase(at, 1)), ::testing::Not(ElementsAre())) << at;
  }
}

TEST_F(ZipTest, NamesWhatIsWrong) {
  EXPECT_THAT(kinds(archive.substr(0, archive.size() * 9 / 10)), ElementsAre("truncated"));
  EXPECT_THAT(kinds("#!/bin/sh\n" + archive), ElementsAre("malformed"));
  EXPECT_THAT(kinds(archive + "more"), ElementsAre("malformed"));
  EXPECT_THAT(read(archive + "more").faults[0].detail, HasSubstr("4 bytes after the end"));
  EXPECT_THAT(kinds(with(archive, central + 38, std::uint64_t{0120777} << 16, 4)), ElementsAre("link"));
  EXPECT_THAT(kinds(with(archive, second + 18, 6, 4)), ElementsAre("inconsistent"));  // size in the local header
  EXPECT_THAT(kinds(with(archive, second + kLocalBytes, 'x', 1)), ElementsAre("inconsistent"));
  EXPECT_THAT(kinds(with(archive, second_central + 42, 0, 4)), ElementsAre("malformed"));  // over the first one
  EXPECT_THAT(kinds(with(archive, central + 8, 0x0801, 2)), ElementsAre("malformed"));     // encrypted
  EXPECT_THAT(kinds(with(archive, central + 12, 1, 2)), ElementsAre("malformed"));         // its time
  EXPECT_THAT(kinds(with(archive, second - 1, '?', 1)), ElementsAre("modified"));
  EXPECT_THAT(kinds(with(archive, end + 10, 3, 2)), ElementsAre("malformed"));  // entries, but in one place
}

// All that the end says is right, but there is something that no entry has.
TEST_F(ZipTest, NothingLiesBetweenItsParts) {
  std::string hidden = std::string(archive).insert(central, "hidden");
  hidden = with(hidden, end + 6 + 16, central + 6, 4);
  EXPECT_THAT(read(hidden).faults,
              ElementsAre(ContainerFault{"malformed", "", "bytes between the entries and the central directory"}));
  hidden = std::string(archive).insert(end, "hidden");
  hidden = with(hidden, end + 6 + 12, end - central + 6, 4);
  EXPECT_THAT(read(hidden).faults,
              ElementsAre(ContainerFault{"malformed", "", "bytes between the central directory and its end"}));
}

TEST_F(ZipTest, ItsEntriesHaveOneOrder) {
  const std::size_t first_bytes = kLocalBytes + 6 + 3, second_bytes = kLocalBytes + 3 + 7;
  const std::string turned = archive.substr(second, second_bytes) + archive.substr(0, first_bytes) +
                             with(archive, second_central + 42, 0, 4).substr(second_central, end - second_central) +
                             with(archive, central + 42, second_bytes, 4).substr(central, second_central - central) +
                             archive.substr(end);
  EXPECT_THAT(read(turned).faults,
              ElementsAre(ContainerFault{"malformed", "a.json", "it comes after an entry of a later name"}));
}

TEST_F(ZipTest, ABombIsNamedFromWhatItSays) {
  const std::size_t method = central + 10, packed = central + 20, size = central + 24;
  const std::string deflated = with(archive, method, 8, 2);
  EXPECT_THAT(kinds(with(deflated, size, 16 << 20, 4)), Contains("bomb"));
  EXPECT_THAT(kinds(with(archive, size, kZipFileBytesMax + 1, 4)), Contains("bomb"));
  EXPECT_THAT(kinds(with(archive, packed, 0xffffffff, 4)), Contains("truncated"));
  EXPECT_THAT(kinds(deflated), ElementsAre("malformed"));
}

TEST_F(ZipTest, AFaultyEntryKeepsItsName) {
  const ZipContent content = read(with(archive, central + 38, std::uint64_t{0120777} << 16, 4));
  ASSERT_EQ(content.entries.size(), 2u);
  EXPECT_EQ(content.entries[0].name, "a.json");
  EXPECT_TRUE(content.entries[0].bytes.empty());
  EXPECT_EQ(content.faults[0].path, "a.json");
}

TEST_F(ZipTest, RefusesToWriteWhatItWouldNotRead) {
  EXPECT_THAT(write_zip({{std::string(kZipNameBytesMax + 1, 'n'), ""}}).error().message, HasSubstr("1025 bytes"));
  EXPECT_THAT(write_zip({{"big", std::string(kZipFileBytesMax + 1, 'x')}}).error().message, HasSubstr("big: 67108865"));
  std::map<std::string, std::string> many;
  for (std::size_t i = 0; i <= kZipEntriesMax; ++i) many.emplace(std::to_string(i), "");
  EXPECT_THAT(write_zip(many).error().message, HasSubstr("10001 files"));
}

// Whatever passes is what would be written of it.
TEST_F(ZipTest, HeadersOfChanceAreRefusedOrExact) {
  Rng rng(20261201);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = archive;
    for (std::uint64_t changes = 1 + rng.below(4); changes > 0; --changes)
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    if (read(bytes).faults.empty()) {
      EXPECT_EQ(bytes, archive);
    }
  }
}

}  // namespace
}  // namespace nmc::evidence
