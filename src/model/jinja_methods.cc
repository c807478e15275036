#include "model/jinja_methods.h"

#include <algorithm>
#include <span>

#include "model/jinja_arguments.h"
#include "model/jinja_strings.h"
#include "model/unicode.h"

namespace nmc::model::jinja {
namespace {

using Method = Result<Value> (*)(const Value& self, const Arguments& arguments, Budget& budget);
struct Entry {
  std::string_view name;
  Method call;
};

constexpr std::size_t kStripCharactersMax = 256;  // bytes; each character of a text is looked up among them

Result<Value> list_of_texts(std::vector<Text> texts) {
  Items items;
  items.reserve(texts.size());
  for (Text& text : texts) items.emplace_back(std::move(text));
  return make_list(std::move(items));
}

std::size_t count_spaces(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += utf8_char_at(text, at).bytes) {
    count += is_space(utf8_char_at(text, at).code) ? 1 : 0;
  }
  return count;
}

// ---- Strings
// ---------------------------------------------------------------------------------------------------------

template <Text (*kChange)(const Text&)>
Result<Value> change(const Value& self, const Arguments& arguments, Budget&) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("a method of a string", {}, 0, arguments));
  return Value(kChange(*self.text()));
}
Text to_upper(const Text& text) { return in_case(text, LetterCase::kUpper); }
Text to_lower(const Text& text) { return in_case(text, LetterCase::kLower); }

template <bool (*kTest)(std::string_view)>
Result<Value> test(const Value& self, const Arguments& arguments, Budget&) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("a method of a string", {}, 0, arguments));
  return Value(kTest(self.text()->bytes()));
}
bool is_upper(std::string_view text) { return is_all_in_case(text, LetterCase::kUpper); }
bool is_lower(std::string_view text) { return is_all_in_case(text, LetterCase::kLower); }
bool is_letters(std::string_view text) { return is_all(text, CharClass::kLetter); }
bool is_white(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); at += utf8_char_at(text, at).bytes) {
    if (!is_space(utf8_char_at(text, at).code)) return false;
  }
  return !text.empty();
}

template <Ends kEnds>
Result<Value> strip_ends(const Value& self, const Arguments& arguments, Budget&) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("strip", {"chars"}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const Text* characters, bound.text_or_null(0));
  if (characters == nullptr) return Value(strip(*self.text(), kEnds));
  if (characters->size() > kStripCharactersMax) {
    return invalid_argument("`strip`: expected at most {} bytes of characters", kStripCharactersMax);
  }
  return Value(strip(*self.text(), kEnds, characters->bytes()));
}

template <From kFrom>
Result<Value> split_text(const Value& self, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("split", {"sep", "maxsplit"}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const Text* separator, bound.text_or_null(0));
  NMC_ASSIGN_OR_RETURN(const std::int64_t limit, bound.integer_or(1, -1));
  if (separator != nullptr && separator->empty()) return invalid_argument("`split`: the separator is empty");
  const std::string_view text = self.text()->bytes();
  const auto given = separator == nullptr ? std::optional<std::string_view>() : std::optional(separator->bytes());
  const std::size_t borders = given ? count_occurrences(text, *given) : count_spaces(text);
  NMC_RETURN_IF_ERROR(budget.take_steps((borders + 1) * kStepsOfText));
  return list_of_texts(split(*self.text(), given, limit, kFrom));
}

Result<Value> split_into_lines(const Value& self, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("splitlines", {"keepends"}, 0, arguments));
  NMC_RETURN_IF_ERROR(budget.take_steps((count_spaces(self.text()->bytes()) + 1) * kStepsOfText));
  return list_of_texts(split_lines(*self.text(), bound.flag_or(0, false)));
}

Result<Value> replace_text(const Value& self, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("replace", {"old", "new", "count"}, 2, arguments));
  NMC_ASSIGN_OR_RETURN(const Text* old, bound.text(0));
  NMC_ASSIGN_OR_RETURN(const Text* by, bound.text(1));
  NMC_ASSIGN_OR_RETURN(const std::int64_t limit, bound.integer_or(2, -1));
  return replaced(*self.text(), *old, *by, limit, budget);
}

Result<Value> join_texts(const Value& self, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("join", {"iterable"}, 1, arguments));
  if (bound.at(0).is_undefined()) return Value(Text());
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(bound.at(0), budget));
  Text joined;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Text* text = items[i].text();
    if (text == nullptr) return invalid_argument("`join`: expected strings, got {}", type_name(items[i]));
    NMC_RETURN_IF_ERROR(budget.take_bytes(text->cost() + self.text()->cost()));
    if (i > 0) joined.append(*self.text());
    joined.append(*text);
    NMC_RETURN_IF_ERROR(Budget::check_text(joined.cost()));
  }
  return Value(std::move(joined));
}

// The part of a text between two optional positions in characters, as Python's methods take them.
struct Window {
  std::size_t begin = 0;  // bytes
  std::size_t end = 0;
  bool is_empty_range = false;  // begin lies behind end: not even the empty string is found there
};
Result<Window> window_of(const Text& text, const BoundArguments& bound) {
  const auto length = static_cast<std::int64_t>(character_count(text.bytes()));
  const auto position = [&](std::size_t parameter, std::int64_t absent) -> Result<std::int64_t> {
    if (bound.find_some(parameter) == nullptr) return absent;
    NMC_ASSIGN_OR_RETURN(const std::int64_t given, bound.integer_or(parameter, absent));
    return given < 0 ? std::max<std::int64_t>(given + length, 0) : given;
  };
  NMC_ASSIGN_OR_RETURN(const std::int64_t begin, position(1, 0));
  NMC_ASSIGN_OR_RETURN(const std::int64_t end, position(2, length));
  if (begin > std::min(end, length)) return Window{.is_empty_range = true};
  return Window{byte_of_character(text.bytes(), static_cast<std::size_t>(begin)),
                byte_of_character(text.bytes(), static_cast<std::size_t>(std::min(end, length)))};
}

template <bool (*kHas)(std::string_view, std::string_view)>
Result<Value> has_at_end(const Value& self, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("startswith or endswith", {"text", "start", "end"}, 1, arguments));
  NMC_ASSIGN_OR_RETURN(const Window window, window_of(*self.text(), bound));
  const std::string_view part = self.text()->bytes().substr(window.begin, window.end - window.begin);
  const Sequence* choices = bound.at(0).sequence();
  if (choices == nullptr || !choices->is_tuple) {
    NMC_ASSIGN_OR_RETURN(const Text* text, bound.text(0));
    return Value(!window.is_empty_range && kHas(part, text->bytes()));
  }
  for (const Value& choice : choices->items) {
    if (choice.text() == nullptr) return invalid_argument("`startswith` or `endswith`: expected a tuple of strings");
    NMC_RETURN_IF_ERROR(budget.take_bytes(choice.text()->size()));
    if (!window.is_empty_range && kHas(part, choice.text()->bytes())) return Value(true);
  }
  return Value(false);
}
bool has_start(std::string_view text, std::string_view part) { return text.starts_with(part); }
bool has_end(std::string_view text, std::string_view part) { return text.ends_with(part); }

enum class Search { kFind, kFindLast, kIndex, kCount };
template <Search kSearch>
Result<Value> search(const Value& self, const Arguments& arguments, Budget&) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("find, index or count", {"text", "start", "end"}, 1, arguments));
  NMC_ASSIGN_OR_RETURN(const Text* wanted, bound.text(0));
  NMC_ASSIGN_OR_RETURN(const Window window, window_of(*self.text(), bound));
  const std::string_view part = self.text()->bytes().substr(window.begin, window.end - window.begin);
  if (kSearch == Search::kCount) {
    const std::size_t count = window.is_empty_range ? 0 : count_occurrences(part, wanted->bytes());
    return Value(static_cast<std::int64_t>(count));
  }
  std::size_t found = std::string_view::npos;
  if (!window.is_empty_range) {
    found = kSearch == Search::kFindLast ? rfind_bytes(part, wanted->bytes()) : find_bytes(part, wanted->bytes(), 0);
  }
  if (found != std::string_view::npos) {
    return Value(static_cast<std::int64_t>(character_count(self.text()->bytes().substr(0, window.begin + found))));
  }
  if (kSearch == Search::kIndex) return invalid_argument("`index`: the string isn't there");
  return Value(std::int64_t{-1});
}

template <bool kPrefix>
Result<Value> remove_end(const Value& self, const Arguments& arguments, Budget&) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("removeprefix or removesuffix", {"text"}, 1, arguments));
  NMC_ASSIGN_OR_RETURN(const Text* part, bound.text(0));
  const Text& text = *self.text();
  if (kPrefix) return Value(text.slice(text.bytes().starts_with(part->bytes()) ? part->size() : 0, text.size()));
  return Value(text.slice(0, text.size() - (text.bytes().ends_with(part->bytes()) ? part->size() : 0)));
}

constexpr Entry kTextMethods[] = {
    {"capitalize", change<capitalize>},
    {"count", search<Search::kCount>},
    {"endswith", has_at_end<has_end>},
    {"find", search<Search::kFind>},
    {"index", search<Search::kIndex>},
    {"isalpha", test<is_letters>},
    {"islower", test<is_lower>},
    {"isspace", test<is_white>},
    {"isupper", test<is_upper>},
    {"join", join_texts},
    {"lower", change<to_lower>},
    {"lstrip", strip_ends<Ends::kLeft>},
    {"removeprefix", remove_end<true>},
    {"removesuffix", remove_end<false>},
    {"replace", replace_text},
    {"rfind", search<Search::kFindLast>},
    {"rsplit", split_text<From::kRight>},
    {"rstrip", strip_ends<Ends::kRight>},
    {"split", split_text<From::kLeft>},
    {"splitlines", split_into_lines},
    {"startswith", has_at_end<has_start>},
    {"strip", strip_ends<Ends::kBoth>},
    {"title", change<title>},
    {"upper", change<to_upper>},
};
constexpr std::string_view kMissingTextMethods[] = {
    "casefold",  "center",  "encode", "expandtabs",   "format",    "format_map",  "isalnum", "isascii",
    "isdecimal", "isdigit", "ljust",  "isidentifier", "isnumeric", "isprintable", "istitle", "maketrans",
    "partition", "rindex",  "rjust",  "rpartition",   "swapcase",  "translate",   "zfill"};

// ---- Mappings and lists
// ----------------------------------------------------------------------------------------------

Result<Value> get(const Value& self, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("get", {"key", "default"}, 1, arguments));
  if (!arguments.named.empty()) return invalid_argument("`get`: takes no named arguments");
  NMC_ASSIGN_OR_RETURN(const Value* found, self.dict()->find(bound.at(0), budget));
  if (found != nullptr) return *found;
  return bound.find(1) == nullptr ? Value(None()) : bound.at(1);
}

template <typename Pick>
Result<Value> view(std::string_view name, const Value& self, const Arguments& arguments, Budget& budget, Pick pick) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind(name, {}, 0, arguments));
  NMC_RETURN_IF_ERROR(budget.take_steps(self.dict()->size()));
  Items items;
  for (const auto& [key, value] : self.dict()->entries()) {
    NMC_ASSIGN_OR_RETURN(items.emplace_back(), pick(key, value));
  }
  return make_view(fmt::format("dict_{}", name), std::move(items));
}
Result<Value> keys(const Value& self, const Arguments& arguments, Budget& budget) {
  return view("keys", self, arguments, budget, [](const Value& key, const Value&) { return Result<Value>(key); });
}
Result<Value> values(const Value& self, const Arguments& arguments, Budget& budget) {
  return view("values", self, arguments, budget, [](const Value&, const Value& value) { return Result<Value>(value); });
}
Result<Value> items(const Value& self, const Arguments& arguments, Budget& budget) {
  return view("items", self, arguments, budget, [](const Value& key, const Value& value) {
    return make_tuple({key, value});
  });
}

constexpr Entry kDictMethods[] = {{"get", get}, {"items", items}, {"keys", keys}, {"values", values}};
constexpr std::string_view kChangingDictMethods[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kMissingDictMethods[] = {"copy", "fromkeys"};

template <bool kCount>
Result<Value> search_items(const Value& self, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("index or count", {"value"}, 1, arguments));
  std::int64_t count = 0, index = 0;
  for (const Value& item : self.sequence()->items) {
    NMC_ASSIGN_OR_RETURN(const bool equal, is_equal(item, bound.at(0), budget));
    if (equal && !kCount) return Value(index);
    count += equal ? 1 : 0;
    ++index;
  }
  if (!kCount) return invalid_argument("`index`: the value isn't in the list");
  return Value(count);
}

constexpr Entry kSequenceMethods[] = {{"count", search_items<true>}, {"index", search_items<false>}};
constexpr std::string_view kChangingListMethods[] = {"append", "clear",  "extend",  "insert",
                                                     "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kMissingListMethods[] = {"copy"};
constexpr std::string_view kMissingNumberMembers[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
    "is_integer",       "numerator", "real",       "to_bytes"};

constexpr std::string_view kMissingRangeMembers[] = {"count", "index", "start", "step", "stop"};

struct Members {
  std::span<const Entry> callable;
  std::span<const std::string_view> changing;
  std::span<const std::string_view> missing;
};

Members members_of(const Value& object) {
  if (object.text() != nullptr) return {kTextMethods, {}, kMissingTextMethods};
  if (object.dict() != nullptr) return {kDictMethods, kChangingDictMethods, kMissingDictMethods};
  if (const Sequence* sequence = object.sequence()) {
    if (sequence->is_tuple) return {kSequenceMethods, {}, {}};
    return {kSequenceMethods, kChangingListMethods, kMissingListMethods};
  }
  if (object.is_number()) return {{}, {}, kMissingNumberMembers};
  if (object.range() != nullptr) return {{}, {}, kMissingRangeMembers};
  return {};
}

const Entry* find_method(const Value& object, std::string_view name) {
  const std::span<const Entry> methods = members_of(object).callable;
  const auto it = std::ranges::find(methods, name, &Entry::name);
  return it == methods.end() ? nullptr : &*it;
}

}  // namespace

MethodSupport method_support(const Value& object, std::string_view name) {
  if (find_method(object, name) != nullptr) return MethodSupport::kCallable;
  const Members members = members_of(object);
  if (std::ranges::find(members.changing, name) != members.changing.end()) return MethodSupport::kChanges;
  if (std::ranges::find(members.missing, name) != members.missing.end()) return MethodSupport::kMissing;
  return MethodSupport::kNone;
}

Result<Value> replaced(const Text& text, const Text& old, const Text& by, std::int64_t limit, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_bytes(text.size()));
  std::uint64_t count = count_occurrences(text.bytes(), old.bytes());
  if (limit >= 0) count = std::min(count, static_cast<std::uint64_t>(limit));
  NMC_RETURN_IF_ERROR(budget.take_steps(count));
  NMC_RETURN_IF_ERROR(budget.take_bytes(text.cost() + count * (by.cost() + Text::kRunCost)));
  return Value(replace(text, old.bytes(), by, limit));
}

Result<Value> call_method(const Callable& method, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(1));
  if (method.self.text() != nullptr) NMC_RETURN_IF_ERROR(budget.take_bytes(method.self.text()->size()));
  const Entry* entry = find_method(method.self, method.name);
  return entry->call(method.self, arguments, budget);
}

}  // namespace nmc::model::jinja
