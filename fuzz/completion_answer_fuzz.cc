// What a broken or hostile server might answer: HTTP, server-sent events and their JSON. The first byte says whether a
// stream was asked for and how the bytes are cut; cut anywhere they have to mean what they mean whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lab/completion_answer.h"
#include "lab/http_answer.h"

namespace {

using namespace nmc;
using namespace nmc::lab;

void require(bool condition) {
  if (!condition) std::abort();
}

struct Read {
  bool ok = false;
  std::size_t tokens = 0;
  AnswerUsage usage;
  std::string finish_reason;
};

Read read(std::string_view bytes, bool streamed, std::size_t piece) {
  HttpAnswer http;
  CompletionAnswer answer(streamed);
  const auto result = [&](bool ok) {
    return Read{ok, answer.token_times().size(), answer.usage(), answer.finish_reason()};
  };
  const auto take = [&] { return answer.add(http.take_body(), Nanos(1)).has_value(); };
  while (!bytes.empty() && !http.is_done()) {
    const std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    if (!http.add(part) || !take()) return result(false);
  }
  if (!http.close() || !take()) return result(false);
  require(http.has_header() && http.is_done() && http.got_some());
  static_cast<void>(http.header("content-type"));
  return result(answer.end().has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool streamed = data[0] % 2 == 0;
  const Read whole = read(bytes, streamed, bytes.size()), cut = read(bytes, streamed, 1 + data[0] / 2u);
  require(whole.ok == cut.ok);
  if (!whole.ok) return 0;
  require(whole.tokens == cut.tokens && whole.finish_reason == cut.finish_reason);
  require(whole.usage.prompt_tokens == cut.usage.prompt_tokens);
  require(whole.usage.output_tokens == cut.usage.output_tokens);
  require(whole.usage.cached_tokens == cut.usage.cached_tokens);
  require(whole.tokens > 0 || !streamed);
  return 0;
}
