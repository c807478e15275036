#include "sim/trace_json.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <cmath>
#include <optional>
#include <vector>

namespace nmc::sim {
namespace {

namespace dom = simdjson::dom;

static_assert(LineSource::kPadding >= simdjson::SIMDJSON_PADDING);

// What the fields of a line hold, each at most once.
struct Fields {
  std::optional<dom::element> timestamp, input_length, output_length, hash_ids, session, arrival_time, name_space,
      prefix_id, prefix_tokens, suffix_tokens, output_tokens;

  std::optional<dom::element>* find(std::string_view name) {
    if (name == "timestamp") return &timestamp;
    if (name == "input_length") return &input_length;
    if (name == "output_length") return &output_length;
    if (name == "hash_ids") return &hash_ids;
    if (name == "session") return &session;
    if (name == "arrival_time") return &arrival_time;
    if (name == "namespace") return &name_space;
    if (name == "prefix_id") return &prefix_id;
    if (name == "prefix_tokens") return &prefix_tokens;
    if (name == "suffix_tokens") return &suffix_tokens;
    if (name == "output_tokens") return &output_tokens;
    return nullptr;
  }
};

std::string described(const std::optional<dom::element>& value) {
  if (!value) return "nothing";
  std::string text = simdjson::minify(*value);
  if (text.size() <= 40) return text;
  std::size_t end = 40;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "...";
}

// Checks with the place of the value in their errors.
class Checker {
 public:
  explicit Checker(const LineSource& source) : source_(source) {}

  Failure wrong(const char* field, const std::string& expected, const std::optional<dom::element>& value) const {
    return invalid_argument("{}:{}: `{}`: expected {}, got {}", source_.name(), source_.number(), field, expected,
                            described(value));
  }

  Result<std::int64_t> whole(const char* field, const std::optional<dom::element>& value, std::int64_t low,
                             std::int64_t high) const {
    std::int64_t number = 0;
    if (!value || value->get(number) != simdjson::SUCCESS || number < low || number > high) {
      return wrong(field, fmt::format("a whole number from {} to {}", low, high), value);
    }
    return number;
  }

  Result<std::int64_t> whole_or(const char* field, const std::optional<dom::element>& value, std::int64_t low,
                                std::int64_t high, std::int64_t absent) const {
    if (!value || value->is_null()) return absent;
    return whole(field, value, low, high);
  }

  // In microseconds.
  Result<std::int64_t> time(const char* field, const std::optional<dom::element>& value, double ms_in_one) const {
    double number = 0;
    const double high = kArrivalMsMax / ms_in_one;
    if (!value || value->get(number) != simdjson::SUCCESS || !(number >= 0) || number > high) {
      return wrong(field, fmt::format("a number from 0 to {}", high), value);
    }
    return static_cast<std::int64_t>(std::llround(number * ms_in_one * 1000));
  }

  // Text, or a whole number as it is written.
  Result<std::string> name(const char* field, const std::optional<dom::element>& value) const {
    std::string_view text;
    if (value && value->get(text) == simdjson::SUCCESS) return std::string(text);
    if (value && (value->is_int64() || value->is_uint64())) return std::string(simdjson::minify(*value));
    return wrong(field, "text or a whole number", value);
  }

 private:
  const LineSource& source_;
};

}  // namespace

struct TraceJson::State {
  dom::parser parser;
  std::vector<std::uint64_t> ids;
};

TraceJson::TraceJson() : state_(std::make_unique<State>()) {}
TraceJson::~TraceJson() = default;

Result<void> TraceJson::add_line(std::string_view line, const LineSource& source, TraceAssembler& assembler) {
  const auto at = [&] { return fmt::format("{}:{}", source.name(), source.number()); };
  dom::element root;
  if (const auto error = state_->parser.parse(line.data(), line.size(), false).get(root); error) {
    return invalid_argument("{}: expected a JSON object: {}", at(), simdjson::error_message(error));
  }
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return invalid_argument("{}: expected a JSON object", at());
  Fields fields;
  for (const auto field : object) {
    std::optional<dom::element>* const place = fields.find(field.key);
    if (place == nullptr) continue;
    if (*place) return invalid_argument("{}: `{}` comes twice, expected it once", at(), field.key);
    *place = field.value;
  }

  const Checker check(source);
  TraceAssembler::Common common;
  common.line = source.number();
  NMC_ASSIGN_OR_RETURN(common.session, check.whole_or("session", fields.session, 0, kSessionMax, -1));
  if (fields.prefix_id || fields.arrival_time) {
    common.time_field = "arrival_time";
    NMC_ASSIGN_OR_RETURN(common.arrival_us, check.time("arrival_time", fields.arrival_time, 1000));
    NMC_ASSIGN_OR_RETURN(common.output_tokens, check.whole_or("output_tokens", fields.output_tokens, 0, kTokensMax, 0));
    NMC_ASSIGN_OR_RETURN(const std::string name_space, check.name("namespace", fields.name_space));
    NMC_ASSIGN_OR_RETURN(const std::string prefix_id, check.name("prefix_id", fields.prefix_id));
    NMC_ASSIGN_OR_RETURN(const std::int64_t prefix, check.whole("prefix_tokens", fields.prefix_tokens, 0, kTokensMax));
    NMC_ASSIGN_OR_RETURN(const std::int64_t suffix, check.whole("suffix_tokens", fields.suffix_tokens, 0, kTokensMax));
    return assembler.add_prefixed(common, name_space, prefix_id, prefix, suffix);
  }
  common.time_field = "timestamp";
  NMC_ASSIGN_OR_RETURN(common.arrival_us, check.time("timestamp", fields.timestamp, 1));
  NMC_ASSIGN_OR_RETURN(const std::int64_t input, check.whole("input_length", fields.input_length, 1, kTokensMax));
  NMC_ASSIGN_OR_RETURN(common.output_tokens, check.whole_or("output_length", fields.output_length, 0, kTokensMax, 0));
  dom::array ids;
  if (!fields.hash_ids || fields.hash_ids->get(ids) != simdjson::SUCCESS) {
    return check.wrong("hash_ids", "an array of whole numbers", fields.hash_ids);
  }
  state_->ids.clear();
  for (const dom::element id : ids) {
    std::uint64_t number = 0;
    if (id.get(number) != simdjson::SUCCESS) return check.wrong("hash_ids", "whole numbers from 0", id);
    state_->ids.push_back(number);
  }
  return assembler.add_chain(common, input, state_->ids);
}

}  // namespace nmc::sim
