// One thing that can be set: on the command line, in the environment or in a configuration file. A Setting is its
// description; a value is checked against it, wherever it comes from, before any work starts.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nmc::cli {

enum class Kind {
  kText,
  kChoice,    // one of `choices`
  kWords,     // one or more, of `choices` if there are some, separated by commas; as a flag also given several times
  kInteger,   // low .. high
  kIntegers,  // one or more of those, separated by commas
  kBytes,     // an integer, or one with KiB, MiB, GiB, TiB (k, m, g, t)
  kSeconds,   // a decimal number, low .. high
  kNumber,    // the same without a unit
  kDuration,  // an integer of milliseconds, or one with ms, s, m or h; low .. high
  kSwitch,    // on or off; as a flag it needs no value
};

// monostate: not set, and without a default.
using Value = std::variant<std::monostate, std::string, std::int64_t, double, bool,
                           std::vector<std::int64_t>>;  // kWords: joined by commas

enum class Source {
  kEverywhere,      // flag, environment, file
  kFileOrVariable,  // not a flag of this command, though another command's
  kFlagOnly,        // about this one run
};

struct Setting {
  std::string name;  // "dram-bytes" for --dram-bytes, NANO_MOONCAKE_DRAM_BYTES and `dram_bytes`
  Kind kind = Kind::kText;
  std::string placeholder;   // what stands for the value in help: "N", "DIR"
  std::string default_text;  // as one would type it; "": not set, and `help` says what that means
  std::string help;          // what it does, in a sentence or two, with its unit
  std::vector<std::string> choices = {};
  std::int64_t low = 0;  // of numbers
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  bool or_zero = false;                              // of whole numbers and bytes: 0 is taken, too
  bool (*accepts)(std::string_view text) = nullptr;  // of text, which is to be ...
  std::string accepted = {};                         // ... this, in the words of help and messages
  std::vector<std::string> unsupported = {};         // well-formed values that this version refuses
  std::vector<std::string> only = {};                // if not empty: the values that this version supports
  bool secret = false;                               // shown as "(set)"
  Source source = Source::kEverywhere;
  // Taken because command lines written for another program have it, text may be empty there; `help` says why it does
  // nothing. Set to anything but its default, it is warned of.
  bool without_effect = false;
};

std::string variable_name(const Setting& setting);  // NANO_MOONCAKE_DRAM_BYTES
std::string key_name(const Setting& setting);       // dram_bytes

// `where` names the place of the value in messages: "--port", "NANO_MOONCAKE_PORT", "/x/conf.json: `port`". Errors are
// kInvalidArgument, or kUnsupported for what a later version may do: "--port: \"x\": expected ...".
Result<Value> parse_value(const Setting& setting, std::string_view text, std::string_view where);
// The same for a member of a configuration file: numbers and switches as JSON has them, text as for a flag.
Result<Value> value_from_json(const Setting& setting, const Json& json, std::string_view where);

// "a whole number from 0 to 65535", for messages and help.
std::string expectation(const Setting& setting);

Json json_from_value(const Value& value);
std::string text_from_value(const Value& value);  // "" if not set

// Bytes as people write them: "1 GiB", "1.5 MiB", "300 B".
std::string format_bytes(std::uint64_t bytes);

}  // namespace nmc::cli
