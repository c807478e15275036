// The values a command works with, each with the place it came from. Flags win over the environment, the environment
// over the configuration file, the file over the defaults.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "cli/setting.h"

namespace nmc::cli {

enum class Origin { kDefault, kFile, kEnvironment, kFlag };
const char* origin_name(Origin origin);  // "default", "file", "environment", "flag"

struct EffectiveValue {
  Setting setting;
  Value value;
  Origin origin = Origin::kDefault;
  std::string where;  // "--port", "NANO_MOONCAKE_PORT", "/x/conf.json: `port`"; "" for a default
};

// Immutable. Getters by name want a name of the command's list and the kind it has there; anything else is our mistake.
class Settings {
 public:
  explicit Settings(std::vector<EffectiveValue> values, std::vector<std::string> operands = {})
      : values_(std::move(values)), operands_(std::move(operands)) {}

  bool has(std::string_view name) const;  // has a value
  const std::string& text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string absent) const;
  std::int64_t integer(std::string_view name) const;  // kInteger, kBytes, kDuration
  std::uint64_t bytes(std::string_view name) const { return static_cast<std::uint64_t>(integer(name)); }
  std::size_t count(std::string_view name) const { return static_cast<std::size_t>(integer(name)); }
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  std::vector<std::string> words(std::string_view name) const;  // none where it isn't set
  double seconds(std::string_view name) const;                  // kSeconds, kNumber
  bool on(std::string_view name) const;                         // kSwitch

  // "--model" or wherever the value came from, to start a message with.
  std::string where(std::string_view name) const;

  std::span<const EffectiveValue> all() const { return values_; }

  // Words of the command line that are no flags, in their order.
  const std::vector<std::string>& operands() const { return operands_; }

 private:
  const EffectiveValue& find(std::string_view name) const;
  std::vector<EffectiveValue> values_;
  std::vector<std::string> operands_;
};

using Flags = std::map<std::string, std::string>;        // name without dashes -> what stood on the line
using Environment = std::map<std::string, std::string>;  // variables that begin with NANO_MOONCAKE_

// Of this process.
Environment process_environment();

// Checks and merges. An unknown key of the file is an error that names the nearest known one.
Result<Settings> resolve_settings(std::span<const Setting> settings, const Flags& flags, const Environment& environment,
                                  const std::optional<Path>& file, std::vector<std::string> operands = {});

// One line for each variable that nothing here reads, so that a misspelt one doesn't go unnoticed.
std::vector<std::string> unknown_variables(std::span<const Setting> settings, const Environment& environment);

// One line for each setting without effect that was set to anything but its default.
std::vector<std::string> settings_without_effect(const Settings& settings);

}  // namespace nmc::cli
