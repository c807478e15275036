#include "cli/command_line.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <map>

#include "cli/nearest.h"

namespace nmc::cli {
namespace {

const std::string kConfig = "config";
const std::string kHelp = "help";
const std::string kVersion = "version";

std::vector<const Setting*> flag_settings(const Command& command) {
  std::vector<const Setting*> flags;
  for (const Setting& setting : command.settings) {
    if (setting.source != Source::kFileOrVariable) flags.push_back(&setting);
  }
  return flags;
}

// As CLI11 takes them: with underscores for dashes it is the same flag.
std::string spellings(const std::string& name) {
  std::string other = name;
  std::replace(other.begin(), other.end(), '-', '_');
  return other == name ? "--" + name : "--" + name + ",--" + other;
}

std::vector<std::string> flag_names(const Command& command) {
  std::vector<std::string> names = {kConfig, kHelp, kVersion};
  for (const Setting* setting : flag_settings(command)) names.push_back(setting->name);
  return names;
}

Failure unknown_word(const Command& command, const std::string& word) {
  if (!word.starts_with('-') || word == "-") return invalid_argument("unexpected \"{}\", expected flags only", word);
  const std::string flag = word.substr(0, word.find('='));
  const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  for (const Setting& setting : command.settings) {
    if (setting.name == name)
      return invalid_argument("{}: not a flag of this command, {} sets it", flag, variable_name(setting));
  }
  const std::string advice = did_you_mean(name, flag_names(command), "--");
  return invalid_argument("{}: unknown flag{}", flag, advice.empty() ? "; --help lists the flags" : advice);
}

// "-flag" and "--noflag" in our own words. A value that follows its flag may look like them; a number doesn't.
std::string from_gflags(const Command& command, const std::string& word) {
  const bool one_dash = word.size() > 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1]));
  std::string plain = one_dash ? "-" + word : word;
  if (!plain.starts_with("--no") || plain.find('=') != std::string::npos) return plain;
  std::string name = plain.substr(4);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto negated = [&](const Setting* setting) { return setting->kind == Kind::kSwitch && setting->name == name; };
  const std::vector<const Setting*> flags = flag_settings(command);
  return std::any_of(flags.begin(), flags.end(), negated) ? "--" + name + "=false" : plain;
}

std::vector<std::string> words_of(const Command& command, std::span<const std::string> arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    words.push_back(command.gflags ? from_gflags(command, argument) : argument);
    std::string& word = words.back();
    // CLI11 would take the next word for the value of "--flag=".
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    word.pop_back();
    words.emplace_back();
  }
  return words;
}

}  // namespace

Result<CommandLine> parse_command_line(const Command& command, std::span<const std::string> arguments) {
  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  CommandLine line;
  app.add_flag("-h,--help", line.help);
  app.add_flag("--version", line.version);
  std::map<std::string, std::vector<std::string>> given;
  std::map<std::string, CLI::Option*> switches;
  const auto add_value = [&](const std::string& name) {
    app.add_option(spellings(name), given[name])
        ->expected(1)
        ->allow_extra_args(false)  // the next word is an operand
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  add_value(kConfig);
  for (const Setting* setting : flag_settings(command)) {
    if (setting->kind == Kind::kSwitch)
      switches[setting->name] = app.add_flag(spellings(setting->name));
    else
      add_value(setting->name);
  }
  std::vector<std::string> words = words_of(command, arguments);
  std::reverse(words.begin(), words.end());  // what CLI11 wants
  try {
    app.parse(words);
  } catch (const CLI::ArgumentMismatch& error) {  // "--flag: ..."
    const std::string_view message = error.what();
    return invalid_argument("{}: expected a value after the flag", message.substr(0, message.find(':')));
  } catch (const CLI::ParseError& error) {
    return invalid_argument("{}", error.what());
  }
  if (line.help || line.version) return line;
  line.operands = app.remaining();
  for (const std::string& word : line.operands) {
    if (command.operands.empty() || word.starts_with('-')) return unknown_word(command, word);
  }
  if (!command.operands.empty() && line.operands.empty()) return invalid_argument("expected {}", command.operands);
  const auto is_list = [&](const std::string& name) {
    return std::ranges::any_of(
        command.settings, [&](const Setting& setting) { return setting.name == name && setting.kind == Kind::kWords; });
  };
  for (auto& [name, values] : given) {
    if (values.size() > 1 && is_list(name)) values = {fmt::format("{}", fmt::join(values, ","))};
    if (values.size() > 1) return invalid_argument("--{}: given {} times, expected once", name, values.size());
    if (values.empty()) continue;
    if (name == kConfig && values.front().empty()) return invalid_argument("--{}: expected the name of a file", name);
    if (name == kConfig)
      line.config = values.front();
    else
      line.flags[name] = values.front();
  }
  for (const auto& [name, option] : switches) {
    if (option->count() > 0) line.flags[name] = option->results().back();  // "true" unless it said =something
  }
  return line;
}

}  // namespace nmc::cli
