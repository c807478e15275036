#include "lab/completion_answer.h"

#include <nlohmann/json.hpp>

namespace nmc::lab {
namespace {

constexpr std::size_t kDocumentBytesMax = 64 << 20;
constexpr std::size_t kQuotedBytesMax = 200;

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool is_filled(const Json* value) {
  return value != nullptr && (value->is_string() || value->is_array()) && !value->empty() &&
         (!value->is_string() || !value->get_ref<const std::string&>().empty());
}

std::optional<std::uint64_t> count(const Json* object, const char* name) {
  const Json* const value = object == nullptr ? nullptr : member(*object, name);
#if !defined(NMC_PLANT_COMPLETION_ANSWER)  // a deliberate mistake, to see that fuzzing finds it
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
#else
  if (value == nullptr) return std::nullopt;
#endif
  return value->get<std::uint64_t>();
}

// Whether a choice of a chunk has a token in it. A token can have no text yet, as one byte of a character; the last
// chunk of some servers has none and says only why it ended, the first one of a chat only who speaks.
bool has_token(const Json& choice, bool has_ended) {
  if (const Json* const text = member(choice, "text")) return !has_ended || is_filled(text);
  if (is_filled(member(choice, "token_ids"))) return true;
  const Json* const delta = member(choice, "delta");
  if (delta == nullptr) return false;
  for (const char* name : {"content", "reasoning_content", "reasoning", "tool_calls"})
    if (is_filled(member(*delta, name))) return true;
  return !has_ended && member(*delta, "content") != nullptr && member(*delta, "role") == nullptr;
}

std::string message_of(const Json& error) {
  const Json* const message = member(error, "message");
  return message != nullptr && message->is_string() ? message->get<std::string>().substr(0, kQuotedBytesMax)
                                                    : describe_json(error, kQuotedBytesMax);
}

}  // namespace

Result<void> CompletionAnswer::add(std::string_view body, Nanos at) {
  if (!streamed_) {
    if (whole_.size() + body.size() > kDocumentBytesMax)
      return resource_exhausted("the answer is larger than {} bytes", kDocumentBytesMax);
    whole_ += body;
    return {};
  }
  NMC_RETURN_IF_ERROR(events_.add(body));
  while (const auto event = events_.next()) NMC_RETURN_IF_ERROR(take_event(*event, at));
  return {};
}

void CompletionAnswer::take_usage(const Json& document) {
  const Json* const usage = member(document, "usage");
  if (usage == nullptr) return;
  usage_.prompt_tokens = count(usage, "prompt_tokens");
  usage_.output_tokens = count(usage, "completion_tokens");
  usage_.cached_tokens = count(member(*usage, "prompt_tokens_details"), "cached_tokens");
}

Result<void> CompletionAnswer::take_event(const std::string& data, Nanos at) {
  if (done_) return corrupt("the stream goes on after [DONE]");
  if (data == "[DONE]") {
    done_ = true;
    return {};
  }
  NMC_ASSIGN_OR_RETURN(const Json chunk, parse_json(data, "an event of the stream"));
  if (const Json* const error = member(chunk, "error"))
    return unavailable("the server ended the stream: {}", message_of(*error));
  const Json* const choices = member(chunk, "choices");
  if (choices == nullptr || !choices->is_array())
    return corrupt("an event of the stream has no choices: {}", describe_json(chunk, kQuotedBytesMax));
  take_usage(chunk);
  bool has_tokens = false;
  for (const Json& choice : *choices) {
    const Json* const reason = member(choice, "finish_reason");
    if (reason != nullptr && reason->is_string()) finish_reason_ = reason->get<std::string>();
    has_tokens |= has_token(choice, reason != nullptr);
  }
  if (has_tokens) token_times_.push_back(at);
  return {};
}

Result<void> CompletionAnswer::end() {
  if (streamed_) {
    if (!done_ && finish_reason_.empty())
      return unavailable("the stream broke off after {} chunks, without [DONE]", token_times_.size());
    if (token_times_.empty()) return unavailable("the stream ended without a token");
    return {};
  }
  NMC_ASSIGN_OR_RETURN(const Json document, parse_json(whole_, "the answer"));
  const Json* const choices = member(document, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty())
    return corrupt("the answer has no choices: {}", describe_json(document, kQuotedBytesMax));
  const Json* const reason = member((*choices)[0], "finish_reason");
  if (reason != nullptr && reason->is_string()) finish_reason_ = reason->get<std::string>();
  take_usage(document);
  whole_ = {};
  return {};
}

}  // namespace nmc::lab
