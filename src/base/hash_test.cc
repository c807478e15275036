#include "base/hash.h"

#include <gmock/gmock.h>

#include <set>
#include <unordered_set>
#include <vector>

#include "base/rng.h"

namespace nmc {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  Rng rng(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next());
  return bytes;
}

// From FIPS 180-2 and its list of example values.
TEST(Sha256, GivesTheStandardsValues) {
  EXPECT_EQ(sha256("").hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").hex(),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')).hex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AnyCutGivesTheSameValue) {
  const auto bytes = random_bytes(200, 1);
  const Digest whole = sha256(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::span<const std::byte> all(bytes);
    EXPECT_EQ(Sha256().update(all.first(cut)).update(all.subspan(cut)).finish(), whole) << cut;
  }
}

TEST(Sha256, FieldsDontRunTogether) {
  const Digest ab_c = Sha256().update_field("ab").update_field("c").finish();
  EXPECT_EQ(ab_c.hex(), "43ee655579de01ca739b3f95c1c2d3f46d353b2c0df818064ea594506cdb2617");
  EXPECT_NE(ab_c, Sha256().update_field("a").update_field("bc").finish());
  EXPECT_NE(ab_c, Sha256().update_field("abc").finish());
  EXPECT_NE(Sha256().update_field("").finish(), Sha256().finish());
}

TEST(Sha256DeathTest, FinishesOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Sha256 hash;
        (void)hash.finish();
        (void)hash.finish();
      },
      "requirement failed");
}

TEST(Digest, OrdersAndHashesByBytes) {
  const Digest a = sha256("a"), b = sha256("b");
  EXPECT_EQ(a, sha256("a"));
  EXPECT_NE(a, b);
  EXPECT_EQ(a < b, a.hex() < b.hex());
  EXPECT_EQ((std::unordered_set<Digest, DigestHash>{a, b, sha256("a")}).size(), 2u);
}

// Values of the Python package xxhash.
TEST(Checksum64, IsXxh3) {
  EXPECT_EQ(checksum64(""), 0x2d06800538d394c2u);
  EXPECT_EQ(checksum64("a"), 0xe6c632b61e964e1fu);
  EXPECT_EQ(checksum64("nano-mooncake"), 0xc3c628645679d8eeu);
  std::string bytes;
  for (int i = 0; i < 256 * 1024; ++i) bytes.push_back(static_cast<char>(i));
  EXPECT_EQ(checksum64(bytes), 0xf34cc5c9153c3287u);
}

TEST(Checksum64, SeesEveryFlippedBit) {
  auto bytes = random_bytes(64, 2);
  std::set<std::uint64_t> sums{checksum64(bytes)};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    sums.insert(checksum64(bytes));
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  EXPECT_EQ(sums.size(), bytes.size() * 8 + 1);
}

TEST(Checksum64, PiecesGiveTheValueOfTheWhole) {
  const auto bytes = random_bytes(100'000, 3);
  const std::span<const std::byte> all(bytes);
  Checksum64 sum;
  EXPECT_EQ(sum.value(), checksum64(""));
  Rng rng(4);
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t size = std::min<std::size_t>(rng.below(3000), all.size() - at);
    sum.update(all.subspan(at, size));
    at += size;
    ASSERT_EQ(sum.value(), checksum64(all.first(at)));
  }
  sum.reset();
  EXPECT_EQ(sum.value(), checksum64(""));
}

TEST(CopyAndChecksum64, CopiesAndEqualsChecksum64AtEverySizeAroundItsPieces) {
  for (const std::size_t size : {0u, 1u, 8u, 240u, 241u, 16383u, 16384u, 16385u, 32768u, 50'001u}) {
    const auto from = random_bytes(size, size);
    std::vector<std::byte> to(size);
    EXPECT_EQ(copy_and_checksum64(to, from), checksum64(from)) << size;
    EXPECT_EQ(to, from) << size;
  }
}

TEST(CopyAndChecksum64DeathTest, SizesMustAgree) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::vector<std::byte> to(2), from(3);
  EXPECT_DEATH((void)copy_and_checksum64(to, from), "to=2 from=3");
}

}  // namespace
}  // namespace nmc
