#include "model/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include "model/byte_tokenizer.h"
#include "model/jinja_strings.h"
#include "model/jinja_template.h"

namespace nmc::model {
namespace {

using jinja::Origin;
using jinja::Text;
using jinja::Value;

constexpr std::uint64_t kConfigBytesMax = 16 << 20;

bool is_given(const Json& list) { return !list.is_null() && !list.empty(); }

Failure no_place_for(std::string_view field) {
  return invalid_argument("`{}`: the chat template of this model has no place for them", field);
}

std::string role_of(const Json& message) { return JsonFields(message).string_or("role", "").value_or(""); }

// The text of a message whose template knows nothing of parts: they are joined by a line break.
std::string text_of_content(const Json& content) {
  if (!content.is_array()) return content.is_string() ? content.get<std::string>() : std::string();
  std::string text;
  for (const Json& part : content) {
    if (&part != &content.front()) text += '\n';
    text += JsonFields(part).string_or("text", "").value_or("");
  }
  return text;
}

const Json* content_of(const Json& message) { return JsonFields(message).find("content"); }

// ---- The built-in template
// -------------------------------------------------------------------------------------------

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
  Result<std::vector<TokenId>> render(const Tokenizer& tokenizer, const Chat& chat, const Clock&) const override {
    if (chat.messages.empty()) return invalid_argument("`messages`: expected at least one message");
    if (is_given(chat.tools)) return no_place_for("tools");
    if (is_given(chat.documents)) return no_place_for("documents");
    std::vector<TokenId> ids = {ByteTokenizer::kBos};
    for (std::size_t i = 0; i < chat.messages.size(); ++i) {
      NMC_RETURN_IF_ERROR(add_message(tokenizer, i, chat.messages[i], ids));
    }
    if (chat.continue_final_message) {
      ids.pop_back();  // its <end>
    } else if (chat.add_generation_prompt) {
      ids.push_back(ByteTokenizer::kAssistant);
    }
    return ids;
  }

 private:
  static Result<void> add_message(const Tokenizer& tokenizer, std::size_t index, const Json& message,
                                  std::vector<TokenId>& ids) {
    NMC_ASSIGN_OR_RETURN(const TokenId role, byte_role(index, role_of(message)));
    if (const Json* calls = JsonFields(message).find("tool_calls"); calls != nullptr && is_given(*calls)) {
      return no_place_for(fmt::format("messages[{}].tool_calls", index));
    }
    ids.push_back(role);
    const Json* content = content_of(message);
    const std::vector<TokenId> text = tokenizer.encode(content == nullptr ? std::string() : text_of_content(*content));
    ids.insert(ids.end(), text.begin(), text.end());
    ids.push_back(ByteTokenizer::kEnd);
    return {};
  }
};

// Stands in for a template that this build can't render.
class UnsupportedChatTemplate final : public ChatTemplate {
 public:
  explicit UnsupportedChatTemplate(std::string reason) : reason_(std::move(reason)) {}

  Result<std::vector<TokenId>> render(const Tokenizer&, const Chat&, const Clock&) const override {
    return unsupported("{}", reason_);
  }

 private:
  std::string reason_;
};

// ---- Templates in Jinja
// ----------------------------------------------------------------------------------------------

using NamedTokens = std::map<std::string, std::string>;  // "bos_token" to its text

// The content as this template wants it: parts where it looks for them, a string elsewhere.
Json content_for(const jinja::TemplateFacts& facts, const Json& content) {
  if (!facts.iterates_content) return content.is_array() ? Json(text_of_content(content)) : content;
  if (!content.is_string() || facts.asks_if_content_is_text) return content;
  Json part;
  part["type"] = "text";
  part["text"] = content;
  return Json::array({std::move(part)});
}

Result<Value> message_value(const jinja::TemplateFacts& facts, const Json& message, jinja::Budget& budget) {
  jinja::Dict dict;
  for (const auto& [name, member] : message.items()) {
    // Only a role that is one of a few words: with any other a request could spell a marker of its own.
    const bool trusted = name == "role" && member.is_string() && is_known_role(member.get_ref<const std::string&>());
    const Origin origin = trusted ? Origin::kTemplate : Origin::kRequest;
    NMC_ASSIGN_OR_RETURN(Value value, name == "content" ? value_of_json(content_for(facts, member), origin, budget)
                                                        : value_of_json(member, origin, budget));
    NMC_RETURN_IF_ERROR(dict.set(Value::of(name, Origin::kRequest), std::move(value), budget));
  }
  return jinja::make_dict(std::move(dict));
}

// As transformers does it: what the template wrote behind the last message's text goes.
Result<Text> cut_behind_final_message(const Text& prompt, const Json& message) {
  const Json* content = content_of(message);
  std::string text = content == nullptr ? std::string() : text_of_content(*content);
  if (content != nullptr && content->is_array() && !content->empty()) {
    text = JsonFields(content->back()).string_or("text", "").value_or("");
  }
  const Text trimmed = jinja::strip(Text(text), jinja::Ends::kBoth);
  const std::size_t at = jinja::rfind_bytes(prompt.bytes(), trimmed.bytes());
  if (at == std::string_view::npos) {
    return invalid_argument("`continue_final_message`: the chat template changes the text of the last message");
  }
  const bool whole = prompt.bytes().substr(at).starts_with(text);
  return prompt.slice(0, at + (whole ? text.size() : trimmed.size()));
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const Text& prompt) {
  const std::vector<Text::Run> runs = prompt.runs();
  std::vector<TextPart> parts;
  for (const Text::Run& run : runs) parts.push_back({run.bytes, run.origin == Origin::kTemplate});
  std::vector<TokenId> ids = tokenizer.encode_parts(parts);
  const std::optional<TokenId> bos = tokenizer.bos_id();
  if (bos && tokenizer.adds_bos() && std::ranges::find(ids, *bos) == ids.end()) ids.insert(ids.begin(), *bos);
  return ids;
}

class JinjaChatTemplate final : public ChatTemplate {
 public:
  JinjaChatTemplate(jinja::Template main, std::optional<jinja::Template> with_tools, NamedTokens tokens)
      : main_(std::move(main)), with_tools_(std::move(with_tools)), tokens_(std::move(tokens)) {}

  Result<std::vector<TokenId>> render(const Tokenizer& tokenizer, const Chat& chat, const Clock& clock) const override {
    if (chat.messages.empty()) return invalid_argument("`messages`: expected at least one message");
    const jinja::Template& chosen = is_given(chat.tools) && with_tools_ ? *with_tools_ : main_;
    if (is_given(chat.tools) && !chosen.reads("tools")) return no_place_for("tools");
    if (is_given(chat.documents) && !chosen.reads("documents")) return no_place_for("documents");
    jinja::Budget budget;
    NMC_ASSIGN_OR_RETURN(const jinja::Variables variables, variables_of(chosen, chat, budget));
    NMC_ASSIGN_OR_RETURN(Text prompt, chosen.render(variables, budget, clock));
    if (chat.continue_final_message) {
      NMC_ASSIGN_OR_RETURN(prompt, cut_behind_final_message(prompt, chat.messages.back()));
    }
    return encode_prompt(tokenizer, prompt);
  }

 private:
  // The request's own variables hide the tokens and nothing else.
  Result<jinja::Variables> variables_of(const jinja::Template& chosen, const Chat& chat, jinja::Budget& budget) const {
    jinja::Variables variables;
    for (const auto& [name, text] : tokens_) {
      if (!chat.variables.contains(name)) variables.emplace_back(name, Value::of(text));
    }
    constexpr std::array kReserved = {"messages", "tools", "documents", "add_generation_prompt"};
    for (const auto& [name, json] : chat.variables.items()) {
      if (std::ranges::find(kReserved, name) != kReserved.end()) {
        return invalid_argument("`chat_template_kwargs.{}`: is a field of its own", name);
      }
      NMC_ASSIGN_OR_RETURN(Value value, value_of_json(json, Origin::kRequest, budget));
      variables.emplace_back(name, std::move(value));
    }
    jinja::Items messages;
    for (const Json& message : chat.messages) {
      NMC_ASSIGN_OR_RETURN(messages.emplace_back(), message_value(chosen.facts(), message, budget));
    }
    NMC_ASSIGN_OR_RETURN(Value list, make_list(std::move(messages)));
    variables.emplace_back("messages", std::move(list));
    for (const auto& [name, json] : {std::pair("tools", &chat.tools), std::pair("documents", &chat.documents)}) {
      NMC_ASSIGN_OR_RETURN(Value value, value_of_json(is_given(*json) ? *json : Json(), Origin::kRequest, budget));
      variables.emplace_back(name, std::move(value));
    }
    variables.emplace_back("add_generation_prompt", chat.add_generation_prompt && !chat.continue_final_message);
    return variables;
  }

  jinja::Template main_;
  std::optional<jinja::Template> with_tools_;
  NamedTokens tokens_;
};

struct Source {
  std::string text;
  std::string origin;
  std::optional<std::string> with_tools;
};

std::unique_ptr<ChatTemplate> make_template(const Source& source, NamedTokens tokens) {
  std::erase_if(tokens, [](const auto& token) { return token.second.empty(); });
  Result<jinja::Template> main = jinja::Template::parse(source.text, source.origin);
  if (!main) return std::make_unique<UnsupportedChatTemplate>(std::move(main).error().message);
  std::optional<jinja::Template> with_tools;
  if (source.with_tools) {
    Result<jinja::Template> parsed = jinja::Template::parse(*source.with_tools, source.origin + " \"tool_use\"");
    if (!parsed) return std::make_unique<UnsupportedChatTemplate>(std::move(parsed).error().message);
    with_tools = std::move(*parsed);
  }
  return std::make_unique<JinjaChatTemplate>(std::move(*main), std::move(with_tools), std::move(tokens));
}

// ---- Files
// -----------------------------------------------------------------------------------------------------------

bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// A token is a string, or an object with its text as `content`.
NamedTokens tokens_of(const Json& config) {
  NamedTokens tokens;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const Json* token = JsonFields(config).find(name);
    if (token == nullptr) continue;
    const std::optional<std::string> text =
        token->is_string() ? token->get<std::string>() : JsonFields(*token).string_or("content", "").value_or("");
    tokens[name] = *text;
  }
  return tokens;
}

// nullopt: the list holds no template by the name.
std::optional<std::string> named_template(const Json& list, std::string_view wanted) {
  for (const Json& one : list) {
    const JsonFields fields(one);
    if (fields.string_or("name", "").value_or("") == wanted) return fields.string("template").value_or("");
  }
  return std::nullopt;
}

// nullopt: there is no chat_template; an error: it is neither a string nor a list with a "default".
Result<std::optional<Source>> source_of(const Json& config, const std::string& name) {
  const Json* found = JsonFields(config).find("chat_template");
  if (found == nullptr) return std::optional<Source>();
  const std::string origin = fmt::format("chat_template of {}", name);
  if (found->is_string()) return std::optional(Source{found->get<std::string>(), origin, std::nullopt});
  const std::optional<std::string> main = named_template(*found, "default");
  if (!main) {
    return unsupported("{}: expected a string or a list with one named \"default\", got {}", origin,
                       json_type_name(*found));
  }
  return std::optional(Source{*main, origin, named_template(*found, "tool_use")});
}

}  // namespace

Json make_chat_message(std::string_view role, std::string_view content) {
  Json message;
  message["role"] = role;
  message["content"] = content;
  return message;
}

bool is_known_role(std::string_view role) {
  constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
  return std::ranges::find(kRoles, role) != kRoles.end();
}

std::unique_ptr<ChatTemplate> make_byte_chat_template() { return std::make_unique<ByteChatTemplate>(); }

std::unique_ptr<ChatTemplate> make_chat_template(std::string_view source, std::string origin,
                                                 std::string_view bos_token, std::string_view eos_token) {
  NamedTokens tokens = {{"bos_token", std::string(bos_token)}, {"eos_token", std::string(eos_token)}};
  return make_template({std::string(source), std::move(origin), std::nullopt}, std::move(tokens));
}

std::unique_ptr<ChatTemplate> no_chat_template(std::string_view expected) {
  return std::make_unique<UnsupportedChatTemplate>(
      fmt::format("the model has no chat template: expected {}", expected));
}

Result<std::unique_ptr<ChatTemplate>> load_chat_template(const Path& folder) {
  const Path config_path = folder / "tokenizer_config.json";
  Json config = Json::object();
  if (is_there(config_path)) {
    NMC_ASSIGN_OR_RETURN(const std::string text, read_file(config_path, kConfigBytesMax));
    NMC_ASSIGN_OR_RETURN(config, parse_json(text, config_path.string()));
  }
  std::optional<Source> source;
  if (const Path file = folder / "chat_template.jinja"; is_there(file)) {
    NMC_ASSIGN_OR_RETURN(std::string text, read_file(file, kConfigBytesMax));
    source = Source{std::move(text), fmt::format("the chat template {}", file.string()), std::nullopt};
  } else {
    Result<std::optional<Source>> found = source_of(config, config_path.string());
    if (!found) {
      return std::unique_ptr<ChatTemplate>(std::make_unique<UnsupportedChatTemplate>(std::move(found).error().message));
    }
    source = std::move(*found);
  }
  if (!source) {
    return no_chat_template(fmt::format("chat_template in {}", config_path.string()));
  }
  return make_template(*source, tokens_of(config));
}

}  // namespace nmc::model
