// Chat messages to the ids of a prompt. The template's markers become control tokens; what the request says is text,
// whatever it spells.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "model/tokenizer.h"

namespace nmc::model {

// What a request wants written as a prompt. Strings are valid UTF-8.
struct Chat {
  // Objects with `role`, a string, and whatever else templates read: `content` (a string, null, or an array of parts
  // with `type` "text" and a `text`), `name`, `tool_calls`, `tool_call_id`, ...
  std::vector<Json> messages;
  Json tools;                           // an array, or null for none
  Json documents;                       // the same
  Json variables;                       // an object of further variables of the template, or null
  bool add_generation_prompt = true;    // end with the opening of the assistant's turn
  bool continue_final_message = false;  // end within the last message, so that the model goes on with it
};

Json make_chat_message(std::string_view role, std::string_view content);

// Roles that templates may build control tokens from ("<|" + role + "|>"). Others are the request's text.
bool is_known_role(std::string_view role);

// Immutable, thread-safe.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  // Ids of the whole prompt. It has exactly one start token where the tokenizer adds one (adds_bos()): the template's,
  // or, if the template writes none, one in front. `clock` is for templates that write the date.
  // Errors are the request's (no messages, a role or an order of roles that the template refuses, tools for a template
  // that has no place for them: kInvalidArgument) or say that the template can't be rendered by this build
  // (kUnsupported, naming it).
  virtual Result<std::vector<TokenId>> render(const Tokenizer& tokenizer, const Chat& chat,
                                              const Clock& clock = real_clock()) const = 0;
};

// The template of the built-in `tiny` model, over ByteTokenizer: <bos>, then per message its role's token, the
// content's bytes, <end>; at last <assistant>.
std::unique_ptr<ChatTemplate> make_byte_chat_template();

// A template in Jinja, as checkpoints bring it. `origin` is what messages call it. Empty tokens are none. A template
// that isn't understood gives an object whose render() says so, with name and line.
std::unique_ptr<ChatTemplate> make_chat_template(std::string_view source, std::string origin,
                                                 std::string_view bos_token, std::string_view eos_token);

// Stands in where a model brings none; `expected` says where one would be looked for.
std::unique_ptr<ChatTemplate> no_chat_template(std::string_view expected);

// The template of a checkpoint folder: chat_template.jinja, or chat_template of tokenizer_config.json, which may be a
// list of named ones ("default", and "tool_use" for requests with tools). Fails only when a file can't be read. A
// template that isn't understood, or a folder without one, gives an object whose render() says so: plain completions
// work without.
Result<std::unique_ptr<ChatTemplate>> load_chat_template(const Path& folder);

}  // namespace nmc::model
