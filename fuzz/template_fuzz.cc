// A chat template, a zero byte, its variables as JSON or nothing. Whatever they are, there is an error that says where,
// or a text, after bounded work. Every string of the variables ends in a mark; where a template's source can't make
// that mark, it must never stand in a part of the text that counts as the template's own.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "model/jinja_template.h"

namespace {

namespace jinja = nmc::model::jinja;

constexpr std::string_view kMark = "\xEE\x80\x81";  // U+E001, a character that means nothing
constexpr std::uint64_t kSteps = 20'000, kBytes = 1 << 20;

void mark_strings(nmc::Json& json) {
  if (json.is_string()) json = json.get<std::string>() + std::string(kMark);
  if (json.is_structured()) {
    for (nmc::Json& member : json) mark_strings(member);
  }
}

bool can_make_mark(std::string_view source) {
  return source.find(kMark) != std::string_view::npos || source.find('\\') != std::string_view::npos;
}

int check_error(const nmc::Error& error) {
  NMC_ASSERT(!error.message.empty() && nmc::is_valid_utf8(error.message), "{}", error.message);
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view source = input.substr(0, input.find('\0'));
  const auto parsed = jinja::Template::parse(source, "input");
  if (!parsed) {
    NMC_ASSERT(parsed.error().message.starts_with("input"), "{}", parsed.error().message);
    return check_error(parsed.error());
  }
  auto json = nmc::parse_json(source.size() < size ? input.substr(source.size() + 1) : "{}", "variables");
  if (!json || !json->is_object()) return 0;
  mark_strings(*json);
  jinja::Budget budget(kSteps, kBytes);
  jinja::Variables variables;
  for (const auto& [name, member] : json->items()) {
    auto value = jinja::value_of_json(member, jinja::Origin::kRequest, budget);
    if (!value) return check_error(value.error());
    variables.emplace_back(name, std::move(*value));
  }
  const auto text = parsed->render(variables, budget, nmc::real_clock());
  if (!text) return check_error(text.error());
  NMC_ASSERT(nmc::is_valid_utf8(text->bytes()) && text->size() <= kBytes);
  for (const jinja::Text::Run& run : text->runs()) {
    const bool own = run.origin == jinja::Origin::kTemplate;
    NMC_ASSERT(!own || can_make_mark(source) || run.bytes.find(kMark) == std::string_view::npos, "{}", text->bytes());
  }
  return 0;
}
