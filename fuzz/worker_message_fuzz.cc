// Bodies of the messages between a front and its worker processes, as a broken peer might send them. The first byte
// says which message. What could be read is written and read again, and must be the same.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/worker_protocol.h"

namespace {

using namespace nmc;
using namespace nmc::engine;

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Get, typename Put>
void read_twice(net::ByteSpan bytes, const Get& get, const Put& put) {
  net::BodyReader reader(bytes);
  const auto value = get(reader);
  if (!reader.finish()) return;
  net::BodyWriter first;
  put(first, value);
  net::BodyReader again(first.bytes());
  const auto copy = get(again);
  require(again.finish().has_value());
  net::BodyWriter second;
  put(second, copy);
  require(first.bytes().size() == second.bytes().size() &&
          std::memcmp(first.bytes().data(), second.bytes().data(), first.bytes().size()) == 0);
}

// An answer to WorkerOp::kEvents, as a front reads it.
void read_events(net::ByteSpan bytes) {
  net::BodyReader reader(bytes);
  (void)get_figures(reader);
  const std::uint32_t count = reader.get_count("events", 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto event = get_event(reader);
    if (!event || !reader.ok()) return;
    net::BodyWriter body;
    put_event(body, *event);
    net::BodyReader again(body.bytes());
    const auto copy = get_event(again);
    require(copy.has_value() && copy->index() == event->index() && again.finish().has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // A copy of its own, so that a sanitizer sees every byte read beyond.
  const auto* begin = reinterpret_cast<const std::byte*>(data) + 1;
  const std::vector<std::byte> copy(begin, begin + size - 1);
  switch (data[0] % 7) {
    case 0: read_twice(copy, get_front_hello, put_front_hello); break;
    case 1: read_twice(copy, get_worker_hello, put_worker_hello); break;
    case 2: read_twice(copy, get_assignment, put_assignment); break;
    case 3: read_twice(copy, get_names, [](auto& body, const auto& names) { put_names(body, names); }); break;
    case 4: read_twice(copy, get_tokens, [](auto& body, const auto& tokens) { put_tokens(body, tokens); }); break;
    case 5: read_twice(copy, get_pull_reply, put_pull_reply); break;
    case 6: read_events(copy); break;
  }
  return 0;
}
