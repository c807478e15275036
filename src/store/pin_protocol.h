// The protocol between readers and the evictor, over one commit word an entry and one pin word a client and entry. It
// is a template over the atomic type, so that the shipping code and the exhaustive interleaving test run the same
// lines.
//
//   reader                                   evictor (the master, one thread at a time)
//   seen = commit.load                       commit: COMMITTED -> DYING              (seq_cst)
//   pins: count + 1            (seq_cst)     read every live client's pins           (seq_cst)
//   commit.load == seen ?      (seq_cst)     all zero: free; else: limbo, looked at again later
//   yes: pinned. no: count - 1, a miss
//
// Of the two seq_cst pairs one comes first in the single total order: either the evictor sees the count, or the reader
// sees DYING. A reader that was too late has a count for a moment; the evictor then keeps an entry in limbo that it
// could have freed, and frees it at its next look. Invariants:
//   1. A commit word never shows the same (generation, COMMITTED) again once it has left it.
//   2. Between a successful pin and its unpin the entry's fields and bytes don't change and its space isn't reused.
//   3. A pin word is written by its own client only; a commit word by the master only.
#pragma once

#include <atomic>
#include <cstdint>

namespace nmc::store {

// Two low bits of a commit word; the generation is above them.
enum class EntryState : std::uint64_t {
  kFree = 0,
  kReserved = 1,   // has space and an owner, no key
  kCommitted = 2,  // readable, immutable
  kDying = 3,      // evicted or removed: nobody new gets in; freed when no pin is left
};

constexpr std::uint64_t make_commit_word(std::uint64_t generation, EntryState state) {
  return generation << 2 | static_cast<std::uint64_t>(state);
}
constexpr std::uint64_t generation_of(std::uint64_t commit_word) { return commit_word >> 2; }
constexpr EntryState state_of(std::uint64_t commit_word) { return static_cast<EntryState>(commit_word & 3); }

// Pin word: pin count in bits 0-15, generation tag (the generation's low bits) in 16-23, last touch in 24-63. The count
// alone protects; the tag tells whether the touch is of the entry's present generation.
inline constexpr std::uint64_t kPinCountMask = 0xffff;
inline constexpr int kTouchShift = 24;
inline constexpr int kTouchBits = 40;
inline constexpr std::uint64_t kTouchMask = (std::uint64_t{1} << kTouchBits) - 1;

constexpr std::uint64_t pin_count_of(std::uint64_t pin_word) { return pin_word & kPinCountMask; }
constexpr std::uint64_t touch_of(std::uint64_t pin_word) { return pin_word >> kTouchShift; }
constexpr std::uint64_t tag_of(std::uint64_t pin_word) { return pin_word >> 16 & 0xff; }
constexpr std::uint64_t tag_for_generation(std::uint64_t generation) { return generation & 0xff; }
constexpr std::uint64_t make_pin_word(std::uint64_t count, std::uint64_t generation, std::uint64_t touch) {
  return count | tag_for_generation(generation) << 16 | (touch & kTouchMask) << kTouchShift;
}

// The rules as shipped. The interleaving test swaps in broken ones and expects to be shown the breach.
struct SoundRules {
  static constexpr bool kRereadsCommit = true;
  static constexpr bool kScansBeforeFree = true;
  static constexpr std::memory_order kPinOrder = std::memory_order_seq_cst;
};

struct StdAtomics {
  using Word = std::atomic<std::uint64_t>;
};

template <class Atomics, class Rules = SoundRules>
struct PinProtocol {
  using Word = typename Atomics::Word;

  // Reader: pins the entry that was found committed under `seen`. False: it changed since (nothing is held), or this
  // client has the most pins on it that a word can count.
  static bool pin(const Word& commit, std::uint64_t seen, Word& pins, std::uint64_t touch) {
    std::uint64_t before = pins.load(std::memory_order_relaxed);
    std::uint64_t after;
    do {
      if (pin_count_of(before) == kPinCountMask) return false;
      after = make_pin_word(pin_count_of(before) + 1, generation_of(seen), touch);
    } while (!pins.compare_exchange_weak(before, after, Rules::kPinOrder, std::memory_order_relaxed));
    if (!Rules::kRereadsCommit || commit.load(std::memory_order_seq_cst) == seen) return true;
    unpin(pins);
    return false;
  }

  // Release: what the reader read is read before the evictor, which acquires the count, reuses the space.
  static void unpin(Word& pins) { pins.fetch_sub(1, std::memory_order_release); }

  // One more pin on an entry that the caller has pinned; no check of the commit word is needed. False at the limit.
  static bool pin_again(Word& pins) {
    std::uint64_t before = pins.load(std::memory_order_relaxed);
    do {
      if (pin_count_of(before) == kPinCountMask) return false;
    } while (!pins.compare_exchange_weak(before, before + 1, std::memory_order_relaxed, std::memory_order_relaxed));
    return true;
  }

  // Notes a use of generation `generation`. Protects nothing, so any order does.
  static void touch(Word& pins, std::uint64_t generation, std::uint64_t stamp) {
    std::uint64_t before = pins.load(std::memory_order_relaxed);
    while (!pins.compare_exchange_weak(before, make_pin_word(pin_count_of(before), generation, stamp),
                                       std::memory_order_relaxed, std::memory_order_relaxed)) {
    }
  }

  // Master: from here on no reader gets in. The entry was COMMITTED.
  static void begin_dying(Word& commit) {
    const std::uint64_t generation = generation_of(commit.load(std::memory_order_relaxed));
    commit.exchange(make_commit_word(generation, EntryState::kDying), std::memory_order_seq_cst);
  }

  // Master: whether the space of a dying entry may be given away. `pin_words` yields (by range-for) a pointer to the
  // entry's word in every live client's table.
  template <class PinWords>
  static bool may_free(const PinWords& pin_words) {
    if (!Rules::kScansBeforeFree) return true;
    for (const Word* pins : pin_words) {
      if (pin_count_of(pins->load(std::memory_order_seq_cst)) != 0) return false;
    }
    return true;
  }

  static void set_free(Word& commit) { store_state(commit, EntryState::kFree); }

  // Master: a new life of a free entry. Its fields and bytes may be written from here on.
  static void set_reserved(Word& commit, std::uint64_t generation) {
    commit.store(make_commit_word(generation, EntryState::kReserved), std::memory_order_release);
  }

  // Master, last of all: fields and bytes are written. Pairs with the readers' acquire load of the commit word.
  static void publish(Word& commit) { store_state(commit, EntryState::kCommitted); }

 private:
  static void store_state(Word& commit, EntryState state) {
    const std::uint64_t generation = generation_of(commit.load(std::memory_order_relaxed));
    commit.store(make_commit_word(generation, state), std::memory_order_release);
  }
};

using Pins = PinProtocol<StdAtomics>;

}  // namespace nmc::store
