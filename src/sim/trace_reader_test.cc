#include "sim/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <fstream>

#include "sim/line_source.h"

namespace nmc::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kTwoRequests =
    R"({"timestamp": 3, "input_length": 1025, "output_length": 7, "hash_ids": [900, 5, 6], "kind": "chat"})"
    "\n\n"
    R"({"hash_ids": [900], "timestamp": 3.5, "input_length": 512, "session": 4})"
    "\r\n";

Result<Trace> parsed(std::string_view text, TraceOptions options = {}) { return parse_trace(text, "t", options); }

std::string error_of(std::string_view text, TraceOptions options = {}) {
  const Result<Trace> trace = parsed(text, options);
  return trace ? "no error" : trace.error().message;
}

std::string compressed(std::string_view text) {
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  bytes.resize(ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 3));
  return bytes;
}

std::vector<std::uint64_t> keys_of(const Trace& trace, std::size_t request) {
  std::vector<std::uint64_t> keys;
  for (const std::uint32_t number : trace.blocks_of(trace.requests()[request])) keys.push_back(trace.key_of(number));
  return keys;
}

TEST(TraceReaderTest, ReadsThePublicFieldsInAnyOrderAndPassesOthersOver) {
  const Result<Trace> trace = parsed(kTwoRequests);
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->requests().size(), 2u);
  EXPECT_EQ(trace->requests()[0].arrival_us, 3000);
  EXPECT_EQ(trace->requests()[0].input_tokens, 1025u);
  EXPECT_EQ(trace->requests()[0].output_tokens, 7u);
  EXPECT_EQ(trace->requests()[0].session, -1);
  EXPECT_EQ(trace->requests()[1].arrival_us, 3500);
  EXPECT_EQ(trace->requests()[1].output_tokens, 0u);
  EXPECT_EQ(trace->requests()[1].session, 4);
  EXPECT_EQ(trace->requests()[1].line, 3u);
  EXPECT_THAT(keys_of(*trace, 0), ElementsAre(900, 5, 6));
  EXPECT_THAT(trace->blocks_of(trace->requests()[1]), ElementsAre(0));
  EXPECT_EQ(trace->blocks_total(), 4u);
  EXPECT_EQ(trace->blocks_unique(), 3u);
  EXPECT_EQ(trace->input_tokens_total(), 1537u);
}

TEST(TraceReaderTest, WholeBlocksOfAPrefixAreSharedWithinItsNamespace) {
  const Result<Trace> trace = parsed(
      "suffix_tokens,namespace,arrival_time,prefix_id,prefix_tokens\n"
      "10,a,0.5,p,40\n"
      "10,a,1,p,33\n"
      "10,\"b,\"\"c\"\"\",1,p,40\n"
      "0,a,2,q,16\n",
      {.block_tokens = 16});
  ASSERT_TRUE(trace) << trace.error().message;
  const auto blocks = [&](std::size_t i) { return trace->blocks_of(trace->requests()[i]); };
  EXPECT_THAT(blocks(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(blocks(1), ElementsAre(0, 1, 4));
  EXPECT_THAT(blocks(2), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(blocks(3), ElementsAre(9));
  EXPECT_EQ(trace->requests()[0].input_tokens, 50u);
  EXPECT_EQ(trace->requests()[0].arrival_us, 500'000);
}

TEST(TraceReaderTest, TheColumnsMayComeAsJson) {
  const Result<Trace> trace =
      parsed(R"({"arrival_time": 1.5, "namespace": "a", "prefix_id": 7, "prefix_tokens": 512, "suffix_tokens": 1})"
             "\n"
             R"({"arrival_time": 1.5, "namespace": "a", "prefix_id": "7", "prefix_tokens": 600, "suffix_tokens": 0})");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_THAT(trace->blocks_of(trace->requests()[0]), ElementsAre(0, 1));
  EXPECT_THAT(trace->blocks_of(trace->requests()[1]), ElementsAre(0, 2));
}

TEST(TraceReaderTest, CompressedBytesReadLikePlainOnes) {
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    text += fmt::format("{{\"timestamp\": {}, \"input_length\": 600, \"hash_ids\": [{}, {}]}}\n", i, i % 97, 1000 + i);
  }
  const Result<Trace> plain = parsed(text);
  ASSERT_TRUE(plain) << plain.error().message;
  const std::string twice = compressed(text.substr(0, text.size() / 2)) + compressed(text.substr(text.size() / 2));
  const Result<Trace> packed = parsed(twice);
  ASSERT_TRUE(packed) << packed.error().message;
  ASSERT_EQ(plain->requests().size(), 20000u);
  ASSERT_EQ(packed->requests().size(), 20000u);
  for (std::size_t i = 0; i < 20000; ++i) ASSERT_EQ(keys_of(*plain, i), keys_of(*packed, i));
}

TEST(TraceReaderTest, DamagedCompressionIsCorruptAndNamesTheFile) {
  const std::string bytes = compressed(kTwoRequests);
  const Result<Trace> cut = parsed(std::string_view(bytes).substr(0, bytes.size() - 3));
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(cut.error().message, HasSubstr("t: its compressed bytes end too early"));
  std::string damaged = bytes;
  damaged[4] = static_cast<char>(damaged[4] ^ 0xff);
  EXPECT_FALSE(parsed(damaged));
}

TEST(TraceReaderTest, WhatArrivedBeforeItsPredecessorIsRefusedWithBothLinesOrSorted) {
  const std::string text = R"({"timestamp": 9, "input_length": 1, "hash_ids": [1]})"
                           "\n"
                           R"({"timestamp": 4, "input_length": 1, "hash_ids": [2]})"
                           "\n"
                           R"({"timestamp": 9, "input_length": 1, "hash_ids": [3]})";
  EXPECT_EQ(error_of(text),
            "t:2: `timestamp`: this request arrives 5.000 ms before that of line 1; expected requests in order of "
            "arrival, or --sort");
  const Result<Trace> sorted = parsed(text, {.sort = true});
  ASSERT_TRUE(sorted);
  EXPECT_THAT(keys_of(*sorted, 0), ElementsAre(2));
  EXPECT_THAT(keys_of(*sorted, 1), ElementsAre(1));
  EXPECT_THAT(keys_of(*sorted, 2), ElementsAre(3));
}

TEST(TraceReaderTest, ErrorsNameFileLineFieldAndWhatWasExpected) {
  const auto json = [](std::string_view fields) {
    return error_of(fmt::format("{{\"timestamp\": 0, \"input_length\": 1, \"hash_ids\": [1]}}\n{{{}}}", fields));
  };
  EXPECT_EQ(json(R"("timestamp": -1, "input_length": 1, "hash_ids": [1])"),
            "t:2: `timestamp`: expected a number from 0 to 9000000000000, got -1");
  EXPECT_EQ(json(R"("timestamp": 1, "input_length": "x", "hash_ids": [1])"),
            "t:2: `input_length`: expected a whole number from 1 to 4194304, got \"x\"");
  EXPECT_EQ(json(R"("timestamp": 1, "input_length": 1)"),
            "t:2: `hash_ids`: expected an array of whole numbers, got nothing");
  EXPECT_EQ(json(R"("timestamp": 1, "input_length": 1, "hash_ids": [1.5])"),
            "t:2: `hash_ids`: expected whole numbers from 0, got 1.5");
  EXPECT_EQ(json(R"("timestamp": 1, "input_length": 513, "hash_ids": [1])"),
            "t:2: `hash_ids`: 1 ids for 513 tokens, expected 2: one a block of 512 tokens (--chunk-size)");
  EXPECT_EQ(json(R"("timestamp": 1, "timestamp": 2, "input_length": 1, "hash_ids": [1])"),
            "t:2: `timestamp` comes twice, expected it once");
  EXPECT_THAT(json(R"("timestamp": 1,)"), HasSubstr("t:2: expected a JSON object: "));
  EXPECT_THAT(error_of("{\"timestamp\": 0, \"input_length\": 1, \"hash_ids\": [1]}\n[1]"),
              HasSubstr("t:2: expected a JSON object"));
  EXPECT_EQ(error_of(" \n\n"), "t: no request in it");

  const std::string names = "arrival_time,namespace,prefix_id,prefix_tokens,suffix_tokens\n";
  EXPECT_EQ(error_of(names + "1,a,b,2"), "t:2: 4 fields, expected 5 as in the line of names");
  EXPECT_EQ(error_of(names + "x,a,b,2,3"), "t:2: `arrival_time`: expected seconds from 0 to 9000000000, got \"x\"");
  EXPECT_EQ(error_of(names + "1,a,b,2.5,3"),
            "t:2: `prefix_tokens`: expected a whole number from 0 to 4194304, got \"2.5\"");
  EXPECT_EQ(error_of(names + "1,a,b,0,0"),
            "t:2: `prefix_tokens` and `suffix_tokens` together: expected 1 to 4194304, got 0");
  EXPECT_THAT(error_of(names + "1,\"a,b,0,0"), HasSubstr("t:2: a quoted field has no end"));
  EXPECT_THAT(error_of("a,b\n1,2"), HasSubstr("t:1: no column `arrival_time`"));
  EXPECT_THAT(error_of("arrival_time," + names), HasSubstr("t:1: column `arrival_time` comes twice"));
}

TEST(TraceReaderTest, AFileThatIsNotThereIsNamed) {
  const Result<Trace> trace = read_trace("/nowhere/trace.jsonl", {});
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message, HasSubstr("/nowhere/trace.jsonl"));
}

TEST(LineSourceTest, LinesAreWholeWhereverTheChunksEnd) {
  const Result<TemporaryFolder> folder = TemporaryFolder::create();
  ASSERT_TRUE(folder);
  const Path path = folder->path() / "lines";
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < 300; ++i) lines.push_back(std::string(i * 37 % 9001, static_cast<char>('a' + i % 26)));
  {
    std::ofstream out(path);
    for (std::size_t i = 0; i < lines.size(); ++i) out << lines[i] << (i + 1 < lines.size() ? "\n" : "");
  }
  Result<LineSource> source = LineSource::open(path);
  ASSERT_TRUE(source);
  for (const std::string& expected : lines) {
    std::string_view line;
    const Result<bool> more = source->next(&line);
    ASSERT_TRUE(more && *more);
    ASSERT_EQ(line, expected);
  }
  std::string_view line;
  const Result<bool> more = source->next(&line);
  EXPECT_TRUE(more && !*more);
}

TEST(LineSourceTest, ALineThatNeverEndsIsRefused) {
  const std::string endless(LineSource::kLineBytesMax + 1, 'x');
  LineSource source = LineSource::over(endless, "t");
  std::string_view line;
  const Result<bool> more = source.next(&line);
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("t:1: a line of more than 16777216 bytes"));
}

}  // namespace
}  // namespace nmc::sim
