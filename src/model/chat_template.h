// Chat messages to the ids of a prompt. Roles become control tokens; what a message says is text, whatever it spells.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "model/tokenizer.h"

namespace nmc::model {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant", "tool"
  std::string content;  // UTF-8
};

struct ChatOptions {
  bool add_generation_prompt = true;  // end with the opening of the assistant's turn
};

// Immutable, thread-safe.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  // Ids of the whole prompt, with exactly one start token where the model has one. `tokenizer` is the model's own.
  // Errors are the request's (no messages, an unknown role: kInvalidArgument) or say that the template can't be
  // rendered by this build (kUnsupported, naming it).
  virtual Result<std::vector<TokenId>> render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                              ChatOptions options = {}) const = 0;
};

// The template of the built-in `tiny` model, over ByteTokenizer: <bos>, then per message its role's token, the
// content's bytes, <end>; at last <assistant>.
std::unique_ptr<ChatTemplate> make_byte_chat_template();

// The template of a checkpoint folder (chat_template of tokenizer_config.json, or chat_template.jinja). Fails only when
// a file can't be read. A template that isn't understood, or a folder without one, gives an object whose render() says
// so: plain completions work without.
Result<std::unique_ptr<ChatTemplate>> load_chat_template(const Path& folder);

}  // namespace nmc::model
