#include "sim/trace_csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace nmc::sim {
namespace {

enum Column { kArrival, kNamespace, kPrefixId, kPrefixTokens, kSuffixTokens, kOutputTokens, kSession };
constexpr const char* kNames[] = {"arrival_time",  "namespace",     "prefix_id", "prefix_tokens",
                                  "suffix_tokens", "output_tokens", "session"};
constexpr int kRequired = kSuffixTokens + 1;

std::string shown(const std::string& text) { return describe_json(Json(text)); }

}  // namespace

Result<void> TraceCsv::split(std::string_view line, const LineSource& source) {
  fields_.clear();
  for (std::size_t at = 0;;) {
    std::string& field = fields_.emplace_back();
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) {
          return invalid_argument("{}:{}: a quoted field has no end, expected \" on the same line", source.name(),
                                  source.number());
        }
        if (line[at] == '"' && (at + 1 >= line.size() || line[at + 1] != '"')) break;
        if (line[at] == '"') ++at;
        field += line[at];
      }
      ++at;
      if (at < line.size() && line[at] != ',') {
        return invalid_argument("{}:{}: a quoted field goes on after its end, expected a comma", source.name(),
                                source.number());
      }
    } else {
      const std::size_t comma = std::min(line.find(',', at), line.size());
      field = line.substr(at, comma - at);
      at = comma;
    }
    if (at >= line.size()) return {};
    ++at;
  }
}

Result<void> TraceCsv::read_header(std::string_view line, const LineSource& source) {
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  NMC_RETURN_IF_ERROR(split(line, source));
  columns_ = fields_.size();
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    for (int column = 0; column < kColumns; ++column) {
      if (fields_[i] != kNames[column]) continue;
      if (places_[column] >= 0) {
        return invalid_argument("{}:{}: column `{}` comes twice, expected it once", source.name(), source.number(),
                                kNames[column]);
      }
      places_[column] = static_cast<int>(i);
    }
  }
  for (int column = 0; column < kRequired; ++column) {
    if (places_[column] >= 0) continue;
    return invalid_argument(
        "{}:{}: no column `{}`; expected JSON objects, or a line with arrival_time, namespace, prefix_id, "
        "prefix_tokens and suffix_tokens",
        source.name(), source.number(), kNames[column]);
  }
  return {};
}

Result<std::int64_t> TraceCsv::whole(int column, const LineSource& source, std::int64_t high,
                                     std::int64_t absent) const {
  if (places_[column] < 0) return absent;
  const std::string& text = fields_[static_cast<std::size_t>(places_[column])];
  if (text.empty() && column >= kRequired) return absent;
  std::int64_t number = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || number < 0 || number > high) {
    return invalid_argument("{}:{}: `{}`: expected a whole number from 0 to {}, got {}", source.name(), source.number(),
                            kNames[column], high, shown(text));
  }
  return number;
}

Result<void> TraceCsv::add_line(std::string_view line, const LineSource& source, TraceAssembler& assembler) {
  NMC_RETURN_IF_ERROR(split(line, source));
  if (fields_.size() != columns_) {
    return invalid_argument("{}:{}: {} fields, expected {} as in the line of names", source.name(), source.number(),
                            fields_.size(), columns_);
  }
  const auto text_of = [this](int column) -> const std::string& {
    return fields_[static_cast<std::size_t>(places_[column])];
  };
  TraceAssembler::Common common;
  common.line = source.number();
  common.time_field = kNames[kArrival];
  const std::string& time = text_of(kArrival);
  double seconds = -1;
  const auto end = std::from_chars(time.data(), time.data() + time.size(), seconds);
  if (end.ec != std::errc() || end.ptr != time.data() + time.size() || !(seconds >= 0) ||
      seconds > kArrivalMsMax / 1000) {
    return invalid_argument("{}:{}: `arrival_time`: expected seconds from 0 to {}, got {}", source.name(),
                            source.number(), kArrivalMsMax / 1000, shown(time));
  }
  common.arrival_us = static_cast<std::int64_t>(std::llround(seconds * 1e6));
  NMC_ASSIGN_OR_RETURN(const std::int64_t prefix_tokens, whole(kPrefixTokens, source, kTokensMax, 0));
  NMC_ASSIGN_OR_RETURN(const std::int64_t suffix_tokens, whole(kSuffixTokens, source, kTokensMax, 0));
  NMC_ASSIGN_OR_RETURN(common.output_tokens, whole(kOutputTokens, source, kTokensMax, 0));
  NMC_ASSIGN_OR_RETURN(common.session, whole(kSession, source, kSessionMax, -1));
  return assembler.add_prefixed(common, text_of(kNamespace), text_of(kPrefixId), prefix_tokens, suffix_tokens);
}

}  // namespace nmc::sim
