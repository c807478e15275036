#include "tools/store_values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"

namespace nmc::tools {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

// Words 0 and 1 are seed and size; what a value ends with may be a part of a word.
class Words {
 public:
  Words(std::string_view key, std::uint64_t seed, std::uint64_t size)
      : seed_(seed), size_(size), start_(mix64(checksum64(key)) ^ mix64(seed)) {}
  std::uint64_t at(std::size_t index) const { return index == 0 ? seed_ : index == 1 ? size_ : mix64(start_ + index); }

 private:
  std::uint64_t seed_, size_, start_;
};

}  // namespace

void make_value(std::string_view key, std::uint64_t seed, std::span<std::byte> to) {
  NMC_REQUIRE(to.size() >= kValueBytesMin, "size={}", to.size());
  const Words words(key, seed, to.size());
  for (std::size_t at = 0; at < to.size(); at += kWord) {
    const std::uint64_t word = words.at(at / kWord);
    std::memcpy(to.data() + at, &word, std::min(kWord, to.size() - at));
  }
}

Result<std::uint64_t> check_value(std::string_view key, std::span<const std::byte> value) {
  if (value.size() < kValueBytesMin) return corrupt("{}: {} bytes, no value is that short", key, value.size());
  std::uint64_t seed = 0;
  std::memcpy(&seed, value.data(), kWord);
  const Words words(key, seed, value.size());
  for (std::size_t at = 0; at < value.size(); at += kWord) {
    const std::uint64_t word = words.at(at / kWord);
    if (std::memcmp(value.data() + at, &word, std::min(kWord, value.size() - at)) != 0)
      return corrupt("{}: of seed {:#x} by its start, but wrong within the word at byte {} of {}", key, seed, at,
                     value.size());
  }
  return seed;
}

}  // namespace nmc::tools
