#include "lab/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace nmc::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> events_of(std::string_view bytes, std::size_t piece) {
  SseReader reader;
  std::vector<std::string> events;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(reader.add(bytes.substr(at, piece)).has_value());
    while (auto event = reader.next()) events.push_back(*std::move(event));
  }
  return events;
}

TEST(SseReaderTest, EveryEndOfLineGivesTheSameEventsHoweverTheBytesAreCut) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    std::string bytes;
    for (const char* line : {": alive", "", "data: {\"a\":1}", "", "event: x", "data:two", "data:  lines", "id: 7", "",
                             "database: no", "", "data", "", "data: [DONE]", ""})
      bytes += line + end;
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece)
      EXPECT_THAT(events_of(bytes, piece), ElementsAre("{\"a\":1}", "two\n lines", "", "[DONE]")) << piece;
  }
}

TEST(SseReaderTest, AnEventWithoutItsEmptyLineIsNone) {
  SseReader reader;
  ASSERT_TRUE(reader.add("data: x\n").has_value());
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.has_part());
  ASSERT_TRUE(reader.add("\n").has_value());
  EXPECT_FALSE(reader.has_part());
}

TEST(SseReaderTest, AnEventWithoutEndIsRefused) {
  SseReader reader;
  const std::string piece(1 << 20, 'x');
  Result<void> added = reader.add("data: ");
  for (std::size_t i = 0; added && i < 17; ++i) added = reader.add(piece);
  ASSERT_FALSE(added.has_value());
  EXPECT_THAT(added.error().message, HasSubstr("larger than"));
}

}  // namespace
}  // namespace nmc::lab
