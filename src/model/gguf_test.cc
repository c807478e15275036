#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/dtype.h"

namespace nmc::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kU32 = 4, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

// Bytes of a file, field by field.
class Writer {
 public:
  template <typename T>
  Writer& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(std::string_view value) {
    put<std::uint64_t>(value.size());
    bytes_.append(value);
    return *this;
  }
  Writer& raw(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  Writer& start(std::uint64_t tensors, std::uint64_t values, std::uint32_t version = 3) {
    return raw("GGUF").put(version).put(tensors).put(values);
  }
  Writer& tensor(std::string_view name, std::vector<std::uint64_t> reversed, std::uint32_t type, std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(reversed.size()));
    for (const std::uint64_t size : reversed) put(size);
    return put(type).put(offset);
  }
  Writer& align(std::size_t to = 32) {
    bytes_.resize((bytes_.size() + to - 1) / to * to);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

Result<GgufHeader> parse(const Writer& writer) {
  return parse_gguf(std::as_bytes(std::span(writer.bytes())), "f.gguf");
}
std::string parse_error(const Writer& writer) {
  const auto header = parse(writer);
  EXPECT_FALSE(header);
  return header ? "" : header.error().message;
}

TEST(GgufTest, ReadsMetadataAndPlacesTensors) {
  Writer file;
  file.start(2, 4);
  file.text("general.architecture").put(kString).text("llama");
  file.text("n").put(kU32).put<std::uint32_t>(7);
  file.text("x").put(kFloat32).put(0.5f);
  file.text("list").put(kArray).put(kBool).put<std::uint64_t>(2).put<std::uint8_t>(1).put<std::uint8_t>(0);
  file.tensor("a", {4, 3}, 0, 0).tensor("b", {32}, 8, 64).align();
  const std::size_t data = file.bytes().size();
  file.raw(std::string(48, 'a')).align(64).raw(std::string(34, 'b'));
  file.raw(std::string(data + 64 + 34 - std::min(data + 64 + 34, file.bytes().size()), 'b'));
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->metadata["general.architecture"], "llama");
  EXPECT_EQ(header->metadata["n"], 7);
  EXPECT_EQ(header->metadata["x"], 0.5);
  EXPECT_EQ(header->metadata["list"], Json::array({true, false}));
  const GgufTensor* a = header->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_THAT(a->shape, ElementsAre(3, 4));
  EXPECT_EQ(a->offset, data);
  EXPECT_EQ(a->bytes, 48u);
  EXPECT_EQ(header->find("b")->offset, data + 64);
  EXPECT_EQ(header->find("b")->bytes, 34u);
  EXPECT_EQ(header->find("c"), nullptr);
}

TEST(GgufTest, RefusesWhatIsNoGgufOrAnother) {
  EXPECT_THAT(parse_error(Writer()), AllOf(HasSubstr("f.gguf"), HasSubstr("magic")));
  EXPECT_THAT(parse_error(Writer().raw("{\"a\": 1}        ")), HasSubstr("begin with"));
  EXPECT_THAT(parse_error(Writer().start(0, 0, 1)), HasSubstr("version 2 or 3"));
  EXPECT_THAT(parse_error(Writer().start(0, 0, 0x03000000)), HasSubstr("little-endian"));
}

TEST(GgufTest, CountsThatTheFileCantHoldAreRefusedAtOnce) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(parse_error(Writer().start(kMax, 0)), HasSubstr("ends inside a tensor's name"));
  EXPECT_THAT(parse_error(Writer().start(0, kMax)), HasSubstr("metadata values"));
  EXPECT_THAT(parse_error(Writer().start(0, 1).put(kMax)), HasSubstr("ends inside a metadata key"));
  EXPECT_THAT(parse_error(Writer().start(0, 1).text("k").put(kArray).put(kU32).put(kMax)), HasSubstr("an array"));
  EXPECT_THAT(parse_error(Writer().start(0, 1).text("k").put(kString).put(kMax)), HasSubstr("a string"));
}

TEST(GgufTest, RefusesBadMetadata) {
  EXPECT_THAT(parse_error(Writer().start(0, 1).text("k").put<std::uint32_t>(99)),
              AllOf(HasSubstr("metadata \"k\""), HasSubstr("unknown type 99")));
  EXPECT_THAT(parse_error(Writer().start(0, 1).text("k").put(kArray).put(kArray).put<std::uint64_t>(0)),
              HasSubstr("arrays of arrays"));
  EXPECT_THAT(parse_error(Writer().start(0, 2).text("k").put(kBool).put('\1').text("k").put(kBool).put('\1')),
              HasSubstr("twice"));
  EXPECT_THAT(parse_error(Writer().start(0, 1).text("general.alignment").put(kU32).put<std::uint32_t>(24)),
              HasSubstr("power of two"));
}

TEST(GgufTest, RefusesTensorsThatDontLieInTheFile) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  const auto one = [](std::vector<std::uint64_t> shape, std::uint32_t type, std::uint64_t offset) {
    return Writer().start(1, 0).tensor("t", std::move(shape), type, offset).align().raw(std::string(64, 'x'));
  };
  EXPECT_TRUE(parse(one({16}, 0, 0)));
  EXPECT_THAT(parse_error(one({17}, 0, 0)), AllOf(HasSubstr("tensor \"t\""), HasSubstr("don't fit")));
  EXPECT_THAT(parse_error(one({16}, 0, 1)), HasSubstr("no multiple"));
  EXPECT_THAT(parse_error(one({16}, 0, 96)), HasSubstr("behind the end"));
  EXPECT_THAT(parse_error(one({16}, 0, kMax - 31)), HasSubstr("behind the end"));
  EXPECT_THAT(parse_error(one({kMax, kMax}, 0, 0)), HasSubstr("fits 64 bits"));
  EXPECT_THAT(parse_error(one({kMax}, 0, 0)), HasSubstr("don't fit"));
  EXPECT_THAT(parse_error(one({0}, 0, 0)), HasSubstr("from 1"));
  EXPECT_THAT(parse_error(one({33}, 8, 0)), HasSubstr("whole blocks of 32"));
  EXPECT_THAT(parse_error(one({1, 1, 1, 1, 1}, 0, 0)), HasSubstr("dimensions, got 5"));
  EXPECT_THAT(parse_error(Writer().start(2, 0).tensor("t", {1}, 0, 0).tensor("t", {1}, 0, 0)), HasSubstr("twice"));
  const auto other = parse(one({256}, 14, 0));  // Q6_K
  ASSERT_TRUE(other) << "another type is refused when somebody asks for the tensor";
  EXPECT_EQ(other->find("t")->bytes, 0u);
}

std::vector<float> widened(std::uint32_t type, const Writer& block, std::size_t count = 32) {
  std::vector<float> values(count);
  widen_gguf(*find_gguf_type(type), reinterpret_cast<const std::byte*>(block.bytes().data()), count, values.data());
  return values;
}

TEST(GgufTest, BlocksWiden) {
  Writer q8;
  q8.put(f16_from_f32(0.5f));
  for (int i = 0; i < 32; ++i) q8.put(static_cast<std::int8_t>(i * 8 - 128));
  Writer q4_0;
  q4_0.put(f16_from_f32(2.0f));
  for (int i = 0; i < 16; ++i) q4_0.put(static_cast<std::uint8_t>(i | (15 - i) << 4));
  Writer q4_1;
  q4_1.put(f16_from_f32(2.0f)).put(f16_from_f32(-3.0f));
  for (int i = 0; i < 16; ++i) q4_1.put(static_cast<std::uint8_t>(i | (15 - i) << 4));
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? i : 31 - i;
    EXPECT_EQ(widened(8, q8)[i], 0.5f * static_cast<float>(i * 8 - 128)) << i;
    EXPECT_EQ(widened(2, q4_0)[i], 2.0f * static_cast<float>(nibble - 8)) << i;
    EXPECT_EQ(widened(3, q4_1)[i], 2.0f * static_cast<float>(nibble) - 3.0f) << i;
  }
  EXPECT_THAT(widened(30, Writer().put(bf16_from_f32(1.5f)), 1), ElementsAre(1.5f));
  EXPECT_THAT(widened(1, Writer().put(f16_from_f32(1.5f)), 1), ElementsAre(1.5f));
  EXPECT_EQ(find_gguf_type(14), nullptr);
}

}  // namespace
}  // namespace nmc::model
