#include "cli/help.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/version.h"
#include "cli/exit_code.h"
#include "kernels/kernels.h"

namespace nmc::cli {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kFlagIndent = 2;
constexpr std::size_t kHelpIndent = 6;

// `text` in lines of at most kWidth columns, each behind `indent` spaces; an empty line stays one.
std::string wrap(std::string_view text, std::size_t indent) {
  std::string result;
  std::string line;
  const auto flush = [&] {
    result += line.empty() ? "\n" : std::string(indent, ' ') + line + '\n';
    line.clear();
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (!line.empty() && indent + line.size() + 1 + word.size() > kWidth) flush();
    if (!word.empty()) line += (line.empty() ? "" : " ") + std::string(word);
    const bool breaks = end < text.size() && text[end] == '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
    if (breaks) flush();
  }
  if (!line.empty()) flush();
  return result;
}

std::string flag_help(const Setting& setting) {
  const bool takes_value = setting.kind != Kind::kSwitch;
  std::string head = "--" + setting.name;
  if (takes_value && !setting.placeholder.empty()) head += " " + setting.placeholder;
  std::string body = setting.help;
  if (takes_value && !setting.default_text.empty()) {
    const bool prose = setting.default_text.find(' ') != std::string::npos;
    body += prose ? fmt::format(" Default: \"{}\"", setting.default_text)
                  : fmt::format(" Default: {}.", setting.default_text);
  }
  if (!setting.unsupported.empty()) {
    body += fmt::format(" Not supported by this version: {}.", fmt::join(setting.unsupported, ", "));
  }
  if (!setting.only.empty() && !setting.default_text.empty()) {
    body += fmt::format(" This version supports {} only.", fmt::join(setting.only, ", "));
  }
  return wrap(head, kFlagIndent) + wrap(body, kHelpIndent);
}

// Names alone: what they would do is another program's affair.
std::string without_effect_help(const Command& command) {
  std::vector<std::string> names;
  for (const Setting& setting : command.settings) {
    if (setting.without_effect) names.push_back("--" + setting.name);
  }
  if (names.empty()) return "";
  return "\nTaken and without effect; one that is set to other than its default is warned of, with the reason:\n" +
         wrap(fmt::format("{}", fmt::join(names, " ")), kFlagIndent);
}

std::string exit_codes_help(const std::vector<int>& codes) {
  std::string result;
  for (const int code : codes) result += fmt::format("  {:<4} {}\n", code, exit_code_meaning(code));
  return result;
}

bool reads_configuration(const Command& command) {
  return std::any_of(command.settings.begin(), command.settings.end(),
                     [](const Setting& setting) { return setting.source != Source::kFlagOnly; });
}

}  // namespace

std::string command_help(const Command& command) {
  std::string text = wrap(fmt::format("nano-mooncake {} - {}", command.name, command.summary), 0) + "\n";
  text += wrap(command.purpose, 0) + "\n";
  text += fmt::format("Usage: nano-mooncake {} {}[flags]\n\nFlags:\n", command.name,
                      command.operands.empty() ? "" : command.operands + " ");
  for (const Setting& setting : command.settings) {
    if (setting.source != Source::kFileOrVariable && !setting.without_effect) text += flag_help(setting);
  }
  text += "  --config FILE\n" + wrap("A JSON object of settings, named as the flags with underscores.", kHelpIndent);
  text += "  -h, --help\n" + wrap("This text.", kHelpIndent);
  text += "  --version\n" + wrap("Version, commit, build type and CPU features in use.", kHelpIndent);
  text += without_effect_help(command);
  if (reads_configuration(command)) {
    text +=
        "\n" + wrap(
                   "Settings of serving are also read from the environment (NANO_MOONCAKE_DRAM_BYTES for --dram-bytes) "
                   "and from --config FILE; flags win over the environment, the environment over the file. "
                   "`nano-mooncake config` prints what is in effect. Byte values may end in KiB, MiB, GiB or TiB.",
                   0);
  }
  text += "\nExit codes:\n" + exit_codes_help(command.exit_codes);
  return text + "\nExample:\n  " + command.example + "\n";
}

std::string program_help(std::span<const Command> commands) {
  std::string text = wrap("nano-mooncake - LLM serving around the KV cache", 0) + "\n";
  text += "Usage: nano-mooncake COMMAND [flags]\n\nCommands:\n";
  std::size_t width = 0;
  for (const Command& command : commands) width = std::max(width, command.name.size());
  for (const Command& command : commands) {
    if (!command.internal) text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  }
  text += "\n" +
          wrap(
              "`nano-mooncake COMMAND --help` tells a command's flags, `nano-mooncake --version` what this build is. "
              "A link named nano-mooncake-COMMAND is the same as nano-mooncake COMMAND.",
              0);
  text += "\nExit codes:\n";
  return text +
         exit_codes_help({kExitDone, kExitJudgedFailed, kExitWrongInput, kExitNotDone, kExitInsufficientEvidence,
                          kExitInterrupted}) +
         "\nExample:\n  nano-mooncake demo\n";
}

std::string version_line() {
  const BuildInfo info = build_info();
  return fmt::format("nano-mooncake {}, commit {}, {} build, {} instructions\n", info.version, info.commit,
                     info.build_type, kernels::instruction_level());
}

}  // namespace nmc::cli
