// `nano-mooncake capacity`: how large a KV cache is.
#include "sim/capacity.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving_settings.h"
#include "lab/identity.h"

namespace nmc::cli {
namespace {

using sim::Attention;
using sim::CapacityQuestion;
using sim::CapacityRow;
using sim::KvShape;

constexpr std::string_view kServingFlags[] = {"log-level"};
constexpr double kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
constexpr std::string_view kShapeFlags[] = {"layers",    "heads",        "kv-heads",        "head-dim",
                                            "attention", "kv-lora-rank", "qk-rope-head-dim"};

double as(std::uint64_t bytes, double unit) { return static_cast<double>(bytes) / unit; }

std::uint64_t number(const Settings& settings, std::string_view name, std::uint64_t absent) {
  return settings.has(name) ? static_cast<std::uint64_t>(settings.integer(name)) : absent;
}

// With only one of the two counts of heads the other follows: 32 query heads where that can be, 4 to a key otherwise.
Result<void> read_heads(const Settings& settings, KvShape& shape) {
  const bool mha = shape.attention == Attention::kMha, mqa = shape.attention == Attention::kMqa;
  const std::uint64_t kv = number(settings, "kv-heads", 0), heads = number(settings, "heads", 0);
  shape.heads = heads != 0 ? heads : mha && kv != 0 ? kv : kv == 0 || 32 % kv == 0 ? 32 : kv * 4;
  const std::uint64_t usual = mha ? shape.heads : mqa ? 1 : shape.heads % 4 == 0 ? shape.heads / 4 : 1;
  shape.kv_heads = kv != 0 ? kv : usual;
  if ((mha && shape.kv_heads != shape.heads) || (mqa && shape.kv_heads != 1)) {
    return invalid_argument("{}: {}: expected {}, since the attention is {}", settings.where("kv-heads"),
                            shape.kv_heads, usual, attention_name(shape.attention));
  }
  if (shape.heads % shape.kv_heads == 0) return {};
  return invalid_argument("{}: {}: expected a divisor of the {} query heads", settings.where("kv-heads"),
                          shape.kv_heads, shape.heads);
}

Result<KvShape> shape_of(const Settings& settings) {
  if (settings.has("model")) {
    for (const std::string_view flag : kShapeFlags) {
      if (settings.has(flag))
        return invalid_argument("{}: expected without --model, whose config.json says it", settings.where(flag));
    }
    return sim::read_kv_shape(settings.text("model"));
  }
  KvShape shape;
  shape.attention = *sim::parse_attention(settings.text_or("attention", "gqa"));
  shape.layers = number(settings, "layers", shape.layers);
  NMC_RETURN_IF_ERROR(read_heads(settings, shape));
  shape.key_dim = shape.value_dim = number(settings, "head-dim", shape.key_dim);
  shape.latent_dim = number(settings, "kv-lora-rank", shape.latent_dim);
  shape.rope_dim = number(settings, "qk-rope-head-dim", shape.rope_dim);
  return shape;
}

std::uint64_t bytes_of_dtype(std::string_view dtype) {
  return dtype == "f32" ? 4 : dtype == "bf16" || dtype == "f16" ? 2 : 1;
}

Result<CapacityQuestion> question_of(const Settings& settings, const KvShape& shape) {
  CapacityQuestion question;
  question.tokens = settings.bytes("seq-len");
  question.batch = settings.bytes("batch");
  question.tensor_parallel = settings.bytes("tp");
  question.page_tokens = settings.bytes("page-tokens");
  question.chunk_tokens = settings.bytes("chunk-tokens");
  question.element_bytes = settings.has("kv-dtype") ? bytes_of_dtype(settings.text("kv-dtype")) : shape.element_bytes;
  question.quant_group = number(settings, "quant-group", 0);
  question.scale_bytes = settings.bytes("quant-scale-bytes");
  question.zero_point = settings.on("quant-zero-point");
  question.bandwidth_gib_s = settings.seconds("bandwidth-gib-s");
  if (question.bandwidth_gib_s > 0) return question;
  return invalid_argument("{}: expected a number above 0", settings.where("bandwidth-gib-s"));
}

Json json_of(const CapacityRow& row) {
  const KvShape& shape = row.shape;
  const bool latent = shape.attention == Attention::kMla;
  Json json = {{"attention", attention_name(shape.attention)},
               {"layers", shape.layers},
               {"heads", shape.heads},
               {"kv_heads", latent ? Json(nullptr) : Json(shape.kv_heads)},
               {"key_dim", latent ? Json(nullptr) : Json(shape.key_dim)},
               {"value_dim", latent ? Json(nullptr) : Json(shape.value_dim)},
               {"kv_lora_rank", latent ? Json(shape.latent_dim) : Json(nullptr)},
               {"qk_rope_head_dim", latent ? Json(shape.rope_dim) : Json(nullptr)},
               {"token_bytes", row.token_bytes},
               {"kib_per_token", as(row.token_bytes, kKiB)},
               {"allocated_tokens", row.allocated_tokens},
               {"gib_per_request", as(row.request_bytes, kGiB)},
               {"effective_gib_per_request", as(row.effective_request_bytes, kGiB)},
               {"kv_heads_per_rank", row.rank_heads},
               {"mib_per_request_per_rank", as(row.rank_request_bytes, kMiB)},
               {"copies_over_ranks", row.replication},
               {"gib_per_batch", as(row.batch_bytes, kGiB)},
               {"mib_per_chunk", as(row.chunk_bytes, kMiB)},
               {"network_lower_bound_ms", row.network_ms},
               {"metadata_kib_per_token", as(row.metadata_token_bytes, kKiB)},
               {"metadata_gib_per_request", as(row.metadata_request_bytes, kGiB)},
               {"network_lower_bound_with_metadata_ms", row.network_with_metadata_ms},
               {"notes", row.notes}};
  return json;
}

std::string significant(double number) { return fmt::format("{:.6g}", number); }

std::vector<Cell> cells_of(const CapacityRow& row, bool metadata) {
  const KvShape& shape = row.shape;
  const auto cell = [](double number) {
    Cell made(significant(number));
    made.is_number = true;
    return made;
  };
  const std::string kept = shape.attention == Attention::kMla ? fmt::format("{} + {}", shape.latent_dim, shape.rope_dim)
                           : shape.key_dim == shape.value_dim
                               ? fmt::format("2 x {} x {}", shape.kv_heads, shape.key_dim)
                               : fmt::format("{} x ({} + {})", shape.kv_heads, shape.key_dim, shape.value_dim);
  std::vector<Cell> cells = {attention_name(shape.attention),        kept,
                             cell(as(row.token_bytes, kKiB)),        Cell(row.allocated_tokens),
                             cell(as(row.request_bytes, kGiB)),      cell(as(row.effective_request_bytes, kGiB)),
                             cell(as(row.rank_request_bytes, kMiB)), cell(as(row.batch_bytes, kGiB)),
                             cell(as(row.chunk_bytes, kMiB)),        cell(row.network_ms)};
  if (metadata) {
    cells.push_back(cell(as(row.metadata_token_bytes, kKiB)));
    cells.push_back(cell(as(row.metadata_request_bytes, kGiB)));
    cells.push_back(cell(row.network_with_metadata_ms));
  }
  return cells;
}

Json workload_json(const KvShape& shape, const CapacityQuestion& question) {
  return {{"kind", "capacity"},
          {"attention", attention_name(shape.attention)},
          {"layers", shape.layers},
          {"elements_per_layer", shape.layer_elements()},
          {"heads", shape.heads},
          {"kv_heads", shape.kv_heads},
          {"window", shape.window},
          {"tokens", question.tokens},
          {"batch", question.batch},
          {"tensor_parallel", question.tensor_parallel},
          {"page_tokens", question.page_tokens},
          {"chunk_tokens", question.chunk_tokens},
          {"element_bytes", question.element_bytes},
          {"quant_group", question.quant_group},
          {"scale_bytes", question.scale_bytes},
          {"zero_point", question.zero_point},
          {"bandwidth_gib_s", question.bandwidth_gib_s}};
}

Report report_of(const std::vector<CapacityRow>& rows, const CapacityQuestion& question) {
  Report report;
  const KvShape& asked = rows.front().shape;
  report.json = {{"schema", "nano-mooncake/capacity/v1"},
                 {"provenance", lab::simulation_provenance_json(workload_json(asked, question))},
                 {"model", asked.name.empty() ? Json(nullptr) : Json(asked.name)},
                 {"seq_len", question.tokens},
                 {"batch", question.batch},
                 {"tp", question.tensor_parallel},
                 {"page_tokens", question.page_tokens},
                 {"chunk_tokens", question.chunk_tokens},
                 {"kv_element_bytes", question.element_bytes},
                 {"bandwidth_gib_s", question.bandwidth_gib_s},
                 {"rows", Json::array()}};
  const bool metadata = question.element_bytes == 1;
  report.table.columns = {"attention",     "elements a layer", "KiB/token", "allocated tokens", "GiB/request",
                          "effective GiB", "MiB/request/rank", "GiB/batch", "MiB/chunk",        "network ms, at least"};
  if (metadata) {
    for (const char* column : {"metadata KiB/token", "metadata GiB/request", "network ms with metadata"})
      report.table.columns.emplace_back(column);
  }
  std::string notes;
  for (const CapacityRow& row : rows) {
    report.json["rows"].push_back(json_of(row));
    report.table.rows.push_back(cells_of(row, metadata));
    for (const std::string& note : row.notes)
      notes += fmt::format("{}: {}\n", attention_name(row.shape.attention), note);
  }
  report.text = fmt::format(
      "{}{} layers, {} bytes an element; a request of {} tokens in pages of {}, {} of them; {} ranks; {:g} "
      "GiB/s\n\n{}{}{}",
      asked.name.empty() ? "" : asked.name + ": ", asked.layers, question.element_bytes, question.tokens,
      question.page_tokens, question.batch, question.tensor_parallel, question.bandwidth_gib_s,
      format_table(transposed(report.table)), notes.empty() ? "" : "\n", notes);
  return report;
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const KvShape shape, shape_of(settings));
  NMC_ASSIGN_OR_RETURN(const CapacityQuestion question, question_of(settings, shape));
  NMC_ASSIGN_OR_RETURN(const std::vector<CapacityRow> rows, capacity_table(shape, question));
  NMC_RETURN_IF_ERROR(write_report(report_of(rows, question), settings));
  return kExitDone;
}

Setting count_setting(const char* name, const char* default_text, const char* help, std::int64_t high) {
  return {.name = name,
          .kind = Kind::kInteger,
          .placeholder = "N",
          .default_text = default_text,
          .help = help,
          .low = 1,
          .high = high,
          .source = Source::kFlagOnly};
}

std::vector<Setting> capacity_settings() {
  constexpr std::int64_t kMany = 1 << 20, kTokens = std::int64_t{1} << 32;
  std::vector<Setting> settings = {
      {.name = "model",
       .placeholder = "PATH",
       .help =
           "A config.json in Hugging Face layout, or its folder: Llama, Mistral, Qwen, DeepSeek-V2 and V3, and what "
           "names its sizes alike. Default: the numbers below.",
       .source = Source::kFlagOnly},
      {.name = "attention",
       .kind = Kind::kChoice,
       .help = "What is kept of a token: a key and a value for each head (mha), each group of heads (gqa), all heads "
               "(mqa), or a latent (mla). Default: gqa.",
       .choices = {"mha", "gqa", "mqa", "mla"},
       .source = Source::kFlagOnly},
      count_setting("layers", "", "Layers. Default: 32.", kMany),
      count_setting("heads", "", "Query heads. Default: 32, or 4 to a KV head if those don't divide 32.", kMany),
      count_setting("kv-heads", "", "KV heads. Default: 8, or what --heads and --attention make of it.", kMany),
      count_setting("head-dim", "", "Elements of a head's key, and of its value. Default: 128.", kMany),
      count_setting("kv-lora-rank", "", "Elements of MLA's latent. Default: 512.", kMany),
      count_setting("qk-rope-head-dim", "", "Elements of MLA's rotated part. Default: 64.", kMany),
      count_setting("seq-len", "8192", "Tokens of a request.", kTokens),
      count_setting("batch", "64", "Requests at once.", kMany),
      count_setting("tp", "8", "Ranks that share a layer's heads.", 4096),
      count_setting("page-tokens", "16", "Tokens that are allocated together.", kMany),
      count_setting("chunk-tokens", "256", "Tokens that are stored or sent together.", kTokens),
      {.name = "kv-dtype",
       .kind = Kind::kChoice,
       .help = "Type of the cache. With a 1-byte type the metadata of its quantisation has lines of its own. Default: "
               "the model's, or bf16.",
       .choices = {"bf16", "f16", "f32", "fp8", "int8"},
       .source = Source::kFlagOnly},
      count_setting("quant-group", "",
                    "Elements that share a scale. Default: those of one key, one value, or one part of a latent.",
                    kMany),
      count_setting("quant-scale-bytes", "2", "Bytes of a scale, and of a zero point.", 8),
      {.name = "quant-zero-point",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Each scale comes with a zero point.",
       .source = Source::kFlagOnly},
      {.name = "bandwidth-gib-s",
       .kind = Kind::kNumber,
       .placeholder = "B",
       .default_text = "20",
       .help = "What the network really carries, in GiB/s.",
       .low = 0,
       .high = 1 << 20,
       .source = Source::kFlagOnly},
  };
  return settings;
}

}  // namespace

Command capacity_command() {
  Command command{
      .name = "capacity",
      .summary = "how large a KV cache is, by attention, and how long moving it takes at least",
      .purpose =
          "Bytes of KV of a token, a request, a rank, a batch and a chunk, for a model's config.json or for given "
          "numbers, with the other attentions of the same layers and heads beside it. Pages that are allocated and "
          "tokens that are used stand apart. It is arithmetic: nothing is loaded or measured. Without flags: 32 "
          "layers, 8 KV heads of 128, 2 bytes, a request of 8192 tokens over 8 ranks.",
      .settings = capacity_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "nano-mooncake capacity --model ./DeepSeek-V3 --seq-len 32768 --kv-dtype fp8",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) command.settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
