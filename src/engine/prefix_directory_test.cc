#include "engine/prefix_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace nmc::engine {
namespace {

// The chain of the given tokens, one a block.
std::vector<kv::PrefixKey> chain(const std::vector<kv::TokenId>& tokens) {
  kv::PrefixChain keys(sha256("namespace"), 1);
  keys.append(tokens);
  return {keys.keys().begin(), keys.keys().end()};
}

TEST(PrefixDirectory, MatchesTheLeadingRunOfEachWorker) {
  PrefixDirectory directory(100);
  directory.note(chain({1, 2, 3}), 0);
  directory.note(chain({1, 2, 7, 8}), 63);
  EXPECT_EQ(directory.size(), 5u);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3, 4}), 0), 3u);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3, 4}), 63), 2u);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3, 4}), 1), 0u);
  EXPECT_EQ(directory.matched_blocks(chain({2, 3}), 0), 0u);  // the same ids after another beginning
  EXPECT_EQ(directory.matched_blocks({}, 0), 0u);
}

TEST(PrefixDirectory, AForgottenWorkerHoldsNothingAndTheOthersKeepTheirs) {
  PrefixDirectory directory(100);
  directory.note(chain({1, 2, 3}), 0);
  directory.note(chain({1, 2}), 1);
  directory.forget(0);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3}), 0), 0u);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3}), 1), 2u);
  EXPECT_EQ(directory.size(), 2u);
  directory.note(chain({1}), 0);  // warm again
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3}), 0), 1u);
}

TEST(PrefixDirectory, TheEndOfTheOldestChainIsDroppedFirst) {
  PrefixDirectory directory(4);
  directory.note(chain({1, 2, 3}), 0);
  directory.note(chain({9, 8}), 0);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3}), 0), 2u);
  EXPECT_EQ(directory.matched_blocks(chain({9, 8}), 0), 2u);
  directory.note(chain({1}), 1);  // used now, by another worker
  directory.note(chain({7, 6}), 0);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3}), 0), 1u);
  EXPECT_EQ(directory.matched_blocks(chain({9, 8}), 0), 1u);
}

TEST(PrefixDirectory, OfAChainThatIsTooLongTheBeginningIsKept) {
  PrefixDirectory directory(3);
  directory.note(chain({9, 8, 7}), 1);
  directory.note(chain({1, 2, 3, 4, 5}), 0);
  EXPECT_EQ(directory.size(), 3u);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3, 4, 5}), 0), 3u);
  EXPECT_EQ(directory.matched_blocks(chain({9, 8, 7}), 1), 0u);
}

TEST(PrefixDirectory, ANewEndDoesNotPushOutItsOwnBeginning) {
  PrefixDirectory directory(4);
  directory.note(chain({1, 2}), 1);  // the oldest from here on
  directory.note(chain({9, 8}), 1);
  directory.note(chain({1, 2, 3, 4}), 0);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3, 4}), 0), 4u);
  EXPECT_EQ(directory.matched_blocks(chain({1, 2, 3, 4}), 1), 2u);
}

// The same by a list that is walked each time.
class NaiveDirectory {
 public:
  explicit NaiveDirectory(std::size_t entries_max) : entries_max_(entries_max) {}

  void note(std::vector<kv::PrefixKey> keys, std::size_t worker) {
    keys.resize(std::min(keys.size(), entries_max_));
    Entries noted;
    for (std::size_t i = keys.size(); i-- > 0;) {
      std::set<std::size_t> workers;
      if (const auto known = find(keys[i]); known != entries_.end()) {
        workers = known->second;
        entries_.erase(known);
      }
      workers.insert(worker);
      noted.emplace_back(keys[i], workers);
    }
    entries_.insert(entries_.end(), noted.begin(), noted.end());
    if (entries_.size() > entries_max_)
      entries_.erase(entries_.begin(), entries_.end() - static_cast<long>(entries_max_));
  }

  void forget(std::size_t worker) {
    for (auto& entry : entries_) entry.second.erase(worker);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.empty(); });
  }

  std::size_t matched_blocks(const std::vector<kv::PrefixKey>& keys, std::size_t worker) {
    std::size_t blocks = 0;
    for (; blocks < keys.size(); ++blocks) {
      const auto known = find(keys[blocks]);
      if (known == entries_.end() || !known->second.contains(worker)) break;
    }
    return blocks;
  }

  std::size_t size() const { return entries_.size(); }

 private:
  using Entries = std::vector<std::pair<kv::PrefixKey, std::set<std::size_t>>>;  // noted last at the end
  Entries::iterator find(const kv::PrefixKey& key) {
    return std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
  }

  std::size_t entries_max_;
  Entries entries_;
};

TEST(PrefixDirectory, AgreesWithANaiveModel) {
  constexpr std::uint64_t kSeed = 6;
  std::cout << "seed " << kSeed << "\n";
  Rng rng(kSeed);
  PrefixDirectory directory(24);
  NaiveDirectory model(24);
  std::size_t matches = 0;
  for (int i = 0; i < 20000; ++i) {
    // Three ids, so that chains share beginnings; up to 30 blocks, so that some are longer than the directory.
    std::vector<kv::TokenId> tokens(rng.below(rng.below(20) == 0 ? 31 : 7));
    for (auto& token : tokens) token = static_cast<kv::TokenId>(rng.below(3));
    const std::vector<kv::PrefixKey> keys = chain(tokens);
    const std::size_t worker = rng.below(4) == 0 ? 63 : rng.below(3);
    const std::uint64_t what = rng.below(40);
    if (what == 0) {
      directory.forget(worker);
      model.forget(worker);
    } else if (what < 20) {
      directory.note(keys, worker);
      model.note(keys, worker);
    }
    ASSERT_EQ(directory.size(), model.size()) << "step " << i;
    for (const std::size_t each : {0, 1, 2, 3, 63}) {
      const std::size_t matched = directory.matched_blocks(keys, each);
      ASSERT_EQ(matched, model.matched_blocks(keys, each)) << "step " << i;
      matches += matched > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(matches, 10000u);  // the comparison was about something
}

TEST(PrefixDirectoryDeathTest, AWorkerBeyondTheBitsIsRefused) {
  PrefixDirectory directory(4);
  EXPECT_DEATH(directory.note(chain({1}), 64), "worker=64");
}

}  // namespace
}  // namespace nmc::engine
