#include "base/hash.h"

#include <openssl/evp.h>
#if defined(NMC_XXHASH_DISPATCH)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nmc {

std::string Digest::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool finished = false;
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  NMC_ASSERT(EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  NMC_ASSERT(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1);
  return *this;
}

Sha256& Sha256::update(std::string_view text) { return update(as_bytes(text)); }

Sha256& Sha256::update_field(std::string_view text) {
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  }
  return update(length).update(text);
}

Digest Sha256::finish() {
  NMC_REQUIRE(!std::exchange(impl_->finished, true));
  Digest digest;
  unsigned length = 0;
  NMC_ASSERT(EVP_DigestFinal_ex(impl_->context, digest.bytes.data(), &length) == 1);
  NMC_ASSERT(length == digest.bytes.size());
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) { return Sha256().update(bytes).finish(); }
Digest sha256(std::string_view text) { return sha256(as_bytes(text)); }

std::uint64_t checksum64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Checksum64::Impl {
  XXH3_state_t* state = XXH3_createState();
  ~Impl() { XXH3_freeState(state); }
};

Checksum64::Checksum64() : impl_(std::make_unique<Impl>()) { reset(); }
Checksum64::~Checksum64() = default;
Checksum64::Checksum64(Checksum64&& other) noexcept = default;
Checksum64& Checksum64::operator=(Checksum64&& other) noexcept = default;

Checksum64& Checksum64::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) NMC_ASSERT(XXH3_64bits_update(impl_->state, bytes.data(), bytes.size()) == XXH_OK);
  return *this;
}

std::uint64_t Checksum64::value() const { return XXH3_64bits_digest(impl_->state); }

void Checksum64::reset() { NMC_ASSERT(impl_->state != nullptr && XXH3_64bits_reset(impl_->state) == XXH_OK); }

std::uint64_t copy_and_checksum64(std::span<std::byte> to, std::span<const std::byte> from) {
  NMC_REQUIRE(to.size() == from.size(), "to={} from={}", to.size(), from.size());
  constexpr std::size_t kPiece = 16 * 1024;  // stays in L1/L2 between the copy and the hash
  if (from.size() <= kPiece) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return XXH3_64bits(to.data(), to.size());
  }
  XXH3_state_t* state = XXH3_createState();
  NMC_ASSERT(state != nullptr && XXH3_64bits_reset(state) == XXH_OK);
  for (std::size_t at = 0; at < from.size(); at += kPiece) {
    const std::size_t size = std::min(kPiece, from.size() - at);
    std::memcpy(to.data() + at, from.data() + at, size);
    XXH3_64bits_update(state, to.data() + at, size);
  }
  const std::uint64_t sum = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return sum;
}

}  // namespace nmc
