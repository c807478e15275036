// `nano-mooncake likelihood`: how likely a model finds a text, by the path that serves it.
#include "lab/likelihood.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>

#include "base/files.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "lab/identity.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"model", "dtype",    "mode",       "transfer",     "reuse",
                                              "store", "disk-dir", "dram-bytes", "block-tokens", "threads"};
constexpr std::uint64_t kTextBytesMax = 64 << 20;

Result<std::string> text_of(const Settings& settings) {
  if (settings.has("text") == settings.has("text-file")) {
    return invalid_argument("expected either --text TEXT or --text-file FILE");
  }
  if (settings.has("text")) return settings.text("text");
  return read_file(settings.text("text-file"), kTextBytesMax);
}

Json json_of(const lab::Likelihood& run) {
  return {{"log_likelihood", run.total()},
          {"log_likelihood_per_token", run.per_token()},
          {"perplexity", run.perplexity()},
          {"saved_tokens", run.metrics.saved_tokens},
          {"cache_source", engine::cache_source_name(run.metrics.cache_source)},
          {"total_ms", run.metrics.e2e_ms}};
}

Report make_report(const Serving& serving, const Settings& settings, std::span<const kv::TokenId> tokens,
                   std::size_t given, const std::vector<lab::Likelihood>& runs) {
  const model::Decoder& decoder = *serving.model().decoder;
  Report report;
  report.json = {{"schema", "nano-mooncake/likelihood/v1"},
                 {"provenance", lab::provenance_json({.evidence_tier = lab::tier_of_model(settings.text("model")),
                                                      .model = &serving.model(),
                                                      .workload = {{"kind", "likelihood"},
                                                                   {"token_ids", tokens},
                                                                   {"given_tokens", given},
                                                                   {"runs", runs.size()}}})},
                 {"model", serving.model().name},
                 {"weights_digest", decoder.weights_digest()},
                 {"dtype", dtype_name(decoder.dtype())},
                 {"tokens", tokens.size()},
                 {"given_tokens", given},
                 {"runs", Json::array()},
                 {"token_ids", tokens},
                 {"logprobs", runs.front().logprobs}};
  report.table.columns = {"run",        "tokens",       "log_likelihood", "per_token", "largest_change",
                          "perplexity", "saved_tokens", "cache_source",   "total_ms"};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const lab::Likelihood& run = runs[i];
    double change = 0;
    for (std::size_t t = 0; t < run.logprobs.size(); ++t) {
      change = std::max(change, std::abs(double{run.logprobs[t]} - runs.front().logprobs[t]));
    }
    Json json = json_of(run);
    json["largest_change"] = change;  // of a token's, against the first run
    report.json["runs"].push_back(std::move(json));
    report.table.rows.push_back({Cell(i + 1), Cell(run.logprobs.size()), Cell(run.total(), 6), Cell(run.per_token(), 6),
                                 Cell(change, 6), Cell(run.perplexity(), 4), Cell(run.metrics.saved_tokens),
                                 Cell(engine::cache_source_name(run.metrics.cache_source)),
                                 Cell(run.metrics.e2e_ms, 1)});
  }
  return report;
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const std::string text, text_of(settings));
  NMC_ASSIGN_OR_RETURN(Serving serving, Serving::create(settings));
  if (!settings.on("quiet")) fmt::print(stderr, "nano-mooncake likelihood: {}\n", serving.description());
  const model::Tokenizer& tokenizer = *serving.model().tokenizer;
  const std::vector<kv::TokenId> tokens = tokenizer.encode(text, {.add_bos = tokenizer.adds_bos()});
  const std::size_t given = settings.count("given-tokens");
  if (tokens.size() <= given) {
    return invalid_argument("the text has {} tokens, expected more than the {} that are given", tokens.size(), given);
  }
  std::vector<lab::Likelihood> runs;
  for (std::size_t i = 0; i < settings.count("runs"); ++i) {
    NMC_ASSIGN_OR_RETURN(lab::Likelihood one,
                         lab::measure_likelihood(serving.runtime(), fmt::format("run-{}", i), tokens, given));
    runs.push_back(std::move(one));
  }
  NMC_RETURN_IF_ERROR(write_report(make_report(serving, settings, tokens, given, runs), settings));
  return kExitDone;
}

}  // namespace

Command likelihood_command() {
  Command command{
      .name = "likelihood",
      .summary = "how likely a model finds a text, token by token, by the path that serves it",
      .purpose =
          "Takes a text through the engine as if the model had written it, and notes how likely each token was after "
          "those before it. The first tokens are prefilled as a prompt, from whatever is cached; a further run finds "
          "them in the cache. So the quality of a path (a dtype, reuse, a hand-over) becomes a number: the sum of the "
          "natural logarithms, their mean, the perplexity, and the largest change of a token's against the first "
          "run.\n\n--format json has the value of each token.",
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake likelihood --model smollm2 --text \"The cat sat on the mat.\" --dtype f32",
      .run = run,
  };
  command.settings = {
      {.name = "text",
       .kind = Kind::kText,
       .placeholder = "TEXT",
       .default_text = "",
       .help = "The text. Control tokens in it are only text.",
       .source = Source::kFlagOnly},
      {.name = "text-file",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help = "A file with the text, instead.",
       .source = Source::kFlagOnly},
      {.name = "given-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1",
       .help = "Tokens at the beginning that are a prompt and not judged.",
       .low = 1,
       .high = 1 << 24,
       .source = Source::kFlagOnly},
      {.name = "runs",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "1",
       .help = "How often; all but the first start from what is cached.",
       .low = 1,
       .high = 1000,
       .source = Source::kFlagOnly},
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) command.settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
