// `nano-mooncake demo`: one prompt twice through the whole path, and what the cache saved.
#include <fmt/core.h>

#include <cstdio>

#include "base/failpoint.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "lab/identity.h"
#include "lab/one_request.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"model", "mode", "transfer", "disk-dir"};

struct Run {
  std::string text;
  engine::RequestMetrics metrics;
};

// A user's turn where the model's chat template can be rendered, else the text as it is.
Result<std::vector<kv::TokenId>> prompt_ids(const model::Model& model, const Settings& settings) {
  const std::string& prompt = settings.text("prompt");
  model::Chat chat;
  chat.messages.push_back(model::make_chat_message("user", prompt));
  Result<std::vector<kv::TokenId>> ids = model.chat_template->render(*model.tokenizer, chat);
  if (ids || ids.error().code != ErrorCode::kUnsupported) return ids;
  return model.tokenizer->encode(prompt, {.add_bos = true});
}

// The run ends with its cache on disk, so that what happens to the process afterwards doesn't matter.
Result<Run> complete(Serving& serving, const Settings& settings, const std::string& id,
                     std::span<const kv::TokenId> prompt) {
  engine::GenerateRequest request;
  request.id = id;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.sampling.temperature = 0;
  request.max_tokens = settings.count("max-new-tokens");
  NMC_ASSIGN_OR_RETURN(lab::Completion completion, lab::run_request(serving.runtime(), std::move(request)));
  NMC_RETURN_IF_ERROR(serving.store().flush());
  return Run{serving.model().tokenizer->decode(completion.tokens), completion.metrics};
}

Json json_of(const Run& run) {
  return {{"text", run.text},
          {"prompt_tokens", run.metrics.prompt_tokens},
          {"computed_tokens", run.metrics.computed_tokens},
          {"saved_tokens", run.metrics.saved_tokens},
          {"cache_source", engine::cache_source_name(run.metrics.cache_source)},
          {"ttft_ms", run.metrics.ttft_ms},
          {"total_ms", run.metrics.e2e_ms}};
}

std::vector<Cell> row_of(std::string name, const Run& run) {
  const engine::RequestMetrics& m = run.metrics;
  return {Cell(std::move(name)),
          Cell(m.prompt_tokens),
          Cell(m.computed_tokens),
          Cell(m.saved_tokens),
          Cell(engine::cache_source_name(m.cache_source)),
          Cell(m.ttft_ms, 2),
          Cell(m.e2e_ms, 2),
          Cell(m.export_ms, 2),
          Cell(m.encode_ms, 2),
          Cell(m.transport_ms, 2),
          Cell(m.unpack_ms, 2),
          Cell(m.import_ms, 2),
          Cell(m.transfer_bytes),
          Cell(m.transfer_carrier)};
}

Report make_report(const Serving& serving, const Settings& settings, const Run& first, const Run& second) {
  const engine::RuntimeOptions& options = serving.runtime().options();
  Report report;
  report.json = {
      {"schema", "nano-mooncake/demo/v1"},
      {"provenance", lab::provenance_json({.evidence_tier = lab::tier_of_model(settings.text("model")),
                                           .model = &serving.model(),
                                           .workload = {{"kind", "demo"},
                                                        {"prompt", settings.text("prompt")},
                                                        {"max_new_tokens", settings.integer("max-new-tokens")}}})},
      {"model", serving.model().name},
      {"mode", engine::mode_name(options.mode)},
      {"transfer", engine::transfer_name(options.transfer)},
      {"runs", {json_of(first), json_of(second)}}};
  report.table.columns = {"run",       "prompt_tokens", "computed_tokens", "saved_tokens", "cache_source",
                          "ttft_ms",   "total_ms",      "export_ms",       "encode_ms",    "transport_ms",
                          "unpack_ms", "import_ms",     "transfer_bytes",  "carrier"};
  report.table.rows = {row_of("first", first), row_of("second", second)};
  report.text = fmt::format("prompt: {}\ntext:   {}\n\n{}", printable(settings.text("prompt")), printable(first.text),
                            format_table(transposed(report.table)));
  return report;
}

Result<int> run(const Settings& settings) {
  if (!is_valid_utf8(settings.text("prompt")))
    return invalid_argument("{}: expected valid UTF-8", settings.where("prompt"));
  NMC_ASSIGN_OR_RETURN(Serving serving, Serving::create(settings));
  if (!settings.on("quiet")) fmt::print(stderr, "nano-mooncake demo: {}\n", serving.description());
  NMC_ASSIGN_OR_RETURN(const std::vector<kv::TokenId> prompt, prompt_ids(serving.model(), settings));
  NMC_ASSIGN_OR_RETURN(const Run first, complete(serving, settings, "first", prompt));
  if (const auto injected = failpoint("demo.between_runs")) return Failure(*injected);
  NMC_ASSIGN_OR_RETURN(const Run second, complete(serving, settings, "second", prompt));
  if (first.text != second.text) {
    return internal_error("the second run's text differs from the first's: {} and {}", dump_json(Json(first.text)),
                          dump_json(Json(second.text)));
  }
  NMC_RETURN_IF_ERROR(write_report(make_report(serving, settings, first, second), settings));
  return kExitDone;
}

}  // namespace

Command demo_command() {
  Command command{
      .name = "demo",
      .summary = "one completion through the whole path, then the same prompt again from the cache",
      .purpose =
          "Tokenizes a prompt, schedules it, prefills from whatever prefix is cached, hands the KV over to the decode "
          "worker and decodes greedily; then does the same again, which now finds everything in the cache. Prints the "
          "text and what each run cost. The built-in model has random weights: its text means nothing.\n\n"
          "Only with --disk-dir can the first run find anything: what an earlier process left there.",
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake demo --prompt \"Why cache keys and values?\" --max-new-tokens 16",
      .run = run,
  };
  command.settings = {
      {.name = "prompt",
       .kind = Kind::kText,
       .placeholder = "TEXT",
       .default_text = "Explain in one paragraph why an LLM server keeps the keys and values of a prompt it has seen.",
       .help = "What the model is asked.",
       .source = Source::kFlagOnly},
      {.name = "max-new-tokens",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "48",
       .help = "Tokens to generate, at most.",
       .low = 1,
       .high = 1'000'000,
       .source = Source::kFlagOnly},
  };
  std::vector<Setting> serving = serving_settings_for(kServingFlags);
  set_default(serving, "mode", "pd");
  set_default(serving, "transfer", "shm");
  set_default(serving, "dram-bytes", "256MiB");
  for (Setting& setting : serving) command.settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
