#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace nmc::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Bytes of a block that somebody else used before: NaN and infinities of both signs.
std::vector<std::byte> garbage(const PagedGeometry& geometry) {
  std::vector<float> values(geometry.span_bytes() / dtype_bytes(geometry.dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? kNan : i % 3 == 1 ? kInfinity : -kInfinity;
  return narrowed(values, geometry.dtype);
}

// One layer of one sequence: queries, keys and values of `tokens` positions, and the blocks that hold the latter two.
class Sequence {
 public:
  Sequence(const PagedGeometry& geometry, std::size_t tokens, std::uint64_t seed)
      : Sequence(std::make_shared<const Rows>(geometry, tokens, seed), tokens) {}
  Sequence(Sequence&&) = default;  // a copy's addresses would be the original's

  std::size_t q_width() const { return rows_->q_width(); }
  std::size_t tokens() const { return tokens_; }

  AttentionTask task(std::size_t start, std::size_t rows, std::vector<float>& out) const {
    return {
        &rows_->q[start * q_width()], q_width(), &out[start * q_width()], q_width(), rows, start, addresses_.data()};
  }
  std::vector<float> result() const { return std::vector<float>(tokens_ * q_width(), kNan); }

  // The sequence as it was when it had `tokens` positions: garbage in every later one.
  Sequence cut(std::size_t tokens) const { return Sequence(rows_, tokens); }

  // Straight from the definition, in double precision, with K and V rounded as the cache rounds them.
  std::vector<double> reference(std::size_t position, std::size_t head, float scale, std::size_t window) const {
    const PagedGeometry& geometry = rows_->geometry;
    const std::size_t dim = geometry.head_dim;
    const std::size_t first_kv = head / (geometry.heads / geometry.kv_heads) * dim;
    const std::size_t first = window > 0 && position + 1 > window ? position + 1 - window : 0;
    std::vector<double> scores;
    for (std::size_t t = first; t <= position; ++t) {
      double score = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        score += double{rows_->q[position * q_width() + head * dim + d]} *
                 element(rows_->cached_k, geometry.dtype, t * rows_->kv_width() + first_kv + d);
      }
      scores.push_back(score * scale);
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    std::vector<double> out(dim);
    double sum = 0;
    for (std::size_t t = first; t <= position; ++t) {
      const double weight = std::exp(scores[t - first] - max);
      sum += weight;
      for (std::size_t d = 0; d < dim; ++d) {
        out[d] += weight * element(rows_->cached_v, geometry.dtype, t * rows_->kv_width() + first_kv + d);
      }
    }
    for (double& value : out) value /= sum;
    return out;
  }

 private:
  struct Rows {
    Rows(const PagedGeometry& shape, std::size_t tokens, std::uint64_t seed)
        : geometry(shape),
          q(random_floats(tokens * q_width(), seed)),
          k(random_floats(tokens * kv_width(), seed + 1)),
          v(random_floats(tokens * kv_width(), seed + 2)),
          cached_k(narrowed(k, shape.dtype)),
          cached_v(narrowed(v, shape.dtype)),
          unused(garbage(shape)) {
      for (float& value : q) value *= 3;  // scores that differ enough for softmax to matter
    }
    std::size_t q_width() const { return geometry.heads * geometry.head_dim; }
    std::size_t kv_width() const { return geometry.kv_heads * geometry.head_dim; }

    PagedGeometry geometry;
    std::vector<float> q, k, v;
    std::vector<std::byte> cached_k, cached_v;
    std::vector<std::byte> unused;
  };

  Sequence(std::shared_ptr<const Rows> rows, std::size_t tokens)
      : rows_(std::move(rows)), tokens_(tokens), memory_(blocks_for(tokens), rows_->unused) {
    for (auto& block : memory_) addresses_.push_back(block.data());
    const std::size_t width = rows_->kv_width();
    write_kv(rows_->geometry, rows_->k.data(), rows_->v.data(), width, tokens, 0, addresses_.data());
  }
  std::size_t blocks_for(std::size_t tokens) const {
    return (tokens + rows_->geometry.block_tokens - 1) / rows_->geometry.block_tokens;
  }

  std::shared_ptr<const Rows> rows_;
  std::size_t tokens_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> addresses_;
};

using AttentionTest = EachTarget;
NMC_FOR_EACH_TARGET(AttentionTest);

std::vector<float> attend(ThreadPool& pool, const PagedGeometry& geometry, const Sequence& sequence,
                          std::size_t window) {
  std::vector<float> out = sequence.result();
  const AttentionTask task = sequence.task(0, sequence.tokens(), out);
  paged_attention(pool, geometry, {&task, 1}, 0.2f, window);
  return out;
}

void expect_near_reference(const PagedGeometry& geometry, const Sequence& sequence, std::span<const float> out,
                           std::size_t window) {
  const std::size_t dim = geometry.head_dim;
  for (std::size_t position = 0; position < sequence.tokens(); position += position < 3 ? 1 : 13) {
    for (std::size_t head = 0; head < geometry.heads; ++head) {
      const std::vector<double> expected = sequence.reference(position, head, 0.2f, window);
      for (std::size_t d = 0; d < dim; ++d) {
        // |q.k| * scale <= 3 * dim * 0.2 is off by at most (dim + 2) * 2^-24 of that, and so is the weight, relatively;
        // sums over tokens add a 2^-24 each. Values are below 1.
        const double score_error = 0.6 * static_cast<double>(dim) * static_cast<double>(dim + 2) * 0x1p-24;
        const double tolerance = 2 * score_error + static_cast<double>(position + 10) * 0x1p-23;
        ASSERT_NEAR(out[position * sequence.q_width() + head * dim + d], expected[d], tolerance)
            << "position " << position << " head " << head << " dim " << d << " window " << window;
      }
    }
  }
}

TEST_P(AttentionTest, AgreesWithDoublePrecision) {
  ThreadPool pool(2);
  for (const Dtype dtype : kAllDtypes) {
    for (const std::size_t dim : {32, 48, 64, 80, 128}) {
      for (const std::size_t tokens : {5, 8, 16, 32}) {
        const PagedGeometry geometry{4, 2, dim, tokens, dtype};
        const Sequence sequence(geometry, 150, dim + tokens);
        expect_near_reference(geometry, sequence, attend(pool, geometry, sequence, 0), 0);
      }
    }
  }
}

TEST_P(AttentionTest, EveryGroupOfQueryHeadsReadsItsOwnKvHead) {
  ThreadPool pool(2);
  for (const std::size_t group : {1, 2, 4, 8, 3}) {
    const PagedGeometry geometry{2 * group, 2, 32, 16, Dtype::kBf16};
    const Sequence sequence(geometry, 140, group);
    expect_near_reference(geometry, sequence, attend(pool, geometry, sequence, 0), 0);
  }
}

TEST_P(AttentionTest, WindowMasksWhatIsTooFarBack) {
  ThreadPool pool(2);
  for (const std::size_t window : {1, 2, 15, 16, 17, 100, 128, 129, 1000}) {
    for (const std::size_t tokens : {5, 16}) {
      const PagedGeometry geometry{3, 1, 32, tokens, Dtype::kF32};
      const Sequence sequence(geometry, 300, window);
      expect_near_reference(geometry, sequence, attend(pool, geometry, sequence, window), window);
    }
  }
}

// The rows of a sequence one at a time, each with the cache as it was then: nothing later written yet.
std::vector<float> one_by_one(ThreadPool& pool, const PagedGeometry& geometry, const Sequence& sequence,
                              std::size_t window) {
  std::vector<float> out = sequence.result();
  for (std::size_t position = 0; position < sequence.tokens(); ++position) {
    const Sequence then = sequence.cut(position + 1);
    const AttentionTask task = then.task(position, 1, out);
    paged_attention(pool, geometry, {&task, 1}, 0.2f, window);
  }
  return out;
}

TEST_P(AttentionTest, RowsHaveTheSameBitsHoweverThePromptIsCut) {
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (const Dtype dtype : kAllDtypes) {
    for (const std::size_t group : {1, 2, 4, 8}) {
      for (const std::size_t window : group < 4 ? std::vector<std::size_t>{0, 37} : std::vector<std::size_t>{0}) {
        const PagedGeometry geometry{2 * group, 2, 48, group == 2 ? std::size_t{5} : std::size_t{16}, dtype};
        const Sequence sequence(geometry, 275, group);
        const std::vector<float> alone = one_by_one(pools[0], geometry, sequence, window);
        for (ThreadPool& pool : pools) {
          EXPECT_TRUE(same_bits(attend(pool, geometry, sequence, window), alone)) << "threads " << pool.size();
        }
        for (const std::size_t chunk : {2, 7, 16, 50, 127, 129}) {
          std::vector<float> out = sequence.result();
          for (std::size_t start = 0; start < sequence.tokens(); start += chunk) {
            const std::size_t rows = std::min(chunk, sequence.tokens() - start);
            const Sequence then = sequence.cut(start + rows);
            const AttentionTask task = then.task(start, rows, out);
            paged_attention(pools[1], geometry, {&task, 1}, 0.2f, window);
          }
          ASSERT_TRUE(same_bits(out, alone))
              << dtype_name(dtype) << " group " << group << " chunk " << chunk << " window " << window;
        }
      }
    }
  }
}

TEST_P(AttentionTest, RowsHaveTheSameBitsWhateverElseIsInTheCall) {
  ThreadPool pool(3);
  const PagedGeometry geometry{8, 2, 64, 16, Dtype::kBf16};
  std::vector<Sequence> sequences;
  std::vector<std::vector<float>> alone, together;
  for (const std::size_t tokens : {1, 200, 17, 64, 129, 3}) {
    sequences.emplace_back(geometry, tokens, tokens);
    alone.push_back(attend(pool, geometry, sequences.back(), 0));
    together.push_back(sequences.back().result());
  }
  std::vector<AttentionTask> tasks;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::size_t start = sequences[i].tokens() / 2;  // two tasks a sequence, and one of no rows
    tasks.push_back(sequences[i].task(0, start, together[i]));
    tasks.push_back(sequences[i].task(start, sequences[i].tokens() - start, together[i]));
  }
  paged_attention(pool, geometry, tasks, 0.2f, 0);
  for (std::size_t i = 0; i < sequences.size(); ++i) EXPECT_TRUE(same_bits(together[i], alone[i])) << "sequence " << i;
}

// Steps of decoding sweep several KV heads at once where there are enough; a prompt never does.
TEST_P(AttentionTest, StepsOfDecodingHaveTheBitsOfThePrompt) {
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  for (const Dtype dtype : kAllDtypes) {
    for (const std::size_t group : {1, 2, 3}) {
      for (const std::size_t window : {0, 77}) {
        const PagedGeometry geometry{8 * group, 8, 64, group == 2 ? std::size_t{32} : std::size_t{16}, dtype};
        const Sequence sequence(geometry, 290, group);
        const std::vector<float> prompt = attend(pools[0], geometry, sequence, window);
        const std::size_t positions[] = {0, 1, 15, 16, 31, 32, 47, 100, 127, 128, 129, 143, 200, 255, 256, 257, 289};
        for (ThreadPool& pool : pools) {
          std::vector<float> out = sequence.result();
          std::vector<Sequence> then;
          then.reserve(std::size(positions));
          for (const std::size_t position : positions) then.push_back(sequence.cut(position + 1));
          std::vector<AttentionTask> tasks;
          for (std::size_t i = 0; i < then.size(); ++i) tasks.push_back(then[i].task(positions[i], 1, out));
          paged_attention(pool, geometry, tasks, 0.2f, window);
          for (const std::size_t position : positions) {
            const std::size_t at = position * sequence.q_width();
            ASSERT_TRUE(same_bits(std::span(out).subspan(at, sequence.q_width()),
                                  std::span(prompt).subspan(at, sequence.q_width())))
                << dtype_name(dtype) << " group " << group << " position " << position << " window " << window;
          }
        }
      }
    }
  }
}

// A later position of the same chunk may hold anything, too: it is no row's own or earlier one.
TEST_P(AttentionTest, NotANumberInALaterPositionStaysThere) {
  ThreadPool pool(2);
  for (const std::size_t group : {1, 4}) {
    const PagedGeometry geometry{group, 1, 32, 16, Dtype::kF32};
    const Sequence sequence(geometry, 90, 4);
    const std::vector<float> clean = attend(pool, geometry, sequence, 0);
    constexpr std::size_t kPoisoned = 61;
    const Sequence poisoned = sequence.cut(sequence.tokens());
    std::vector<float> out = poisoned.result();
    const AttentionTask task = poisoned.task(0, poisoned.tokens(), out);
    const std::vector<float> bad(32, kNan);
    write_kv(geometry, bad.data(), bad.data(), 32, 1, kPoisoned, task.blocks);
    paged_attention(pool, geometry, {&task, 1}, 0.2f, 0);
    const std::size_t before = kPoisoned * sequence.q_width();
    EXPECT_TRUE(same_bits(std::span(out).first(before), std::span(clean).first(before)));
    EXPECT_TRUE(std::isnan(out[before]));
  }
}

TEST_P(AttentionTest, ScoresFarApartDontOverflow) {
  ThreadPool pool(1);
  const PagedGeometry geometry{1, 1, 32, 16, Dtype::kF32};
  std::vector<float> block(geometry.span_bytes() / sizeof(float));
  std::byte* address = reinterpret_cast<std::byte*>(block.data());
  std::vector<float> k(2 * 32, 0.0f), v(2 * 32, 0.0f), q(32, 100.0f), out(32);
  std::fill_n(&k[0], 32, 100.0f);  // scores 320000 and -320000
  std::fill_n(&k[32], 32, -100.0f);
  std::fill_n(&v[0], 32, 7.0f);
  std::fill_n(&v[32], 32, 9.0f);
  write_kv(geometry, k.data(), v.data(), 32, 2, 0, &address);
  const AttentionTask task{q.data(), 32, out.data(), 32, 1, 1, &address};
  paged_attention(pool, geometry, {&task, 1}, 1.0f, 0);
  EXPECT_THAT(out, testing::Each(7.0f));
}

TEST_P(AttentionTest, NoTasksAndNoRowsAreFine) {
  ThreadPool pool(2);
  const PagedGeometry geometry{2, 1, 32, 16, Dtype::kF32};
  paged_attention(pool, geometry, {}, 1.0f, 0);
  const AttentionTask nothing;
  paged_attention(pool, geometry, {&nothing, 1}, 1.0f, 0);
}

using WriteKvTest = EachTarget;
NMC_FOR_EACH_TARGET(WriteKvTest);

TEST_P(WriteKvTest, PutsKTransposedAndVAsItIsRoundedToTheCachesType) {
  for (const Dtype dtype : kAllDtypes) {
    for (const std::size_t tokens : {1, 5, 16, 40}) {
      for (const std::size_t dim : {6, 32, 80}) {
        const PagedGeometry geometry{2, 2, dim, tokens, dtype};
        const std::size_t rows = 2 * tokens + 3, start = tokens + 2 % tokens, stride = 2 * dim + 7;
        const std::vector<float> k = random_floats(rows * stride, 1), v = random_floats(rows * stride, 2);
        const std::size_t blocks = (start + rows + tokens - 1) / tokens;
        const std::byte untouched{0xab};
        std::vector<std::vector<std::byte>> memory(blocks, std::vector<std::byte>(geometry.span_bytes(), untouched));
        std::vector<std::byte*> addresses;
        for (auto& block : memory) addresses.push_back(block.data());
        write_kv(geometry, k.data(), v.data(), stride, rows, start, addresses.data());
        const std::vector<std::byte> k_bytes = narrowed(k, dtype), v_bytes = narrowed(v, dtype);
        for (std::size_t position = 0; position < blocks * tokens; ++position) {
          for (std::size_t head = 0; head < 2; ++head) {
            for (std::size_t d = 0; d < dim; ++d) {
              const auto& span = memory[position / tokens];
              const std::size_t t = position % tokens;
              const std::size_t size = dtype_bytes(dtype);
              const std::byte* const key = &span[((head * dim + d) * tokens + t) * size];
              const std::byte* const value = &span[(2 * dim * tokens + (head * tokens + t) * dim + d) * size];
              if (position < start || position >= start + rows) {
                ASSERT_TRUE(*key == untouched && *value == untouched);
                continue;
              }
              const std::size_t from = ((position - start) * stride + head * dim + d) * size;
              ASSERT_EQ(std::memcmp(key, &k_bytes[from], size), 0);
              ASSERT_EQ(std::memcmp(value, &v_bytes[from], size), 0);
            }
          }
        }
      }
    }
  }
}

TEST_P(WriteKvTest, RoundsSpecialValuesAsScalarsDo) {
  const std::vector<float> special = {0.0f,        -0.0f,       1e-45f,         6.1e-5f,       5.9e-8f,   65504.0f,
                                      65519.9f,    65520.0f,    3.4e38f,        -3.4e38f,      kInfinity, -kInfinity,
                                      1.00390625f, 1.01171875f, 1.00048828125f, 1.00146484375f};
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    const PagedGeometry geometry{1, 1, special.size(), 1, dtype};
    std::vector<std::byte> block(geometry.span_bytes());
    std::byte* address = block.data();
    write_kv(geometry, special.data(), special.data(), special.size(), 1, 0, &address);
    const std::vector<std::byte> expected = narrowed(special, dtype);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), block.begin())) << dtype_name(dtype);
    std::vector<float> nans(special.size(), kNan);
    write_kv(geometry, nans.data(), nans.data(), special.size(), 1, 0, &address);
    EXPECT_TRUE(std::isnan(element(block, dtype, 0)));
  }
}

}  // namespace
}  // namespace nmc::kernels
