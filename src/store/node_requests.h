// What the handlers of a node's messages have in common. Internal to NodeServer.
#pragma once

#include <string_view>
#include <vector>

#include "net/channel_server.h"
#include "store/codes.h"

namespace nmc::store {

inline void put_code(net::BodyWriter& writer, StoreCode code) { writer.put_u32(static_cast<std::uint32_t>(code)); }

// The keys of a message that has nothing else left; they lie in its body.
Result<std::vector<std::string_view>> get_keys(net::Request& request);

}  // namespace nmc::store
