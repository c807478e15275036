#include "cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/help.h"
#include "cli/serving_settings.h"

namespace nmc::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

Command sample() {
  Command command{
      .name = "sample", .summary = "what it does", .purpose = "Why.", .exit_codes = {0, 2}, .example = "sample"};
  command.settings = {
      {.name = "port", .kind = Kind::kInteger, .placeholder = "N", .default_text = "1", .help = "A port."},
      {.name = "prompt", .kind = Kind::kText, .placeholder = "TEXT", .help = "A prompt."},
      {.name = "quiet", .kind = Kind::kSwitch, .help = "Less."},
      {.name = "log-level", .kind = Kind::kText, .help = "How much."},
      {.name = "dry-run", .kind = Kind::kSwitch, .help = "Nothing."},
      {.name = "hidden", .kind = Kind::kText, .help = "Not here.", .source = Source::kFileOrVariable}};
  return command;
}

Result<CommandLine> parse(std::vector<std::string> words) { return parse_command_line(sample(), words); }
std::string error_of(std::vector<std::string> words) {
  const Result<CommandLine> line = parse(std::move(words));
  return line ? "" : line.error().message;
}

TEST(CommandLineTest, TakesValuesInBothSpellings) {
  const auto line = parse({"--port", "-5", "--prompt=a=b --port", "--quiet", "--config", "x.json"});
  ASSERT_TRUE(line.has_value());
  EXPECT_THAT(line->flags,
              UnorderedElementsAre(Pair("port", "-5"), Pair("prompt", "a=b --port"), Pair("quiet", "true")));
  EXPECT_EQ(line->config, "x.json");
}

TEST(CommandLineTest, AListMayBeGivenInPieces) {
  Command command = sample();
  command.settings.push_back({.name = "word", .kind = Kind::kWords, .help = "Words."});
  const std::vector<std::string> words = {"--word", "a", "--word=b,c"};
  const auto line = parse_command_line(command, words);
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_EQ(line->flags.at("word"), "a,b,c");
}

TEST(CommandLineTest, AnEmptyValueIsOne) {
  const auto line = parse({"--prompt=", "--port=", "--log-level", ""});
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_THAT(line->flags, UnorderedElementsAre(Pair("prompt", ""), Pair("port", ""), Pair("log-level", "")));
  EXPECT_EQ(error_of({"--config="}), "--config: expected the name of a file");
  EXPECT_EQ(error_of({"--prot=", "1"}), "--prot: unknown flag, did you mean --port?");
}

TEST(CommandLineTest, TakesUnderscoresForDashesInNamesOnly) {
  const auto line = parse({"--log_level=a_b-c", "--dry_run"});
  ASSERT_TRUE(line.has_value());
  EXPECT_THAT(line->flags, UnorderedElementsAre(Pair("log-level", "a_b-c"), Pair("dry-run", "true")));
  EXPECT_EQ(parse({"--log_level", "x"})->flags.at("log-level"), "x");
  EXPECT_EQ(error_of({"--log_level=a", "--log-level=b"}), "--log-level: given 2 times, expected once");
  EXPECT_EQ(error_of({"--log_levle=a"}), "--log_levle: unknown flag, did you mean --log-level?");
}

TEST(CommandLineTest, AbsentFlagsAreAbsent) {
  const auto line = parse({});
  ASSERT_TRUE(line.has_value());
  EXPECT_TRUE(line->flags.empty());
  EXPECT_FALSE(line->help || line->version);
}

TEST(CommandLineTest, HelpAndVersionAreSeenAmongOtherFlags) {
  EXPECT_TRUE(parse({"--port", "1", "--help"})->help);
  EXPECT_TRUE(parse({"-h"})->help);
  EXPECT_TRUE(parse({"--version"})->version);
}

TEST(CommandLineTest, FaultsNameTheFlagAndTheNearest) {
  EXPECT_EQ(error_of({"--prot", "1"}), "--prot: unknown flag, did you mean --port?");
  EXPECT_EQ(error_of({"--prot=1"}), "--prot: unknown flag, did you mean --port?");
  EXPECT_EQ(error_of({"--temperature"}), "--temperature: unknown flag; --help lists the flags");
  EXPECT_EQ(error_of({"--hidden", "x"}), "--hidden: not a flag of this command, NANO_MOONCAKE_HIDDEN sets it");
  EXPECT_EQ(error_of({"serve"}), "unexpected \"serve\", expected flags only");
  EXPECT_EQ(error_of({"--port"}), "--port: expected a value after the flag");
  EXPECT_EQ(error_of({"--port", "1", "--port", "2"}), "--port: given 2 times, expected once");
  EXPECT_THAT(error_of({"-x"}), HasSubstr("-x: unknown flag"));
}

TEST(CommandLineTest, ASwitchMayCarryItsValue) {
  EXPECT_THAT(parse({"--quiet=false"})->flags, UnorderedElementsAre(Pair("quiet", "false")));
  EXPECT_THAT(parse({"--quiet=maybe"})->flags, UnorderedElementsAre(Pair("quiet", "maybe")));  // refused as a value is
}

TEST(CommandLineTest, OperandsStandAmongFlagsWhereTheCommandTakesThem) {
  Command command = sample();
  command.operands = "REPORT...";
  const std::vector<std::string> words = {"a.json", "--port", "5", "b.json", "--quiet", "c.json"};
  const auto line = parse_command_line(command, words);
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_THAT(line->operands, ElementsAre("a.json", "b.json", "c.json"));
  EXPECT_THAT(line->flags, UnorderedElementsAre(Pair("port", "5"), Pair("quiet", "true")));
  const auto fault = [&](std::vector<std::string> of) { return parse_command_line(command, of).error().message; };
  EXPECT_EQ(fault({"--port", "5"}), "expected REPORT...");
  EXPECT_EQ(fault({"a.json", "--prot", "5"}), "--prot: unknown flag, did you mean --port?");
  EXPECT_THAT(command_help(command), HasSubstr(" REPORT... [flags]\n"));
}

TEST(CommandLineTest, SpellingsOfGflagsAreTakenWhereTheCommandSaysSo) {
  Command command = sample();
  const std::vector<std::string> words = {"-port", "-5", "-log_level=x", "--nodry_run", "-noquiet"};
  EXPECT_FALSE(parse_command_line(command, words).has_value());
  command.gflags = true;
  const auto line = parse_command_line(command, words);
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_THAT(line->flags, UnorderedElementsAre(Pair("port", "-5"), Pair("log-level", "x"), Pair("dry-run", "false"),
                                                Pair("quiet", "false")));
  EXPECT_EQ(parse_command_line(command, std::vector<std::string>{"--noport"}).error().message,
            "--noport: unknown flag, did you mean --port?");
  EXPECT_TRUE(parse_command_line(command, std::vector<std::string>{"-h"})->help);
  EXPECT_TRUE(parse_command_line(command, std::vector<std::string>{"-help"})->help);
}

TEST(CommandLineTest, EveryCommandsHelpTellsFlagsExitCodesAndAnExample) {
  for (const Command& command : all_commands()) {
    const std::string help = command_help(command);
    EXPECT_THAT(help, HasSubstr(command.summary.substr(0, 40)));
    EXPECT_THAT(help, HasSubstr("\nExit codes:\n  0 "));
    EXPECT_THAT(help, HasSubstr("\nExample:\n  " + command.example));
    for (const Setting& setting : command.settings) {
      if (setting.source == Source::kFileOrVariable) continue;
      EXPECT_THAT(help, HasSubstr((setting.without_effect ? "--" : "\n  --") + setting.name)) << command.name;
      EXPECT_FALSE(setting.help.empty()) << setting.name;
    }
    std::size_t begin = 0;
    for (std::size_t end = help.find('\n'); end != std::string::npos; begin = end + 1, end = help.find('\n', begin)) {
      EXPECT_LE(end - begin, 120u) << help.substr(begin, end - begin);
    }
  }
}

}  // namespace
}  // namespace nmc::cli
