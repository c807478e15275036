#include "lab/http_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kChunked =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n";
constexpr std::string_view kSized =
    "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 12\r\nConnection: close\r\n\r\nhello, world";
constexpr std::string_view kToTheEnd = "HTTP/1.0 200 OK\r\n\r\nhello, world";

// The body, with the bytes cut into pieces of that size.
std::string body_of(std::string_view bytes, std::size_t piece, HttpAnswer& answer, bool closes) {
  std::string body;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(answer.add(bytes.substr(at, piece)).has_value()) << piece;
    body += answer.take_body();
  }
  EXPECT_TRUE(!closes || answer.close().has_value());
  return body + answer.take_body();
}

TEST(HttpAnswerTest, EveryFramingGivesTheBodyHoweverTheBytesAreCut) {
  for (const std::string_view bytes : {kChunked, kSized, kToTheEnd}) {
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
      HttpAnswer answer;
      EXPECT_EQ(body_of(bytes, piece, answer, bytes == kToTheEnd), "hello, world") << piece;
      EXPECT_TRUE(answer.is_done());
      EXPECT_EQ(answer.status(), bytes == kSized ? 429 : 200);
      EXPECT_EQ(answer.keeps_alive(), bytes == kChunked);
    }
  }
}

TEST(HttpAnswerTest, ABodyCanBeTakenBeforeItIsWhole) {
  HttpAnswer answer;
  ASSERT_TRUE(answer.add(kChunked.substr(0, kChunked.find("7;x"))).has_value());
  EXPECT_TRUE(answer.has_header());
  EXPECT_EQ(answer.header("content-type"), "text/event-stream");
  EXPECT_EQ(answer.header("x-absent"), "");
  EXPECT_EQ(answer.take_body(), "hello");
  EXPECT_FALSE(answer.is_done());
}

TEST(HttpAnswerTest, AnEndTooEarlyIsToldFromNoAnswer) {
  HttpAnswer nothing;
  EXPECT_THAT(nothing.close().error().message, HasSubstr("without an answer"));
  for (std::size_t size = 1; size < kChunked.size(); ++size) {
    HttpAnswer cut;
    ASSERT_TRUE(cut.add(kChunked.substr(0, size)).has_value());
    const Result<void> closed = cut.close();
    ASSERT_FALSE(closed.has_value()) << size;
    EXPECT_THAT(closed.error().message, HasSubstr("before its answer was whole"));
  }
}

TEST(HttpAnswerTest, OtherProtocolsAreRefused) {
  HttpAnswer answer;
  const Result<void> added = answer.add("SSH-2.0-OpenSSH_9.2\r\n\r\n");
  ASSERT_FALSE(added.has_value());
  EXPECT_THAT(added.error().message, HasSubstr("no HTTP"));
}

}  // namespace
}  // namespace nmc::lab
