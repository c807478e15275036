#include "model/chat_template.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/byte_tokenizer.h"

namespace nmc::model {
namespace {

constexpr std::uint64_t kTemplateBytesMax = 16 << 20;

struct Role {
  std::string_view name;
  TokenId id;
};
constexpr std::array kByteRoles = {Role{"system", ByteTokenizer::kSystem}, Role{"user", ByteTokenizer::kUser},
                                   Role{"assistant", ByteTokenizer::kAssistant}, Role{"tool", ByteTokenizer::kTool}};

Result<TokenId> byte_role(std::size_t message, const std::string& name) {
  std::string known;
  for (const Role& role : kByteRoles) {
    if (role.name == name) return role.id;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", role.name);
  }
  return invalid_argument("`messages[{}].role`: expected one of {}, got {}", message, known, describe_json(Json(name)));
}

class ByteChatTemplate final : public ChatTemplate {
 public:
  Result<std::vector<TokenId>> render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                      ChatOptions options) const override {
    if (messages.empty()) return invalid_argument("`messages`: expected at least one message");
    std::vector<TokenId> ids = {ByteTokenizer::kBos};
    for (std::size_t i = 0; i < messages.size(); ++i) {
      NMC_ASSIGN_OR_RETURN(const TokenId role, byte_role(i, messages[i].role));
      ids.push_back(role);
      const std::vector<TokenId> content = tokenizer.encode(messages[i].content);
      ids.insert(ids.end(), content.begin(), content.end());
      ids.push_back(ByteTokenizer::kEnd);
    }
    if (options.add_generation_prompt) ids.push_back(ByteTokenizer::kAssistant);
    return ids;
  }
};

// Stands in for a template that this build can't render.
class UnsupportedChatTemplate final : public ChatTemplate {
 public:
  explicit UnsupportedChatTemplate(std::string reason) : reason_(std::move(reason)) {}

  Result<std::vector<TokenId>> render(const Tokenizer&, std::span<const ChatMessage>, ChatOptions) const override {
    return unsupported("{}", reason_);
  }

 private:
  std::string reason_;
};

bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Result<bool> names_chat_template(const Path& path) {
  if (!is_there(path)) return false;
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kTemplateBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  return JsonFields(json).find("chat_template") != nullptr;
}

}  // namespace

std::unique_ptr<ChatTemplate> make_byte_chat_template() { return std::make_unique<ByteChatTemplate>(); }

Result<std::unique_ptr<ChatTemplate>> load_chat_template(const Path& folder) {
  const Path config = folder / "tokenizer_config.json";
  const Path file = folder / "chat_template.jinja";
  NMC_ASSIGN_OR_RETURN(const bool in_config, names_chat_template(config));
  std::string reason;
  if (is_there(file)) {
    reason = fmt::format("the chat template {} isn't understood yet", file.string());
  } else if (in_config) {
    reason = fmt::format("chat_template of {} isn't understood yet", config.string());
  } else {
    reason = fmt::format("the model has no chat template: expected chat_template in {}", config.string());
  }
  return std::unique_ptr<ChatTemplate>(std::make_unique<UnsupportedChatTemplate>(std::move(reason)));
}

}  // namespace nmc::model
