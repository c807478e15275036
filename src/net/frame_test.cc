#include "net/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "net/body.h"
#include "net/handshake.h"

namespace nmc::net {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr FrameLimits kLimits{.body_bytes_max = 100, .payload_bytes_max = 1000};
constexpr FrameHeader kHeader{.op = 0x0102,
                              .status = FrameStatus::kOk,
                              .body_bytes = 0x40,
                              .request_id = 0x1112131415161718,
                              .payload_bytes = 999};

template <typename Value>
FrameHeaderBytes patched(FrameHeaderBytes bytes, std::size_t at, Value value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

ErrorCode code_of(const FrameHeaderBytes& bytes) {
  const Result<FrameHeader> header = decode_frame_header(bytes, kLimits);
  return header ? ErrorCode::kInternal : header.error().code;
}

TEST(FrameHeader, LiesOnTheWireAsDocumented) {
  const FrameHeaderBytes bytes = encode_frame_header(kHeader);
  const std::string expected =
      "NMCW"
      "\x01\x00"
      "\x02\x01"
      "\x00\x00\x00\x00"
      "\x40\x00\x00\x00"
      "\x18\x17\x16\x15\x14\x13\x12\x11"
      "\xe7\x03\x00\x00\x00\x00\x00\x00"s;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), expected);
}

TEST(FrameHeader, ReturnsAsItWasSent) {
  const Result<FrameHeader> header = decode_frame_header(encode_frame_header(kHeader), kLimits);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(*header, kHeader);
}

TEST(FrameHeader, IsRefusedWhereAnyFieldLies) {
  const FrameHeaderBytes good = encode_frame_header(kHeader);
  for (std::size_t i = 0; i < kFrameMagicBytes; ++i) {
    EXPECT_EQ(code_of(patched(good, i, std::uint8_t{'x'})), ErrorCode::kCorrupt) << "magic byte " << i;
  }
  EXPECT_EQ(code_of(patched(good, 8, std::uint32_t{2})), ErrorCode::kCorrupt) << "status";
  EXPECT_EQ(code_of(patched(good, 12, std::uint32_t{101})), ErrorCode::kCorrupt) << "body";
  EXPECT_EQ(code_of(patched(good, 12, UINT32_MAX)), ErrorCode::kCorrupt) << "body";
  EXPECT_EQ(code_of(patched(good, 24, std::uint64_t{1001})), ErrorCode::kCorrupt) << "payload";
  EXPECT_EQ(code_of(patched(good, 24, UINT64_MAX)), ErrorCode::kCorrupt) << "payload";
  EXPECT_EQ(code_of(patched(good, 8, std::uint32_t{1})), ErrorCode::kCorrupt) << "an error with a payload";
}

TEST(FrameHeader, OfAnotherVersionNamesBoth) {
  const Result<FrameHeader> header =
      decode_frame_header(patched(encode_frame_header(kHeader), 4, std::uint16_t{7}), kLimits);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(header.error().message, AllOf(HasSubstr("version 7"), HasSubstr("version 1")));
}

TEST(FrameStart, TellsAStrangerByItsFirstBytes) {
  EXPECT_TRUE(check_frame_start({}));
  EXPECT_TRUE(check_frame_start(as_bytes("NM")));
  const Result<void> stranger = check_frame_start(as_bytes("HT\r\nrest"));
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error().message, HasSubstr("\"HT\\x0d\\x0arest\""));
}

std::string datagram_of(const FrameHeader& header, std::string_view rest) {
  const FrameHeaderBytes bytes = encode_frame_header(header);
  std::string datagram(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return datagram.append(rest);
}

TEST(Datagram, IsTakenApart) {
  const std::string text = datagram_of({.body_bytes = 3, .payload_bytes = 2}, "abcde");
  const ByteSpan datagram = as_bytes(text);
  const Result<Frame> frame = split_datagram(datagram);
  ASSERT_TRUE(frame) << frame.error().message;
  EXPECT_EQ(frame->body.data(), datagram.data() + kFrameHeaderBytes);
  EXPECT_EQ(frame->body.size(), 3u);
  EXPECT_EQ(frame->payload.data(), datagram.data() + kFrameHeaderBytes + 3);
  EXPECT_EQ(frame->payload.size(), 2u);
}

TEST(Datagram, MustBeAsLongAsItSays) {
  EXPECT_FALSE(split_datagram({}));
  EXPECT_FALSE(split_datagram(as_bytes("NMCW")));
  EXPECT_FALSE(split_datagram(as_bytes(datagram_of({.body_bytes = 3, .payload_bytes = 2}, "abcd"))));
  EXPECT_FALSE(split_datagram(as_bytes(datagram_of({.body_bytes = 3, .payload_bytes = 2}, "abcdef"))));
  EXPECT_FALSE(split_datagram(as_bytes(datagram_of({.body_bytes = UINT32_MAX, .payload_bytes = 2}, "a"))));
  EXPECT_FALSE(split_datagram(as_bytes(datagram_of({.payload_bytes = UINT64_MAX}, "a"))));
}

TEST(Datagram, HasALimit) {
  const std::vector<std::byte> body(kDatagramBytesMax - kFrameHeaderBytes - 1), payload(1);
  const ByteSpan one[] = {payload}, two[] = {payload, payload};
  EXPECT_TRUE(check_datagram_size(body, one));
  EXPECT_FALSE(check_datagram_size(body, two));
}

TEST(Body, ReadsBackWhatWasWritten) {
  BodyWriter writer;
  writer.put_u8(1).put_u16(0x0203).put_u32(0x04050607).put_u64(0x08090a0b0c0d0e0f);
  writer.put_string("key").put_bytes({}).put_fixed(as_bytes("four"));
  EXPECT_EQ(writer.bytes().size(), 1u + 2 + 4 + 8 + 4 + 3 + 4 + 4);
  EXPECT_EQ(writer.bytes()[1], std::byte{3}) << "little-endian";

  BodyReader reader(writer.bytes());
  EXPECT_EQ(reader.get_u8("a"), 1);
  EXPECT_EQ(reader.get_u16("b"), 0x0203);
  EXPECT_EQ(reader.get_u32("c"), 0x04050607u);
  EXPECT_EQ(reader.get_u64("d"), 0x08090a0b0c0d0e0fu);
  EXPECT_EQ(reader.get_string("e"), "key");
  EXPECT_TRUE(reader.get_bytes("f").empty());
  EXPECT_EQ(std::memcmp(reader.get_fixed("g", 4).data(), "four", 4), 0);
  EXPECT_TRUE(reader.finish());
}

TEST(Body, CutAnywhereIsAnError) {
  BodyWriter writer;
  writer.put_u16(1).put_string("abc").put_u64(2);
  for (std::size_t size = 0; size < writer.bytes().size(); ++size) {
    // A copy of its own, so that a sanitizer sees any byte read beyond.
    const std::vector<std::byte> cut(writer.bytes().begin(),
                                     writer.bytes().begin() + static_cast<std::ptrdiff_t>(size));
    BodyReader reader(cut);
    reader.get_u16("a");
    reader.get_string("b");
    reader.get_u64("c");
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_FALSE(reader.finish()) << size;
  }
}

TEST(Body, NamesTheFirstFieldThatIsMissing) {
  BodyWriter writer;
  writer.put_u32(5).put_u16(1);
  BodyReader reader(writer.bytes());
  EXPECT_EQ(reader.get_u32("count"), 5u);
  EXPECT_EQ(reader.get_u64("size"), 0u);
  EXPECT_EQ(reader.get_u16("there, but behind the error"), 0);
  const Result<void> end = reader.finish();
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(end.error().message, "body: field \"size\" at offset 4 takes 8 bytes, 2 are left");
}

TEST(Body, WithBytesTooManyIsAnError) {
  BodyWriter writer;
  writer.put_u32(5).put_u8(0);
  BodyReader reader(writer.bytes());
  reader.get_u32("count");
  EXPECT_TRUE(reader.ok());
  EXPECT_FALSE(reader.finish());
}

TEST(Body, CountsNoMoreItemsThanFit) {
  BodyWriter writer;
  writer.put_u32(3).put_u64(0).put_u64(0).put_u64(0);
  EXPECT_EQ(BodyReader(writer.bytes()).get_count("items", 8), 3u);
  BodyReader nine(writer.bytes());
  EXPECT_EQ(nine.get_count("items", 9), 0u);
  EXPECT_FALSE(nine.finish());
  writer.clear();
  writer.put_u32(UINT32_MAX);
  EXPECT_EQ(BodyReader(writer.bytes()).get_count("items", 1), 0u);
}

TEST(ErrorReply, KeepsEveryCodeAndItsMessage) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const Error error{static_cast<ErrorCode>(i), fmt::format("message {}", i)};
    const Error decoded = decode_error(encode_error(error));
    EXPECT_EQ(decoded.code, error.code);
    EXPECT_EQ(decoded.message, error.message);
  }
}

TEST(ErrorReply, KeepsItsCodesOnTheWire) {
  EXPECT_EQ(encode_error({ErrorCode::kInvalidArgument, ""})[0], std::byte{0});
  EXPECT_EQ(encode_error({ErrorCode::kUnavailable, ""})[0], std::byte{6});
  EXPECT_EQ(encode_error({ErrorCode::kInternal, ""})[0], std::byte{12});
}

TEST(ErrorReply, CutsALongMessageBetweenCharacters) {
  const std::string euro = "\xe2\x82\xac";
  std::string message(kErrorMessageBytesMax - 1, 'x');
  const Error decoded = decode_error(encode_error({ErrorCode::kIo, message + euro}));
  EXPECT_EQ(decoded.message, message);
}

TEST(ErrorReply, OfAnUnknownCodeOrShapeIsStillAnError) {
  BodyWriter unknown;
  unknown.put_u32(99).put_string("later");
  EXPECT_EQ(decode_error(unknown.bytes()).code, ErrorCode::kInternal);
  EXPECT_THAT(decode_error(unknown.bytes()).message, HasSubstr("later"));
  EXPECT_EQ(decode_error(as_bytes("x")).code, ErrorCode::kCorrupt);
}

TEST(Handshake, MessagesReturnAsTheyWereSent) {
  const Nonce nonce = random_nonce().value();
  EXPECT_EQ(decode_hello(encode_hello({.nonce = nonce}))->nonce, nonce);
  const Result<Greeting> greeting = decode_greeting(encode_greeting({.token_wanted = true, .nonce = nonce}));
  ASSERT_TRUE(greeting);
  EXPECT_TRUE(greeting->token_wanted);
  EXPECT_EQ(greeting->nonce, nonce);
  const Digest proof = token_proof("secret", Prover::kClient, {});
  EXPECT_EQ(*decode_proof(encode_proof(proof)), proof);
}

TEST(Handshake, RefusesMalformedMessages) {
  const std::string text(70, 'x');
  for (const std::size_t size : {0, 31, 32, 33, 34, 70}) {
    const ByteSpan body = as_bytes(std::string_view(text).substr(0, size));
    EXPECT_EQ(decode_hello(body).has_value(), size == 32) << size;
    EXPECT_FALSE(decode_greeting(body)) << size;  // of 33 bytes, too: its flag is neither 0 nor 1
    EXPECT_EQ(decode_proof(body).has_value(), size == 32) << size;
  }
}

TEST(Handshake, NoncesDiffer) { EXPECT_NE(*random_nonce(), *random_nonce()); }

TEST(TokenProof, IsTheDocumentedHmac) {
  HandshakeNonces nonces;
  nonces.server.fill(std::byte{1});
  nonces.client.fill(std::byte{2});
  // python3 -c 'import hmac; print(hmac.new(b"secret", b"nmc client 1" + b"\x01"*32 + b"\x02"*32,
  // "sha256").hexdigest())'
  EXPECT_EQ(token_proof("secret", Prover::kClient, nonces).hex(),
            "c9d2c108f2bedb6c9f3da374f830024f1521b6191aa62d44e4d291ef9e77e7c6");
  EXPECT_EQ(token_proof("secret", Prover::kServer, nonces).hex(),
            "63f4c345e236911f095c03a953bc34a2565ec5f667c2c6dcc66c310984f4baf8");
}

TEST(TokenProof, DependsOnTokenSideAndBothNonces) {
  HandshakeNonces nonces;
  const Digest proof = token_proof("secret", Prover::kClient, nonces);
  EXPECT_TRUE(equal_proofs(proof, token_proof("secret", Prover::kClient, nonces)));
  EXPECT_FALSE(equal_proofs(proof, token_proof("Secret", Prover::kClient, nonces)));
  EXPECT_FALSE(equal_proofs(proof, token_proof("secret", Prover::kServer, nonces)));
  HandshakeNonces other_server = nonces, other_client = nonces;
  other_server.server[31] = std::byte{1};
  other_client.client[0] = std::byte{1};
  EXPECT_FALSE(equal_proofs(proof, token_proof("secret", Prover::kClient, other_server)));
  EXPECT_FALSE(equal_proofs(proof, token_proof("secret", Prover::kClient, other_client)));
}

}  // namespace
}  // namespace nmc::net
