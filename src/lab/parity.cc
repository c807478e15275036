#include "lab/parity.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "base/mutex.h"
#include "engine/runtime.h"
#include "lab/experiment_workload.h"
#include "lab/one_request.h"
#include "store/store.h"

extern char** environ;

namespace nmc::lab {
namespace {

constexpr char kScript[] =
#include "transformers_logits.inc"  // generated at build time from transformers_logits.py
    ;

constexpr std::uint32_t kBlockTokens = 16;
constexpr std::size_t kStoreBlocks = 256;
// Of the spread of a row's logits. Blocks are summed one after another, so another cut rounds elsewhere; transformers
// computes in f32 throughout, we keep weights and KV in the model's type.
constexpr double kToleranceSame = 1e-3, kToleranceF32 = 1e-3, kToleranceBf16 = 5e-2;

using Rows = std::vector<std::vector<float>>;

// Logits of the served path, by position from the prompt's last token on.
class Recorder {
 public:
  Recorder(std::size_t first, std::size_t rows) : first_(first), rows_(rows) {}
  void add(std::size_t position, std::span<const float> logits) {
    MutexLock lock(mutex_);
    if (position >= first_ && position - first_ < rows_.size())
      rows_[position - first_].assign(logits.begin(), logits.end());
  }
  Rows take() {
    MutexLock lock(mutex_);
    return rows_;
  }

 private:
  const std::size_t first_;
  Mutex mutex_;
  Rows rows_ NMC_GUARDED_BY(mutex_);
};

struct Served {
  std::vector<engine::TokenId> tokens;
  Rows logits;
};

Result<Served> serve(engine::Runtime& runtime, Recorder& recorder, const std::vector<engine::TokenId>& prompt,
                     std::size_t output_tokens) {
  engine::GenerateRequest request;
  request.id = "parity";
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.max_tokens = output_tokens;
  request.ignore_eos = true;
  NMC_ASSIGN_OR_RETURN(Completion completion, run_request(runtime, std::move(request)));
  return Served{std::move(completion.tokens), recorder.take()};
}

// The logits of the last `rows` of `tokens`, whose KV lies in one piece and comes from nowhere else.
Rows full_attention(const model::Decoder& decoder, std::span<const engine::TokenId> tokens, std::size_t rows,
                    ThreadPool& pool) {
  const auto length = static_cast<std::uint32_t>(tokens.size());
  std::vector<std::byte> memory(decoder.kv_layout(length).block_bytes());
  std::byte* const block = memory.data();
  std::vector<float> logits(rows * decoder.config().vocab);
  const model::Chunk chunk{
      .tokens = tokens, .start = 0, .blocks = std::span(&block, 1), .logits = logits.data(), .logit_rows = rows};
  model::Workspace workspace;
  decoder.forward(pool, std::span(&chunk, 1), length, workspace);
  Rows result;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const begin = logits.data() + row * decoder.config().vocab;
    result.emplace_back(begin, begin + decoder.config().vocab);
  }
  return result;
}

struct Difference {
  double max = 0;       // of two logits of one place
  double relative = 0;  // of its row's spread
  std::size_t same_choice = 0, rows = 0;
};

Difference compare(const Rows& ours, const Rows& theirs) {
  Difference difference{.rows = ours.size()};
  for (std::size_t row = 0; row < ours.size(); ++row) {
    const auto [least, largest] = std::ranges::minmax(theirs[row]);
    double max = 0;
    for (std::size_t i = 0; i < ours[row].size(); ++i)
      max = std::max(max, std::abs(static_cast<double>(ours[row][i]) - theirs[row][i]));
    difference.max = std::max(difference.max, max);
    difference.relative = std::max(difference.relative, max / std::max<double>(largest - least, 1e-9));
    const auto choice = [](const std::vector<float>& logits) {
      return std::ranges::max_element(logits) - logits.begin();
    };
    difference.same_choice += choice(ours[row]) == choice(theirs[row]);
  }
  return difference;
}

evidence::ParityRow row_of(std::string against, const Difference& found, double tolerance, const std::string& more) {
  const bool fits = found.relative <= tolerance;
  return {
      .against = std::move(against),
      .status = found.max == 0 ? "equal"
                : fits         ? "within-tolerance"
                               : "different",
      .detail = fmt::format("largest difference {:.2e} of a row's spread, {:.0e} allowed; the likeliest token is the "
                            "same in {} of {} rows{}",
                            found.relative, tolerance, found.same_choice, found.rows, more),
      .tokens = found.rows,
      .logit_difference_max = std::round(found.max * 1e6) / 1e6};
}

Result<evidence::ParityRow> against_full_attention(const model::Model& model,
                                                   const std::vector<engine::TokenId>& prompt,
                                                   const ParityOptions& options, ThreadPool& pool,
                                                   std::vector<engine::TokenId>& sequence) {
  Recorder recorder(prompt.size(), options.output_tokens);
  engine::RuntimeOptions runtime_options{
      .mode = engine::Mode::kPd,
      .transfer = engine::Transfer::kShm,
      .block_tokens = kBlockTokens,
      .on_logits = [&](const std::string&, std::size_t position, std::span<const float> logits) {
        recorder.add(position, logits);
      }};
  const kv::Namespace ns = model.kv_namespace(kBlockTokens);
  NMC_ASSIGN_OR_RETURN(const auto store, store::Store::create({.dram_bytes = kStoreBlocks * ns.layout.block_bytes(),
                                                               .block_bytes = ns.layout.block_bytes()}));
  NMC_ASSIGN_OR_RETURN(const auto runtime, engine::create_runtime(runtime_options, *model.decoder, ns, *store, pool));
  NMC_ASSIGN_OR_RETURN(const Served first, serve(*runtime, recorder, prompt, options.output_tokens));
  NMC_ASSIGN_OR_RETURN(const Served again, serve(*runtime, recorder, prompt, options.output_tokens));
  if (first.tokens != again.tokens || first.logits != again.logits)
    return evidence::ParityRow{.against = "full-attention",
                               .status = "different",
                               .detail = "the same prompt gave other logits the second time, from the cache",
                               .tokens = options.output_tokens};
  sequence = prompt;
  sequence.insert(sequence.end(), first.tokens.begin(), first.tokens.end() - 1);
  const Rows whole = full_attention(*model.decoder, sequence, options.output_tokens, pool);
  return row_of("full-attention", compare(first.logits, whole), kToleranceSame, "");
}

// Its standard output, once it has ended well.
Result<std::string> run_python(const ParityOptions& options, const Path& logits, std::span<const engine::TokenId> ids,
                               const Path& said) {
  std::vector<std::string> words = {options.python, "-c", kScript, options.folder, logits.string()};
  for (const engine::TokenId id : ids) words.push_back(std::to_string(id));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, options.python.c_str(), &files, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return Failure(os_error("start", options.python, error));
  int status = 0;
  retry_on_eintr([&] { return ::waitpid(pid, &status, 0); });
  NMC_ASSIGN_OR_RETURN(std::string text, read_file(said));
  while (text.ends_with('\n')) text.pop_back();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return unavailable("it can't load the checkpoint");
  return text;
}

Result<evidence::ParityRow> against_transformers(const model::Model& model, std::span<const engine::TokenId> sequence,
                                                 const ParityOptions& options, ThreadPool& pool) {
  evidence::ParityRow row{.against = "transformers", .status = "not_available", .detail = "", .tokens = 0};
  if (options.folder.empty()) {
    row.detail = "the model isn't a folder in Hugging Face layout";
    return row;
  }
  NMC_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create("nmc-parity"));
  const Path file = folder.path() / "logits";
  const Result<std::string> said = run_python(options, file, sequence, folder.path() / "said");
  const std::size_t vocab = model.config.vocab, rows = sequence.size();
  const Result<std::string> bytes = said ? read_file(file) : Result<std::string>(Failure(said.error()));
  if (!bytes || bytes->size() != rows * vocab * sizeof(float)) {
    row.detail = !said                                ? fmt::format("{}: {}", options.python, said.error().message)
                 : said->starts_with("not available") ? fmt::format("{}: {}", options.python, *said)
                                                      : "it gave logits of another shape";
    return row;
  }
  Rows theirs(rows, std::vector<float>(vocab));
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(theirs[i].data(), bytes->data() + i * vocab * sizeof(float), vocab * sizeof(float));
  const double tolerance = model.decoder->dtype() == Dtype::kF32 ? kToleranceF32 : kToleranceBf16;
  return row_of("transformers", compare(full_attention(*model.decoder, sequence, rows, pool), theirs), tolerance,
                "; " + *said);
}

}  // namespace

Result<std::vector<evidence::ParityRow>> check_parity(const model::Model& model, const ParityOptions& options,
                                                      ThreadPool& pool) {
  const auto vocab = static_cast<std::uint32_t>(model.config.vocab);
  const std::vector<engine::TokenId> prompt = other_prompt(options.seed, 1, options.prompt_tokens, vocab);
  std::vector<engine::TokenId> sequence;
  NMC_ASSIGN_OR_RETURN(evidence::ParityRow full, against_full_attention(model, prompt, options, pool, sequence));
  if (sequence.empty()) return std::vector{std::move(full)};
  NMC_ASSIGN_OR_RETURN(evidence::ParityRow transformers, against_transformers(model, sequence, options, pool));
  return std::vector{std::move(full), std::move(transformers)};
}

}  // namespace nmc::lab
