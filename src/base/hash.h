// The two hashes of the project. SHA-256 names things (prefix keys, digests): a tenant can't forge one. XXH3 checks
// things (block payloads, records, table slots): fast, not safe against an adversary.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace nmc {

struct Digest {
  std::array<std::uint8_t, 32> bytes{};

  std::string hex() const;  // 64 lower-case digits
  auto operator<=>(const Digest&) const = default;
};

// For unordered containers: a SHA-256 is already uniform.
struct DigestHash {
  std::size_t operator()(const Digest& digest) const {
    std::size_t value;
    std::memcpy(&value, digest.bytes.data(), sizeof value);
    return value;
  }
};

// Incremental SHA-256. Not thread-safe. finish() may be called once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text);
  // Length first, then the bytes, so that ("ab","c") and ("a","bc") differ.
  Sha256& update_field(std::string_view text);
  Digest finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);

// XXH3, 64 bits, seed 0. Made for payloads, and for keys.
std::uint64_t checksum64(std::span<const std::byte> bytes);
std::uint64_t checksum64(std::string_view text);

// checksum64 of bytes that come in pieces; any cut gives the same value. Not thread-safe. Moves, never copies.
class Checksum64 {
 public:
  Checksum64();
  ~Checksum64();
  Checksum64(Checksum64&& other) noexcept;
  Checksum64& operator=(Checksum64&& other) noexcept;

  Checksum64& update(std::span<const std::byte> bytes);
  std::uint64_t value() const;  // of all bytes so far; updating may go on
  void reset();                 // as constructed

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// memcpy and checksum64 of what was copied, in one pass over memory (a cache-sized piece at a time).
// `to` and `from` have equal sizes and don't overlap.
std::uint64_t copy_and_checksum64(std::span<std::byte> to, std::span<const std::byte> from);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace nmc
