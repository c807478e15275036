#include "cli/secret.h"

#include "base/files.h"

namespace nmc::cli {
namespace {

constexpr std::uint64_t kSecretBytesMax = 4096;

}  // namespace

Result<std::string> secret_of(const Settings& settings, std::string_view name, std::string_view file_name,
                              std::string_view what) {
  if (settings.has(name) || !settings.has(file_name)) return settings.text_or(name, "");
  const std::string& file = settings.text(file_name);
  NMC_ASSIGN_OR_RETURN(std::string secret, read_file(file, kSecretBytesMax));
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  secret.erase(secret.find_last_not_of(kWhiteSpace) + 1);
  secret.erase(0, secret.find_first_not_of(kWhiteSpace));
  if (secret.empty()) return invalid_argument("{}: {} is empty, expected {}", settings.where(file_name), file, what);
  return secret;
}

}  // namespace nmc::cli
