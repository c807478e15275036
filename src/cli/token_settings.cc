#include "cli/token_settings.h"

#include "cli/secret.h"

namespace nmc::cli {

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

Result<std::string> token_of(const Settings& settings) { return secret_of(settings, "token", "token-file", "a token"); }

}  // namespace nmc::cli
