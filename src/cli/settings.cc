#include "cli/settings.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"
#include "cli/nearest.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kVariablePrefix = "NANO_MOONCAKE_";
constexpr std::uint64_t kFileBytesMax = 1 << 20;

// Variables that are read elsewhere, before or besides any setting: by every program, by masters and their clients.
const std::string kOtherVariables[] = {
    "NANO_MOONCAKE_FAILPOINTS_LOG", "NANO_MOONCAKE_PROCESS", "NANO_MOONCAKE_FAILPOINTS",      "NANO_MOONCAKE_TOKEN",
    "NANO_MOONCAKE_TOKEN_FILE",     "NANO_MOONCAKE_TLS_CA",  "NANO_MOONCAKE_STORE_TRANSPORT", "NANO_MOONCAKE_CACHE"};

// The members of a configuration file by setting name.
using FileValues = std::map<std::string, Json>;

Result<FileValues> read_configuration(std::span<const Setting> settings, const Path& path) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kFileBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  if (!json.is_object()) return invalid_argument("{}: expected an object, got {}", path.string(), json_type_name(json));
  std::vector<std::string> known;
  for (const Setting& setting : settings) {
    if (setting.source != Source::kFlagOnly) known.push_back(key_name(setting));
  }
  FileValues values;
  for (const auto& [name, value] : json.items()) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return invalid_argument("{}: `{}` is not a known setting{}", path.string(), name, did_you_mean(key, known));
    }
    std::replace(key.begin(), key.end(), '_', '-');
    if (!values.emplace(key, value).second) return invalid_argument("{}: `{}` is given twice", path.string(), name);
  }
  return values;
}

Result<EffectiveValue> effective_value(const Setting& setting, const Flags& flags, const Environment& environment,
                                       const FileValues& file, const std::string& file_name) {
  EffectiveValue result{.setting = setting, .value = {}, .where = ""};
  const bool own = setting.source == Source::kFlagOnly;
  if (const auto flag = flags.find(setting.name); flag != flags.end()) {
    result.origin = Origin::kFlag;
    result.where = "--" + setting.name;
    NMC_ASSIGN_OR_RETURN(result.value, parse_value(setting, flag->second, result.where));
  } else if (const auto variable = environment.find(variable_name(setting)); !own && variable != environment.end()) {
    result.origin = Origin::kEnvironment;
    result.where = variable->first;
    NMC_ASSIGN_OR_RETURN(result.value, parse_value(setting, variable->second, result.where));
  } else if (const auto member = file.find(setting.name); !own && member != file.end() && !member->second.is_null()) {
    result.origin = Origin::kFile;
    result.where = fmt::format("{}: `{}`", file_name, key_name(setting));
    NMC_ASSIGN_OR_RETURN(result.value, value_from_json(setting, member->second, result.where));
  } else if (!setting.default_text.empty()) {
    NMC_ASSIGN_OR_RETURN(result.value, parse_value(setting, setting.default_text, "default of --" + setting.name));
  }
  return result;
}

}  // namespace

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::kDefault: return "default";
    case Origin::kFile: return "file";
    case Origin::kEnvironment: return "environment";
    case Origin::kFlag: return "flag";
  }
  return "default";
}

const EffectiveValue& Settings::find(std::string_view name) const {
  const auto it = std::find_if(values_.begin(), values_.end(),
                               [&](const EffectiveValue& value) { return value.setting.name == name; });
  NMC_REQUIRE(it != values_.end(), "setting={}", name);
  return *it;
}

bool Settings::has(std::string_view name) const { return !std::holds_alternative<std::monostate>(find(name).value); }
const std::string& Settings::text(std::string_view name) const { return std::get<std::string>(find(name).value); }
std::string Settings::text_or(std::string_view name, std::string absent) const {
  if (has(name)) return text(name);
  return absent;
}
std::int64_t Settings::integer(std::string_view name) const { return std::get<std::int64_t>(find(name).value); }
const std::vector<std::int64_t>& Settings::integers(std::string_view name) const {
  return std::get<std::vector<std::int64_t>>(find(name).value);
}
std::vector<std::string> Settings::words(std::string_view name) const {
  std::vector<std::string> words;
  if (!has(name)) return words;
  std::string_view text = this->text(name);
  for (std::size_t comma; (comma = text.find(',')) != std::string_view::npos; text.remove_prefix(comma + 1))
    words.emplace_back(text.substr(0, comma));
  words.emplace_back(text);
  return words;
}
double Settings::seconds(std::string_view name) const { return std::get<double>(find(name).value); }
bool Settings::on(std::string_view name) const { return std::get<bool>(find(name).value); }

std::string Settings::where(std::string_view name) const {
  const EffectiveValue& value = find(name);
  return value.where.empty() ? "--" + value.setting.name : value.where;
}

Environment process_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (!text.starts_with(kVariablePrefix) || equals == std::string_view::npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

Result<Settings> resolve_settings(std::span<const Setting> settings, const Flags& flags, const Environment& environment,
                                  const std::optional<Path>& file, std::vector<std::string> operands) {
  FileValues file_values;
  if (file) {
    NMC_ASSIGN_OR_RETURN(file_values, read_configuration(settings, *file));
  }
  std::vector<EffectiveValue> values;
  for (const Setting& setting : settings) {
    NMC_ASSIGN_OR_RETURN(EffectiveValue value,
                         effective_value(setting, flags, environment, file_values, file ? file->string() : ""));
    values.push_back(std::move(value));
  }
  return Settings(std::move(values), std::move(operands));
}

std::vector<std::string> unknown_variables(std::span<const Setting> settings, const Environment& environment) {
  std::vector<std::string> known(std::begin(kOtherVariables), std::end(kOtherVariables));
  for (const Setting& setting : settings) {
    if (setting.source != Source::kFlagOnly) known.push_back(variable_name(setting));
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    lines.push_back(fmt::format("{} is not a known setting{}", name, did_you_mean(name, known)));
  }
  return lines;
}

std::vector<std::string> settings_without_effect(const Settings& settings) {
  std::vector<std::string> lines;
  for (const EffectiveValue& value : settings.all()) {
    const Setting& setting = value.setting;
    if (!setting.without_effect || value.origin == Origin::kDefault) continue;
    const auto usual = parse_value(setting, setting.default_text, "");
    if (usual && *usual == value.value) continue;
    lines.push_back(
        fmt::format("{} {} has no effect here: {}", value.where, text_from_value(value.value), setting.help));
  }
  return lines;
}

}  // namespace nmc::cli
