// Deterministic random numbers: a keyed counter generator (any draw is addressable, whatever was drawn before) and a
// small sequential one on top. Not for secrets.
#pragma once

#include <cstdint>

namespace nmc {

// splitmix64's finalizer (Steele, Lea, Flood 2014): a bijection on 64 bits that passes BigCrush when fed a counter.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The draw at (key, stream, index); equal arguments give equal bits on every machine.
constexpr std::uint64_t keyed_random(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  return mix64(mix64(mix64(key) ^ stream) ^ index);
}

// Uniform in [0, 1) with 53 random bits.
constexpr double to_unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

class Rng {
 public:
  explicit constexpr Rng(std::uint64_t seed) : key_(seed) {}
  constexpr std::uint64_t next() { return keyed_random(key_, 0, counter_++); }
  // Uniform in [0, bound); bound > 0. The bias is below bound / 2^64.
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  constexpr double unit() { return to_unit(next()); }

  // UniformRandomBitGenerator, for <algorithm>.
  using result_type = std::uint64_t;
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~std::uint64_t{0}; }
  constexpr std::uint64_t operator()() { return next(); }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace nmc
