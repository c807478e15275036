// The one table of everything that shapes serving: model, workers, cache, limits, address.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/setting.h"
#include "net/address.h"

namespace nmc::cli {

// An adapter to be served under a name of its own.
struct AdapterSpec {
  std::string name;
  std::string folder;
};
// "NAME=DIR,NAME=DIR"; nullopt when it is something else.
std::optional<std::vector<AdapterSpec>> parse_adapter_list(std::string_view text);

// A worker of another host.
struct RemoteWorker {
  std::string role;  // "prefill", "decode"
  net::Address address;
};
// "decode@10.0.0.7:9000,prefill@10.0.0.8:9000"; nullopt when it is something else.
std::optional<std::vector<RemoteWorker>> parse_remote_workers(std::string_view text);

// All of them, in the order in which help and `config` show them.
std::vector<Setting> serving_settings();

// The same for a command that takes only `flags` of them on its line; the others still come from environment and file,
// so that one file serves every command.
std::vector<Setting> serving_settings_for(std::span<const std::string_view> flags);

// Another default for one of `settings`.
void set_default(std::vector<Setting>& settings, std::string_view name, std::string default_text);

Setting quiet_setting();
// What every command that prints rows takes: --format, --output, --quiet.
std::vector<Setting> report_settings();

}  // namespace nmc::cli
