#include "cli/token_settings.h"

#include "base/files.h"

namespace nmc::cli {
namespace {

constexpr std::uint64_t kTokenBytesMax = 4096;

}  // namespace

std::vector<Setting> token_settings() {
  return {
      {.name = "token",
       .kind = Kind::kText,
       .default_text = "",
       .help = "What clients of a store must prove to have, over TCP.",
       .secret = true,
       .source = Source::kFileOrVariable},
      {.name = "token-file",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help =
           "A file that holds the token which clients of a store must prove to have, over TCP; NANO_MOONCAKE_TOKEN, "
           "the token itself, wins over it. Default: none is asked for, or shown."},
  };
}

Result<std::string> token_of(const Settings& settings) {
  if (settings.has("token") || !settings.has("token-file")) return settings.text_or("token", "");
  NMC_ASSIGN_OR_RETURN(std::string token, read_file(settings.text("token-file"), kTokenBytesMax));
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  token.erase(token.find_last_not_of(kWhiteSpace) + 1);
  token.erase(0, token.find_first_not_of(kWhiteSpace));
  if (token.empty())
    return invalid_argument("{}: {} is empty, expected a token", settings.where("token-file"),
                            settings.text("token-file"));
  return token;
}

}  // namespace nmc::cli
