// The metrics of a master, under the names that Mooncake's dashboards read where the meaning is the same, under
// nano_mooncake_ else. The list is in docs/formats.md, "Master administration".
#pragma once

#include <cstdint>
#include <string>

#include "store/node_server.h"

namespace nmc::store {

// Prometheus' text exposition.
std::string metrics_text(NodeServer& server);
// One line for people.
std::string metrics_summary(NodeServer& server);

std::string size_text(std::uint64_t bytes);  // "1.50 GiB"

}  // namespace nmc::store
