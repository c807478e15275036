#include "kv/prefix.h"

#include <gmock/gmock.h>

#include <functional>
#include <numeric>
#include <set>

#include "base/rng.h"

namespace nmc::kv {
namespace {

Namespace example() {
  return {.weights = "WWW",
          .config = "C",
          .tokenizer = "T",
          .layout = {.layers = 22, .kv_heads = 4, .head_dim = 64, .block_tokens = 16, .dtype = Dtype::kBf16},
          .adapter = "",
          .salt = "salt",
          .scope = "",
          .instruction_level = "avx3",
          .numerics_version = 7};
}

std::vector<TokenId> counting(std::size_t size) {
  std::vector<TokenId> ids(size);
  std::iota(ids.begin(), ids.end(), 0u);
  return ids;
}

std::vector<std::string> hex(std::span<const PrefixKey> keys) {
  std::vector<std::string> text;
  for (const PrefixKey& key : keys) text.push_back(key.hex());
  return text;
}

// The expected values below were computed by Python's hashlib from the definitions in prefix.h. They may only change
// together with the namespace's version: keys name what lies on disks and in other processes.
TEST(Namespace, DigestIsTheDocumentedOne) {
  EXPECT_EQ(example().digest().hex(), "49c39c8ba68453f1365027b6645a4c7ef06cf4d0df52bd299a25699f4eb9fc2a");
}

TEST(PrefixChain, KeysAreTheDocumentedOnes) {
  PrefixChain chain(example().digest(), 16);
  EXPECT_EQ(chain.last_key().hex(), "6cad4f8edff029f08ca6a7d07f4035585082029d5a42931dfe7d9110ab55520a");
  chain.append(counting(48));
  EXPECT_THAT(hex(chain.keys()),
              testing::ElementsAre("3788e6f4d82eca1a02976058aa19a3ede7d23fa4cb52970b12194008d7e91741",
                                   "7ccd7c4cb29d50b92f6107d20eeb9c4a8b4249ca6a2303d87c45fb3270d1d9e8",
                                   "b630591a916d6bb07ba2bfa955d89639c38040581560ef40416a4f137d5427ac"));
  EXPECT_EQ(chain.tail_object_key().hex(), "8213eaa6d9293609b69a221588b670d6045be3e1baadadf17957f676291dcc4a");
  chain.append(48);
  chain.append(4294967295u);
  EXPECT_EQ(chain.tail_object_key().hex(), "2933140ac8989b687c67b45d0e8b360264672ce9851ad78b48191e444dcc5644");
}

TEST(ObjectKey, IsPrefixAndHexDigits) {
  EXPECT_EQ(object_key(sha256("")), "nmc/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Namespace, EveryPartChangesIt) {
  const std::function<void(Namespace&)> changes[] = {
      [](Namespace&) {},
      [](Namespace& ns) { ns.weights = "WW"; },
      [](Namespace& ns) { ns.config = "D"; },
      [](Namespace& ns) { ns.tokenizer = "U"; },
      [](Namespace& ns) { ns.layout.layers = 23; },
      [](Namespace& ns) { ns.layout.kv_heads = 8; },
      [](Namespace& ns) { ns.layout.head_dim = 128; },
      [](Namespace& ns) { ns.layout.block_tokens = 32; },
      [](Namespace& ns) { ns.layout.dtype = Dtype::kF32; },
      [](Namespace& ns) { ns.layout.dtype = Dtype::kF16; },
      [](Namespace& ns) { ns.layout.kind = static_cast<LayoutKind>(2); },
      [](Namespace& ns) { ns.adapter = "a"; },
      [](Namespace& ns) { ns.salt = ""; },
      [](Namespace& ns) { ns.salt = "salt2"; },
      [](Namespace& ns) { ns.scope = "prefill-0"; },
      [](Namespace& ns) { ns.instruction_level = "avx2"; },
      [](Namespace& ns) { ns.numerics_version = 8; },
      // The same characters in another field.
      [](Namespace& ns) { ns.adapter = "salt", ns.salt = ""; },
      [](Namespace& ns) { ns.salt = "", ns.scope = "salt"; },
      [](Namespace& ns) { ns.weights = "WWWC", ns.config = ""; },
      [](Namespace& ns) { ns.layout.layers = 2, ns.layout.kv_heads = 24; },
  };
  std::set<Digest> digests;
  for (const auto& change : changes) {
    Namespace ns = example();
    change(ns);
    digests.insert(ns.digest());
  }
  EXPECT_EQ(digests.size(), std::size(changes));
}

TEST(PrefixChain, AnyCutOfTheTokensGivesTheSameKeys) {
  const Digest ns = example().digest();
  const std::vector<TokenId> ids = counting(100);
  PrefixChain whole(ns, 16);
  whole.append(ids);
  Rng rng(1);
  for (int round = 0; round < 50; ++round) {
    PrefixChain pieces(ns, 16);
    for (std::span<const TokenId> rest = ids; !rest.empty();) {
      const std::size_t size = std::min<std::size_t>(rng.below(40), rest.size());
      pieces.append(rest.first(size));
      rest = rest.subspan(size);
    }
    EXPECT_EQ(hex(pieces.keys()), hex(whole.keys()));
    EXPECT_EQ(pieces.tail_object_key(), whole.tail_object_key());
    EXPECT_THAT(pieces.tail(), testing::ElementsAre(96, 97, 98, 99));
  }
}

TEST(PrefixChain, OnlyFullBlocksHaveKeys) {
  for (std::size_t size = 0; size <= 33; ++size) {
    PrefixChain chain(example().digest(), 16);
    chain.append(counting(size));
    EXPECT_EQ(chain.keys().size(), size / 16);
    EXPECT_EQ(chain.tail().size(), size % 16);
  }
}

TEST(PrefixChain, AKeyNamesEveryTokenUpToItsEndAndNoneAfter) {
  const Digest ns = example().digest();
  std::vector<TokenId> ids = counting(64);
  PrefixChain original(ns, 16);
  original.append(ids);
  for (std::size_t changed = 0; changed < ids.size(); ++changed) {
    ids[changed] += 1000;
    PrefixChain chain(ns, 16);
    chain.append(ids);
    for (std::size_t block = 0; block < 4; ++block) {
      EXPECT_EQ(chain.keys()[block] == original.keys()[block], block < changed / 16) << changed << " " << block;
    }
    ids[changed] -= 1000;
  }
}

TEST(PrefixChain, TheSameBlockAtAnotherPlaceHasAnotherKey) {
  PrefixChain chain(example().digest(), 4);
  chain.append(std::vector<TokenId>(12, 5));
  EXPECT_NE(chain.keys()[0], chain.keys()[1]);
  EXPECT_NE(chain.keys()[1], chain.keys()[2]);
}

TEST(PrefixChain, NamespacesShareNoKey) {
  Namespace other = example();
  other.salt = "another tenant";
  PrefixChain a(example().digest(), 16), b(other.digest(), 16);
  a.append(counting(20));
  b.append(counting(20));
  EXPECT_NE(a.keys()[0], b.keys()[0]);
  EXPECT_NE(a.tail_object_key(), b.tail_object_key());
}

TEST(TailKey, DiffersFromEveryBlockKey) {
  PrefixChain chain(example().digest(), 16);
  chain.append(counting(16));
  const PrefixKey root = root_key(example().digest());
  const std::vector<TokenId> ids = counting(16);
  std::set<PrefixKey> keys{root, chain.keys()[0]};
  for (std::size_t size = 0; size <= 16; ++size) keys.insert(tail_key(root, std::span(ids).first(size)));
  EXPECT_EQ(keys.size(), 2u + 17u);
}

}  // namespace
}  // namespace nmc::kv
