// Runs the shipping pin protocol through every interleaving of a few clients and the evictor on a model machine, and
// shows that the search would find a mistake: three are planted, and found.
//
// The machine: each thread has a store buffer. A store, or a read-modify-write, that isn't seq_cst goes into the buffer
// and reaches memory at any later time, in any order among different words, except that a release store leaves after
// all before it. The thread itself sees its buffered values. A seq_cst store or read-modify-write empties the buffer
// first. Loads take effect in program order.
#include "store/pin_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace nmc::store {
namespace {

// ---- the words that the code under test sees ----

struct Op {
  enum class Kind { kLoad, kStore, kExchange, kSubtract, kCompareExchange, kNote };
  Kind kind = Kind::kLoad;
  int address = 0;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;
  std::memory_order order = std::memory_order_seq_cst;
};

struct Suspended {  // thrown out of a thread's body at the first operation without a recorded result
  Op next;
};
struct Violation {
  std::string what;
};

// A thread's body is run anew from its start for every step; operations that it has done already answer from here.
class Replay {
 public:
  explicit Replay(std::vector<std::uint64_t> results) : results_(std::move(results)) { current = this; }
  ~Replay() { current = nullptr; }
  std::uint64_t perform(const Op& op) {
    if (at_ == results_.size()) throw Suspended{op};
    return results_[at_++];
  }
  static inline Replay* current = nullptr;

 private:
  std::vector<std::uint64_t> results_;
  std::size_t at_ = 0;
};

class ModelWord {
 public:
  explicit ModelWord(int address) : address_(address) {}
  std::uint64_t load(std::memory_order order) const { return perform({Op::Kind::kLoad, address_, 0, 0, order}); }
  void store(std::uint64_t value, std::memory_order order) { perform({Op::Kind::kStore, address_, value, 0, order}); }
  std::uint64_t exchange(std::uint64_t value, std::memory_order order) {
    return perform({Op::Kind::kExchange, address_, value, 0, order});
  }
  std::uint64_t fetch_sub(std::uint64_t value, std::memory_order order) {
    return perform({Op::Kind::kSubtract, address_, value, 0, order});
  }
  bool compare_exchange_weak(std::uint64_t& expected, std::uint64_t desired, std::memory_order order,
                             std::memory_order) {
    const std::uint64_t old = perform({Op::Kind::kCompareExchange, address_, desired, expected, order});
    const bool same = old == expected;
    expected = old;
    return same;
  }

 private:
  static std::uint64_t perform(const Op& op) { return Replay::current->perform(op); }
  int address_;
};

struct ModelAtomics {
  using Word = ModelWord;
};

// ---- the machine and the search ----

constexpr int kWords = 8;

struct Buffered {
  int address;
  std::uint64_t value;
  bool release;
  std::optional<std::uint64_t> replaces;  // of a read-modify-write: what memory must hold when it gets there
};

// What a thread has done so far: the results of its operations, and the operation that comes next.
struct Progress {
  std::vector<std::uint64_t> results;
  std::optional<Op> next;
  std::optional<std::string> violation;
  std::map<std::uint64_t, std::unique_ptr<Progress>> after;
};

struct State {
  std::array<std::uint64_t, kWords> memory{};
  std::vector<std::vector<Buffered>> buffers;
  std::vector<Progress*> threads;

  std::string key() const {
    std::string text(reinterpret_cast<const char*>(memory.data()), sizeof memory);
    for (std::size_t t = 0; t < threads.size(); ++t) {
      const auto* progress = threads[t];
      text.append(reinterpret_cast<const char*>(&progress), sizeof progress);
      text.push_back(static_cast<char>(buffers[t].size()));
      for (const Buffered& write : buffers[t]) {
        text.push_back(static_cast<char>(write.address));
        text.append(reinterpret_cast<const char*>(&write.value), sizeof write.value);
      }
    }
    return text;
  }
};

struct Outcome {
  std::size_t states = 0;
  std::optional<std::string> violation;
};

class Explorer {
 public:
  using Body = std::function<void()>;
  static constexpr std::size_t kStatesMax = 4'000'000;

  // `writers`: the one thread that writes a word, or -1. A load of a word by its only writer commutes with every step
  // of the others, so the search takes it at once instead of at every time.
  Explorer(std::array<std::uint64_t, kWords> memory, std::array<int, kWords> writers, std::vector<Body> bodies)
      : bodies_(std::move(bodies)), writers_(writers) {
    State start;
    start.memory = memory;
    start.buffers.resize(bodies_.size());
    for (std::size_t t = 0; t < bodies_.size(); ++t) {
      roots_.push_back(std::make_unique<Progress>());
      run_to_next(t, *roots_.back());
      start.threads.push_back(roots_.back().get());
    }
    start_ = start;
  }

  // `at_end` looks at memory once all threads are through and all buffers empty.
  Outcome run(const std::function<std::optional<std::string>(const State&)>& at_end) {
    at_end_ = at_end;
    explore(start_);
    return outcome_;
  }

 private:
  void run_to_next(std::size_t thread, Progress& progress) {
    const Replay replay(progress.results);
    try {
      bodies_[thread]();
    } catch (const Suspended& suspended) {
      progress.next = suspended.next;
    } catch (const Violation& violation) {
      progress.violation = violation.what;
    }
  }

  Progress* advance(std::size_t thread, Progress& from, std::uint64_t result) {
    std::unique_ptr<Progress>& to = from.after[result];
    if (!to) {
      to = std::make_unique<Progress>();
      to->results = from.results;
      to->results.push_back(result);
      run_to_next(thread, *to);
    }
    return to.get();
  }

  static std::uint64_t see(const State& state, std::size_t thread, int address) {
    const auto& buffer = state.buffers[thread];
    const auto own =
        std::find_if(buffer.rbegin(), buffer.rend(), [&](const Buffered& w) { return w.address == address; });
    return own == buffer.rend() ? state.memory[static_cast<std::size_t>(address)] : own->value;
  }

  // False: the buffered write is of a read-modify-write that another thread came between, which can't happen.
  static bool drain(State& state, std::size_t thread, std::size_t index) {
    auto& buffer = state.buffers[thread];
    const Buffered write = buffer[index];
    auto& word = state.memory[static_cast<std::size_t>(write.address)];
    if (write.replaces && word != *write.replaces) return false;
    word = write.value;
    buffer.erase(buffer.begin() + static_cast<std::ptrdiff_t>(index));
    return true;
  }

  static bool may_drain(const std::vector<Buffered>& buffer, std::size_t index) {
    if (index > 0 && buffer[index].release) return false;
    return std::none_of(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(index),
                        [&](const Buffered& earlier) { return earlier.address == buffer[index].address; });
  }

  void step(const State& from, std::size_t thread) {
    State to = from;
    const Op& op = *from.threads[thread]->next;
    std::uint64_t result = 0;
    if (op.kind == Op::Kind::kNote) {
      to.memory[static_cast<std::size_t>(op.address)] = op.operand;
    } else if (op.kind == Op::Kind::kLoad) {
      result = see(from, thread, op.address);
    } else {
      if (op.order == std::memory_order_seq_cst) {
        while (!to.buffers[thread].empty()) {
          if (!drain(to, thread, 0)) return;
        }
      }
      const std::uint64_t old = see(to, thread, op.address);
      std::uint64_t value = op.operand;
      if (op.kind == Op::Kind::kSubtract) value = old - op.operand;
      if (op.kind != Op::Kind::kStore) result = old;
      if (op.kind != Op::Kind::kCompareExchange || old == op.expected) {
        if (op.order == std::memory_order_seq_cst) {
          to.memory[static_cast<std::size_t>(op.address)] = value;
        } else {
          const bool is_store = op.kind == Op::Kind::kStore;
          to.buffers[thread].push_back(
              {op.address, value, op.order == std::memory_order_release, is_store ? std::nullopt : std::optional(old)});
        }
      }
    }
    to.threads[thread] = advance(thread, *from.threads[thread], result);
    trace_.push_back(static_cast<char>('0' + thread));
    explore(to);
    trace_.pop_back();
  }

  void explore(const State& state) {
    if (outcome_.violation || !seen_.insert(state.key()).second) return;
    outcome_.states = seen_.size();
    if (seen_.size() > kStatesMax) {
      outcome_.violation = "more states than the search is bounded to";
      return;
    }
    for (const Progress* progress : state.threads) {
      if (!progress->violation) continue;
      outcome_.violation = *progress->violation + ", schedule " + trace_;
      return;
    }
    for (std::size_t t = 0; t < bodies_.size(); ++t) {
      const auto& next = state.threads[t]->next;
      if (next && next->kind == Op::Kind::kLoad &&
          writers_[static_cast<std::size_t>(next->address)] == static_cast<int>(t)) {
        return step(state, t);
      }
    }
    bool at_rest = true;
    for (std::size_t t = 0; t < bodies_.size(); ++t) {
      const Progress& progress = *state.threads[t];
      if (progress.next) {
        at_rest = false;
        step(state, t);
      }
      for (std::size_t i = 0; i < state.buffers[t].size(); ++i) {
        at_rest = false;
        if (!may_drain(state.buffers[t], i)) continue;
        State to = state;
        if (!drain(to, t, i)) continue;
        trace_.push_back(static_cast<char>('a' + t));
        explore(to);
        trace_.pop_back();
      }
    }
    if (!at_rest || outcome_.violation) return;
    if (const auto wrong = at_end_(state)) outcome_.violation = *wrong + ", schedule " + trace_;
  }

  std::vector<Body> bodies_;
  std::array<int, kWords> writers_;
  std::vector<std::unique_ptr<Progress>> roots_;
  State start_;
  std::function<std::optional<std::string>(const State&)> at_end_;
  std::unordered_set<std::string> seen_;
  std::string trace_;  // digits: a thread's step; letters: a buffered store of its reaches memory
  Outcome outcome_;
};

// ---- one entry, its bytes, clients and the evictor ----

constexpr int kCommit = 0, kBytes = 1, kFreed = 2, kPins = 5;  // kFreed + generation - 1: its space was given away

std::uint64_t bytes_of(std::uint64_t generation) { return 1000 + generation; }
// Outside the machine: no ordering comes from a note, and none is needed to see it.
void note_freed(std::uint64_t generation) {
  Replay::current->perform(
      {Op::Kind::kNote, kFreed + static_cast<int>(generation) - 1, 1, 0, std::memory_order_relaxed});
}
bool noted_freed(std::uint64_t generation) {
  return ModelWord(kFreed + static_cast<int>(generation) - 1).load(std::memory_order_relaxed) != 0;
}

template <class Rules>
struct Scene {
  using Protocol = PinProtocol<ModelAtomics, Rules>;

  // Looks the entry up `times` times and reads what it finds.
  static void client(int me, int times) {
    ModelWord commit(kCommit), pins(kPins + me);
    const ModelWord bytes(kBytes);
    for (int i = 0; i < times; ++i) {
      const std::uint64_t seen = commit.load(std::memory_order_acquire);
      if (state_of(seen) != EntryState::kCommitted) continue;
      if (!Protocol::pin(commit, seen, pins, 1)) continue;
      const std::uint64_t generation = generation_of(seen);
      if (bytes.load(std::memory_order_relaxed) != bytes_of(generation))
        throw Violation{"a pinned reader saw other bytes"};
      if (noted_freed(generation)) throw Violation{"an entry was freed under a pin"};
      Protocol::unpin(pins);
    }
  }

  // Evicts the committed generation; gives its space to a new one when it may, else looks at the limbo once more.
  static void evictor(int clients, std::uint64_t generations) {
    ModelWord commit(kCommit), bytes(kBytes);
    std::vector<ModelWord> pins;
    for (int c = 0; c < clients; ++c) pins.emplace_back(kPins + c);
    std::vector<const ModelWord*> words;
    for (const ModelWord& word : pins) words.push_back(&word);
    for (std::uint64_t generation = 1; generation <= generations; ++generation) {
      Protocol::begin_dying(commit);
      if (!Protocol::may_free(words) && !Protocol::may_free(words)) return;
      note_freed(generation);
      Protocol::set_free(commit);
      Protocol::set_reserved(commit, generation + 1);
      bytes.store(bytes_of(generation + 1), std::memory_order_relaxed);
      Protocol::publish(commit);
    }
  }

  static Outcome explore(int clients, int lookups, std::uint64_t generations) {
    std::array<std::uint64_t, kWords> memory{};
    memory[kCommit] = make_commit_word(1, EntryState::kCommitted);
    memory[kBytes] = bytes_of(1);
    std::vector<Explorer::Body> bodies;
    for (int c = 0; c < clients; ++c) bodies.push_back([c, lookups] { client(c, lookups); });
    bodies.push_back([clients, generations] { evictor(clients, generations); });
    std::array<int, kWords> writers;
    writers.fill(-1);
    writers[kCommit] = clients;
    for (int c = 0; c < clients; ++c) writers[static_cast<std::size_t>(kPins + c)] = c;
    Explorer explorer(memory, writers, std::move(bodies));
    const Outcome outcome = explorer.run([clients](const State& state) -> std::optional<std::string> {
      for (int c = 0; c < clients; ++c) {
        if (pin_count_of(state.memory[static_cast<std::size_t>(kPins + c)]) != 0) return "a pin was left over";
      }
      return std::nullopt;
    });
    std::printf("%d clients, %d lookups each, %lu evictions: %zu states, %s\n", clients, lookups,
                static_cast<unsigned long>(generations), outcome.states, outcome.violation.value_or("sound").c_str());
    return outcome;
  }
};

struct WithoutReread : SoundRules {
  static constexpr bool kRereadsCommit = false;
};
struct WithRelaxedPins : SoundRules {
  static constexpr std::memory_order kPinOrder = std::memory_order_relaxed;
};
struct WithoutScan : SoundRules {
  static constexpr bool kScansBeforeFree = false;
};

TEST(PinProtocolTest, TwoClientsNeverReadAnotherGeneration) {
  EXPECT_EQ(Scene<SoundRules>::explore(2, 2, 1).violation, std::nullopt);
  EXPECT_EQ(Scene<SoundRules>::explore(2, 1, 2).violation, std::nullopt);
}

TEST(PinProtocolTest, ThreeClientsNeverReadAnotherGeneration) {
  EXPECT_EQ(Scene<SoundRules>::explore(3, 1, 1).violation, std::nullopt);
}

TEST(PinProtocolTest, SearchFindsAMissingReread) {
  EXPECT_TRUE(Scene<WithoutReread>::explore(2, 1, 1).violation);
  EXPECT_TRUE(Scene<WithoutReread>::explore(3, 1, 1).violation);
}

TEST(PinProtocolTest, SearchFindsARelaxedPin) {
  EXPECT_TRUE(Scene<WithRelaxedPins>::explore(2, 1, 1).violation);
  EXPECT_TRUE(Scene<WithRelaxedPins>::explore(3, 1, 1).violation);
}

TEST(PinProtocolTest, SearchFindsAFreeWithoutScan) {
  EXPECT_TRUE(Scene<WithoutScan>::explore(2, 1, 1).violation);
  EXPECT_TRUE(Scene<WithoutScan>::explore(3, 1, 1).violation);
}

TEST(PinProtocolTest, WordsCarryTheirParts) {
  const std::uint64_t commit = make_commit_word(123456789, EntryState::kDying);
  EXPECT_EQ(generation_of(commit), 123456789u);
  EXPECT_EQ(state_of(commit), EntryState::kDying);
  const std::uint64_t pins = make_pin_word(65535, 0x1234, kTouchMask - 1);
  EXPECT_EQ(pin_count_of(pins), 65535u);
  EXPECT_EQ(tag_of(pins), 0x34u);
  EXPECT_EQ(touch_of(pins), kTouchMask - 1);
}

TEST(PinProtocolTest, AWordCountsNoFurtherThanItCan) {
  std::atomic<std::uint64_t> commit{make_commit_word(1, EntryState::kCommitted)},
      word{make_pin_word(kPinCountMask - 1, 1, 1)};
  EXPECT_TRUE(Pins::pin(commit, commit.load(), word, 2));
  EXPECT_FALSE(Pins::pin(commit, commit.load(), word, 2));
  EXPECT_FALSE(Pins::pin_again(word));
  EXPECT_EQ(pin_count_of(word.load()), kPinCountMask);
  EXPECT_EQ(tag_of(word.load()), 1u);
}

}  // namespace
}  // namespace nmc::store
