// The same request gives the same logits, bit for bit at every step, however it is run: in one plain pass, in chunks,
// beside strangers, from the cache, after preemption, and handed over between workers by each carrier.
#include <gtest/gtest.h>

#include <set>

#include "engine/test_support.h"
#include "kernels/kernels.h"

namespace nmc::engine {
namespace {

using testing::Collector;
using testing::Engine;
using testing::random_tokens;
using testing::Trace;

constexpr std::size_t kOutput = 6;

// 1 .. 3 blocks and one more on either side, and lengths past the row tiles of the products.
std::vector<std::size_t> prompt_lengths() {
  std::vector<std::size_t> lengths;
  for (std::size_t length = 1; length <= 49; ++length) lengths.push_back(length);
  for (const std::size_t length : {63, 64, 65, 97, 129, 257}) lengths.push_back(length);
  return lengths;
}

// A way of being a decoder: what tells the families apart, on sizes that are no multiples of anything.
struct Shape {
  const char* name;
  void (*apply)(Engine::Setup& setup);
};
const Shape kShapes[] = {
    {"llama", [](Engine::Setup&) {}},
    {"llama3_rope",
     [](Engine::Setup& setup) {
       setup.config.rope_scaling = {.kind = model::RopeScaling::Kind::kLlama3,
                                    .factor = 8.0f,
                                    .low_freq_factor = 1.0f,
                                    .high_freq_factor = 4.0f,
                                    .original_max_positions = 64.0f};
       setup.config.tie_embeddings = true;
     }},
    {"mistral",
     [](Engine::Setup& setup) {
       setup.config.windows = {21, 21};
     }},
    {"qwen2",
     [](Engine::Setup& setup) {
       setup.config.qkv_bias = true;
       setup.config.windows = {0, 40};
     }},
    {"qwen3", [](Engine::Setup& setup) { setup.config.qk_norm = true; }},
    {"all_biases",
     [](Engine::Setup& setup) { setup.config.qkv_bias = setup.config.out_bias = setup.config.mlp_bias = true; }},
    {"adapter", [](Engine::Setup& setup) { setup.adapter_rank = 5; }},
};

struct Case {
  const Shape* shape;
  Dtype dtype;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.shape->name << " " << dtype_name(value.dtype); }

// Sanitizers, which run this tenfold slower, look at the plain shape and at one with an adapter: what the others add is
// arithmetic that those have too, and the model's own tests.
bool is_run(const Shape& shape) {
#ifdef NMC_SANITIZED
  return shape.name == std::string_view("llama") || shape.name == std::string_view("adapter");
#else
  return shape.name != nullptr;
#endif
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Shape& shape : kShapes) {
    if (!is_run(shape)) continue;
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) all.push_back({&shape, dtype});
  }
  return all;
}

class BitEquality : public ::testing::TestWithParam<Case> {
 protected:
  static Engine::Setup setup() {
    Engine::Setup setup;
    setup.dtype = GetParam().dtype;
    GetParam().shape->apply(setup);
    return setup;
  }
  static std::vector<TokenId> prompt(const Engine& engine, std::size_t length) {
    return random_tokens(length, 100 + length, engine.vocab());
  }
};

// Inner kernels of a product, as bench-engine names them, without how often a tile repeats.
std::set<std::string> inner_kernels(std::span<const std::size_t> row_counts) {
  std::set<std::string> names;
  for (const std::size_t rows : row_counts) {
    const std::string name = kernels::matmul_kernel_name(rows, Dtype::kBf16);
    names.insert(
        name.substr(0, name.rfind("tile") == std::string::npos ? name.size() : name.find('x', name.rfind("tile"))));
  }
  return names;
}

TEST(BitEqualitySizes, PromptLengthsMeetEveryInnerKernel) {
  std::vector<std::size_t> all(512);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i + 1;
  EXPECT_EQ(inner_kernels(prompt_lengths()), inner_kernels(all));
  EXPECT_GT(inner_kernels(all).size(), 3u);
}

TEST_P(BitEquality, ChunkedEqualsOnePass) {
  Engine engine(setup());
  for (const std::size_t length : prompt_lengths()) {
    const Trace whole = engine.plain(prompt(engine, length), kOutput);
    for (const std::size_t chunk : {1, 7, 16, 33}) {
      EXPECT_EQ(engine.plain(prompt(engine, length), kOutput, chunk), whole)
          << length << " tokens in chunks of " << chunk;
    }
  }
}

// The mutants that show the digest looks at what the block table says.
TEST_P(BitEquality, OffByOneInTheBlockTableIsSeen) {
  Engine engine(setup());
  for (const std::size_t length : {17, 33, 48}) {
    const Trace whole = engine.plain(prompt(engine, length), kOutput);
    int pass = 0;
    const auto rotate_later = [&](std::vector<std::byte*>& table) {
      if (pass++ > 0) std::rotate(table.begin(), table.begin() + 1, table.end());
    };
    EXPECT_NE(engine.plain(prompt(engine, length), kOutput, SIZE_MAX, rotate_later), whole) << length;
    pass = 0;
    const auto repeat_first = [&](std::vector<std::byte*>& table) {
      if (pass++ > 0 && table.size() > 1) table[1] = table[0];
    };
    EXPECT_NE(engine.plain(prompt(engine, length), kOutput, SIZE_MAX, repeat_first), whole) << length;
  }
}

TEST_P(BitEquality, RuntimeEqualsPlainPassWithAndWithoutReuse) {
  for (const Reuse reuse : {Reuse::kNone, Reuse::kLocal, Reuse::kGlobal}) {
    Engine::Setup with = setup();
    with.options.reuse = reuse;
    with.options.max_batch_tokens = 24;  // prompts are cut where blocks aren't
    Engine engine(with);
    for (const std::size_t length : prompt_lengths()) {
      EXPECT_EQ(engine.run(prompt(engine, length), kOutput), engine.plain(prompt(engine, length), kOutput))
          << length << " tokens, reuse " << reuse_name(reuse);
    }
  }
}

TEST_P(BitEquality, FromCacheEqualsPlainPass) {
  Engine engine(setup());
  for (const std::size_t length : prompt_lengths()) {
    const std::vector<TokenId> tokens = prompt(engine, length);
    const Trace plain = engine.plain(tokens, kOutput);
    Outcome first, second;
    EXPECT_EQ(engine.run(tokens, kOutput, &first), plain) << length;
    EXPECT_EQ(engine.run(tokens, kOutput, &second), plain) << length;
    EXPECT_EQ(first.metrics.computed_tokens, length) << length;
    EXPECT_EQ(second.metrics.computed_tokens, 0u) << length;
    EXPECT_EQ(second.metrics.saved_tokens, length) << length;
    EXPECT_EQ(second.metrics.cache_source, CacheSource::kDram) << length;
  }
}

TEST_P(BitEquality, SharedPrefixWithANewEndEqualsPlainPass) {
  Engine engine(setup());
  const std::vector<TokenId> shared = prompt(engine, 64);
  engine.run(shared, kOutput);
  for (const std::size_t keep : {15, 16, 17, 31, 32, 48, 63, 64}) {
    std::vector<TokenId> tokens(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(keep));
    for (const TokenId token : random_tokens(21, keep, engine.vocab())) tokens.push_back(token);
    Outcome outcome;
    const Trace got = engine.run(tokens, kOutput, &outcome);
    EXPECT_EQ(got, engine.plain(tokens, kOutput)) << keep;
    EXPECT_EQ(outcome.metrics.saved_tokens, keep / 16 * 16) << keep;
  }
}

TEST_P(BitEquality, BatchedWithStrangersEqualsPlainPass) {
  Engine::Setup with = setup();
  with.options.max_batch_tokens = 40;
  Engine engine(with);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::shared_ptr<Collector>> collectors;
  for (const std::size_t length : prompt_lengths()) prompts.push_back(prompt(engine, length));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    collectors.push_back(engine.submit(engine.request("s" + std::to_string(i), prompts[i], kOutput)));
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(engine.trace("s" + std::to_string(i), *collectors[i]), engine.plain(prompts[i], kOutput))
        << prompts[i].size();
  }
}

TEST_P(BitEquality, ThreadCountDoesNotMatter) {
  Engine one([] {
    Engine::Setup single = setup();
    single.threads = 1;
    return single;
  }());
  Engine::Setup three = setup();
  three.threads = 3;
  Engine many(three);
  for (const std::size_t length : {5, 40, 130}) {
    EXPECT_EQ(one.run(prompt(one, length), kOutput), many.run(prompt(many, length), kOutput)) << length;
  }
}

// A pool for about one and a half requests: all but the oldest are preempted again and again.
TEST_P(BitEquality, AfterPreemptionEqualsPlainPass) {
  for (const Reuse reuse : {Reuse::kNone, Reuse::kGlobal}) {
    Engine::Setup tight = setup();
    tight.blocks = 11;
    tight.tail_bytes = 0;
    tight.options.reuse = reuse;
    Engine engine(tight);
    std::vector<std::shared_ptr<Collector>> collectors;
    std::size_t preemptions = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      collectors.push_back(engine.submit(engine.request("p" + std::to_string(i), prompt(engine, 60 + i), 60)));
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const Trace got = engine.trace("p" + std::to_string(i), *collectors[i]);
      EXPECT_EQ(got, engine.plain(prompt(engine, 60 + i), 60)) << i << " reuse " << reuse_name(reuse);
      EXPECT_EQ(got.tokens.size(), 60u);
      EXPECT_EQ(collectors[i]->finishes(), 1);
      preemptions += collectors[i]->wait().metrics.preemptions;
    }
    EXPECT_GT(preemptions, 0u) << "the pool was not tight enough for the test to mean anything";
    EXPECT_EQ(engine.store().stats().blocks_reserved, 0u);
    EXPECT_EQ(engine.store().stats().blocks_pinned, 0u);
  }
}

TEST_P(BitEquality, HandedOverEqualsPlainPass) {
  for (const Transfer transfer : {Transfer::kDirect, Transfer::kShm, Transfer::kTcp}) {
    for (const Reuse reuse : {Reuse::kNone, Reuse::kLocal, Reuse::kGlobal}) {
      Engine::Setup pd = setup();
      pd.options.mode = Mode::kPd;
      pd.options.transfer = transfer;
      pd.options.reuse = reuse;
      Engine engine(pd);
      for (const std::size_t length : prompt_lengths()) {
        Outcome outcome;
        EXPECT_EQ(engine.run(prompt(engine, length), kOutput, &outcome), engine.plain(prompt(engine, length), kOutput))
            << length << " tokens by " << transfer_name(transfer) << ", reuse " << reuse_name(reuse);
        EXPECT_GT(outcome.metrics.snapshot_bytes, 0u);
        EXPECT_EQ(outcome.metrics.transfer_bytes, transfer == Transfer::kDirect ? 0u : outcome.metrics.snapshot_bytes);
      }
    }
  }
}

// Two adapters and the base model in one batch over one store: each is what it is alone without a cache, and none
// finds what another left.
TEST_P(BitEquality, AdaptersAndBaseShareABatchButNoBlock) {
  Engine::Setup with = setup();
  with.options.max_batch_tokens = 40;
  Engine engine(with);
  const std::vector<TokenId> tokens = prompt(engine, 70);
  const std::vector<std::shared_ptr<const model::Adapter>> models = {nullptr, engine.random_adapter(4, 1),
                                                                     engine.random_adapter(8, 2)};
  std::set<std::string> digests;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Collector>> collectors;
    for (std::size_t i = 0; i < models.size(); ++i) {
      GenerateRequest request = engine.request("a" + std::to_string(i), tokens, kOutput);
      request.adapter = models[i];
      collectors.push_back(engine.submit(std::move(request)));
    }
    for (std::size_t i = 0; i < models.size(); ++i) {
      const Trace got = engine.trace("a" + std::to_string(i), *collectors[i]);
      engine.use_adapter(models[i]);
      EXPECT_EQ(got, engine.plain(tokens, kOutput)) << "model " << i << ", round " << round;
      EXPECT_EQ(collectors[i]->wait().metrics.saved_tokens, round == 0 ? 0u : tokens.size()) << "model " << i;
      digests.insert(got.digest);
    }
  }
  EXPECT_EQ(digests.size(), models.size()) << "adapters that change nothing would prove nothing";
}

INSTANTIATE_TEST_SUITE_P(Shapes, BitEquality, ::testing::ValuesIn(cases()), [](const auto& param) {
  return fmt::format("{}_{}", param.param.shape->name, dtype_name(param.param.dtype));
});

}  // namespace
}  // namespace nmc::engine
