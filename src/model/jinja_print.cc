#include "model/jinja_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "model/unicode.h"
#include "model/unicode_case.h"

namespace nmc::model::jinja {
namespace {

// Collects text and stops when it is too much.
class Output {
 public:
  explicit Output(Budget& budget) : budget_(budget) {}

  Result<void> add(std::string_view bytes, Origin origin = Origin::kTemplate) {
    NMC_RETURN_IF_ERROR(charge(bytes.size()));
    text_.append(bytes, origin);
    return {};
  }
  Result<void> add(const Text& text) {
    NMC_RETURN_IF_ERROR(charge(text.size()));
    text_.append(text);
    return {};
  }
  Budget& budget() { return budget_; }
  Text take() { return std::move(text_); }

 private:
  Result<void> charge(std::size_t bytes) {
    NMC_RETURN_IF_ERROR(budget_.take_steps(1));
    NMC_RETURN_IF_ERROR(budget_.take_bytes(bytes));
    return Budget::check_text(text_.cost() + bytes);
  }

  Budget& budget_;
  Text text_;
};

// Runs of characters that stay as they are go in one piece; `escape` gives what stands for another, or nothing.
template <typename Escape>
Result<void> add_escaped(Output& out, const Text& text, Escape escape) {
  for (const Text::Run& run : text.runs()) {
    std::size_t plain = 0;
    for (std::size_t at = 0; at < run.bytes.size();) {
      const Utf8Char character = utf8_char_at(run.bytes, at);
      const std::string escaped = escape(character.code);
      if (!escaped.empty()) {
        NMC_RETURN_IF_ERROR(out.add(run.bytes.substr(plain, at - plain), run.origin));
        NMC_RETURN_IF_ERROR(out.add(escaped, run.origin));
        plain = at + character.bytes;
      }
      at += character.bytes;
    }
    NMC_RETURN_IF_ERROR(out.add(run.bytes.substr(plain), run.origin));
  }
  return {};
}

std::string escape_in_repr(char32_t code, char quote) {
  if (code == static_cast<char32_t>(quote) || code == '\\') return {'\\', static_cast<char>(code)};
  if (code >= 0x20 && code < 0x7F) return {};
  switch (code) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
  }
  if (is_printable(code)) return {};
  const auto number = static_cast<std::uint32_t>(code);
  if (number < 0x100) return fmt::format("\\x{:02x}", number);
  return number < 0x10000 ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number);
}

std::string escape_in_json(char32_t code, bool ensure_ascii) {
  switch (code) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    default: break;
  }
  const auto number = static_cast<std::uint32_t>(code);
  if (number < 0x20) return fmt::format("\\u{:04x}", number);
  if (!ensure_ascii || number < 0x7F) return {};
  if (number < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((number - 0x10000) >> 10), 0xDC00 + ((number - 0x10000) & 0x3FF));
}

// str() of what is neither a string nor a container.
Result<std::string> scalar_text(const Value& value) {
  if (value.is_undefined()) return std::string();
  if (value.is_none()) return std::string("None");
  if (const bool* flag = value.boolean()) return std::string(*flag ? "True" : "False");
  if (const std::int64_t* integer = value.integer()) return std::to_string(*integer);
  if (const double* real = value.real()) return float_text(*real);
  if (const Range* range = value.range()) {
    return range->step == 1 ? fmt::format("range({}, {})", range->start, range->stop)
                            : fmt::format("range({}, {}, {})", range->start, range->stop, range->step);
  }
  return invalid_argument("{} can't be printed", type_name(value));
}

Result<void> add_repr(Output& out, const Value& value);

Result<void> add_string_repr(Output& out, const Text& text) {
  const bool single = text.bytes().find('\'') != std::string_view::npos;
  const char quote = single && text.bytes().find('"') == std::string_view::npos ? '"' : '\'';
  NMC_RETURN_IF_ERROR(out.add({&quote, 1}));
  NMC_RETURN_IF_ERROR(add_escaped(out, text, [&](char32_t code) { return escape_in_repr(code, quote); }));
  return out.add({&quote, 1});
}

Result<void> add_items_repr(Output& out, const Items& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) NMC_RETURN_IF_ERROR(out.add(", "));
    NMC_RETURN_IF_ERROR(add_repr(out, items[i]));
  }
  return {};
}

Result<void> add_dict_repr(Output& out, const Dict& dict) {
  NMC_RETURN_IF_ERROR(out.add("{"));
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) NMC_RETURN_IF_ERROR(out.add(", "));
    first = false;
    NMC_RETURN_IF_ERROR(add_repr(out, key));
    NMC_RETURN_IF_ERROR(out.add(": "));
    NMC_RETURN_IF_ERROR(add_repr(out, value));
  }
  return out.add("}");
}

Result<void> add_repr(Output& out, const Value& value) {
  if (const Text* text = value.text()) return add_string_repr(out, *text);
  if (const Dict* dict = value.dict()) return add_dict_repr(out, *dict);
  if (const Sequence* sequence = value.sequence()) {
    NMC_RETURN_IF_ERROR(out.add(sequence->is_tuple ? "(" : "["));
    NMC_RETURN_IF_ERROR(add_items_repr(out, sequence->items));
    if (!sequence->is_tuple) return out.add("]");
    return out.add(sequence->items.size() == 1 ? ",)" : ")");
  }
  const Iterable* view = value.iterable();
  if (view != nullptr && !view->once) {
    NMC_RETURN_IF_ERROR(out.add(view->name));
    NMC_RETURN_IF_ERROR(out.add("(["));
    NMC_RETURN_IF_ERROR(add_items_repr(out, view->items));
    return out.add("])");
  }
  if (value.is_undefined()) return out.add("Undefined");
  NMC_ASSIGN_OR_RETURN(const std::string text, scalar_text(value));
  return out.add(text);
}

class JsonPrinter {
 public:
  JsonPrinter(Output& out, const JsonFormat& format) : out_(out), format_(format) {}

  Result<void> add(const Value& value, int level) {
    if (const Text* text = value.text()) return add_string(*text);
    if (const Dict* dict = value.dict()) return add_object(*dict, level);
    if (const Sequence* sequence = value.sequence()) return add_array(sequence->items, level);
    if (value.is_none()) return out_.add("null");
    if (const bool* flag = value.boolean()) return out_.add(*flag ? "true" : "false");
    if (const std::int64_t* integer = value.integer()) return out_.add(std::to_string(*integer));
    if (const double* real = value.real()) return out_.add(number_text(*real));
    return invalid_argument("tojson: {} has no form in JSON", type_name(value));
  }

 private:
  static std::string number_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  Result<void> add_string(const Text& text) {
    NMC_RETURN_IF_ERROR(out_.add("\""));
    NMC_RETURN_IF_ERROR(
        add_escaped(out_, text, [&](char32_t code) { return escape_in_json(code, format_.ensure_ascii); }));
    return out_.add("\"");
  }

  Result<void> break_line(int level) {
    if (!format_.indent) return {};
    NMC_RETURN_IF_ERROR(out_.add("\n"));
    for (int i = 0; i < level; ++i) NMC_RETURN_IF_ERROR(out_.add(*format_.indent));
    return {};
  }

  // What stands before an item: the separator, except for the first one, and a line break where there are any.
  Result<void> begin_item(bool first, int level) {
    if (!first) NMC_RETURN_IF_ERROR(out_.add(format_.item_separator));
    return break_line(level);
  }

  Result<void> add_array(const Items& items, int level) {
    if (items.empty()) return out_.add("[]");
    NMC_RETURN_IF_ERROR(out_.add("["));
    for (std::size_t i = 0; i < items.size(); ++i) {
      NMC_RETURN_IF_ERROR(begin_item(i == 0, level + 1));
      NMC_RETURN_IF_ERROR(add(items[i], level + 1));
    }
    NMC_RETURN_IF_ERROR(break_line(level));
    return out_.add("]");
  }

  Result<void> add_object(const Dict& dict, int level) {
    if (dict.size() == 0) return out_.add("{}");
    NMC_ASSIGN_OR_RETURN(const auto entries, sorted_entries(dict));
    NMC_RETURN_IF_ERROR(out_.add("{"));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      NMC_RETURN_IF_ERROR(begin_item(i == 0, level + 1));
      NMC_RETURN_IF_ERROR(add_key(entries[i]->first));
      NMC_RETURN_IF_ERROR(out_.add(format_.key_separator));
      NMC_RETURN_IF_ERROR(add(entries[i]->second, level + 1));
    }
    NMC_RETURN_IF_ERROR(break_line(level));
    return out_.add("}");
  }

  // JSON's names are strings; Python writes these other keys as one.
  Result<void> add_key(const Value& key) {
    if (key.text() != nullptr) return add_string(*key.text());
    if (!key.is_none() && !key.is_number()) {
      return invalid_argument("tojson: {} can't be a name in JSON", type_name(key));
    }
    NMC_RETURN_IF_ERROR(out_.add("\""));
    NMC_RETURN_IF_ERROR(add(key, 0));
    return out_.add("\"");
  }

  using Entries = std::vector<const std::pair<Value, Value>*>;
  Result<Entries> sorted_entries(const Dict& dict) {
    Entries entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (!format_.sort_keys) return entries;
    for (const auto* entry : entries) {
      if (entry->first.text() == nullptr) return invalid_argument("tojson: sort_keys expects keys that are strings");
    }
    NMC_RETURN_IF_ERROR(out_.budget().take_steps(entries.size() * 16));
    std::ranges::stable_sort(entries, {}, [](const auto* entry) { return entry->first.text()->bytes(); });
    return entries;
  }

  Output& out_;
  const JsonFormat& format_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Digits and exponent first: Python turns to an exponent at other places than the C library.
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  std::string_view written(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::string sign = written.front() == '-' ? "-" : "";
  written.remove_prefix(sign.size());
  const std::size_t e = written.find('e');
  const int exponent = std::atoi(std::string(written.substr(e + 1)).c_str());
  std::string digits(written.substr(0, 1));
  if (e > 2) digits += written.substr(2, e - 2);

  constexpr int kExponentMin = -4, kExponentMax = 16;
  if (exponent < kExponentMin || exponent >= kExponentMax) {
    if (digits.size() > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return fmt::format("{}0.{}{}", sign, std::string(static_cast<std::size_t>(-exponent - 1), '0'), digits);
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return fmt::format("{}{}{}.0", sign, digits, std::string(whole - digits.size(), '0'));
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

Result<Text> to_text(const Value& value, Budget& budget) {
  if (const Text* text = value.text()) return *text;
  Output out(budget);
  if (value.is_undefined()) return Text();
  NMC_RETURN_IF_ERROR(add_repr(out, value));
  return out.take();
}

Result<Text> to_json(const Value& value, const JsonFormat& format, Budget& budget) {
  Output out(budget);
  NMC_RETURN_IF_ERROR(JsonPrinter(out, format).add(value, 0));
  return out.take();
}

}  // namespace nmc::model::jinja
