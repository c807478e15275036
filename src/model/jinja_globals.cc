// The functions that a chat template may call by name.
#include <algorithm>
#include <array>
#include <ctime>

#include "model/jinja_arguments.h"
#include "model/jinja_interpreter.h"
#include "model/jinja_print.h"

namespace nmc::model::jinja {
namespace {

constexpr std::array<std::string_view, 5> kGlobals = {"dict", "namespace", "raise_exception", "range", "strftime_now"};
constexpr std::size_t kRaisedBytesMax = 2000;
constexpr std::size_t kTimeFormatBytesMax = 256;

// The entries of a mapping or of pairs, as dict() takes them, and then the named arguments.
Result<Dict> dict_of(std::string_view function, const Arguments& arguments, Budget& budget) {
  if (arguments.positional.size() > 1) return invalid_argument("`{}`: expected at most one argument", function);
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.dict() != nullptr) {
      for (const auto& [key, value] : source.dict()->entries()) NMC_RETURN_IF_ERROR(dict.set(key, value, budget));
    } else {
      NMC_ASSIGN_OR_RETURN(const Items pairs, take_items(source, budget));
      for (const Value& pair : pairs) {
        NMC_ASSIGN_OR_RETURN(const Items both, take_items(pair, budget));
        if (both.size() != 2) return invalid_argument("`{}`: expected pairs of a key and a value", function);
        NMC_RETURN_IF_ERROR(dict.set(both[0], both[1], budget));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    NMC_RETURN_IF_ERROR(dict.set(Value::of(name), value, budget));
  }
  return dict;
}

Result<Value> range(const Arguments& arguments) {
  if (!arguments.named.empty()) return invalid_argument("`range` takes no named arguments");
  std::array<std::int64_t, 3> given = {0, 0, 1};
  const std::size_t count = arguments.positional.size();
  if (count < 1 || count > 3) return invalid_argument("`range`: expected 1 to 3 integers, got {} arguments", count);
  for (std::size_t i = 0; i < count; ++i) {
    const Value& value = arguments.positional[i];
    std::int64_t scratch = 0;
    const std::int64_t* whole = value.whole(scratch);
    if (whole == nullptr) return invalid_argument("`range`: expected integers, got {}", type_name(value));
    given[count == 1 ? 1 : i] = *whole;
  }
  if (given[2] == 0) return invalid_argument("`range`: the step is 0");
  const std::int64_t size = Range{given[0], given[1], given[2]}.size();
  if (size > kRangeMax) return invalid_argument("`range`: expected at most {} items, got {}", kRangeMax, size);
  return make_range(given[0], given[1], given[2]);
}

}  // namespace

bool Interpreter::is_global(std::string_view name) { return std::ranges::find(kGlobals, name) != kGlobals.end(); }

Result<Value> Interpreter::call_global(std::string_view name, const Arguments& arguments) {
  if (name == "range") return range(arguments);
  if (name == "namespace") return make_namespace(arguments);
  if (name == "raise_exception") return raise_exception(arguments);
  if (name == "strftime_now") return strftime_now(arguments);
  NMC_ASSIGN_OR_RETURN(Dict dict, dict_of("dict", arguments, budget_));
  return make_dict(std::move(dict));
}

Result<Value> Interpreter::make_namespace(const Arguments& arguments) {
  NMC_ASSIGN_OR_RETURN(const Dict dict, dict_of("namespace", arguments, budget_));
  auto names = std::make_shared<Namespace>();
  for (const auto& [key, value] : dict.entries()) {
    if (key.text() == nullptr) return invalid_argument("`namespace`: expected names, got {}", type_name(key));
    names->set(key.text()->bytes(), value);
  }
  namespaces_.push_back(names);
  return Value(std::move(names));
}

Result<Value> Interpreter::raise_exception(const Arguments& arguments) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("raise_exception", {"message"}, 1, arguments));
  NMC_ASSIGN_OR_RETURN(const Text message, to_text(bound.at(0), budget_));
  raised_ = true;
  located_ = true;  // the line says nothing to who sent the conversation
  std::string text(message.bytes().substr(0, kRaisedBytesMax));
  while (!is_valid_utf8(text)) text.pop_back();
  return Failure(Error{ErrorCode::kInvalidArgument,
                       text.empty() ? "the model's chat template refuses this conversation" : std::move(text)});
}

// Local time, as Python's datetime.now().
Result<Value> Interpreter::strftime_now(const Arguments& arguments) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("strftime_now", {"format"}, 1, arguments));
  NMC_ASSIGN_OR_RETURN(const Text* format, bound.text(0));
  if (format->size() > kTimeFormatBytesMax || format->bytes().find('\0') != std::string_view::npos) {
    return invalid_argument("`strftime_now`: expected a format of at most {} bytes", kTimeFormatBytesMax);
  }
  const std::time_t now = clock_.unix_seconds();
  std::tm local{};
  ::localtime_r(&now, &local);
  // A leading character tells an empty result from one that doesn't fit.
  const std::string whole = "." + std::string(format->bytes());
  std::array<char, 4096> written{};
  const std::size_t size = std::strftime(written.data(), written.size(), whole.c_str(), &local);
  if (size == 0) return invalid_argument("`strftime_now`: the time in this format is too long");
  const std::string_view text(written.data() + 1, size - 1);
  if (!is_valid_utf8(text)) return invalid_argument("`strftime_now`: the time in this format isn't valid UTF-8");
  return Value::of(text, format->overall_origin());
}

}  // namespace nmc::model::jinja
