#include "http/chat_request.h"

#include <nlohmann/json.hpp>

#include "http/try.h"

namespace nmc::http {
namespace {

ApiFailure bad_member(const std::string& path, std::string message, std::string_view field = "messages") {
  return ApiFailure(ApiError{400, fmt::format("`{}`: {}", path, message), std::string(field)});
}

ApiResult<std::string> string_member(const JsonFields& fields, std::string_view name) {
  Result<std::string> value = fields.string(name);
  if (!value) return ApiFailure(to_api_error(std::move(value).error(), "messages"));
  return std::move(*value);
}

ApiResult<void> check_object(const Json& value, const std::string& path) {
  if (value.is_object()) return {};
  return bad_member(path, fmt::format("expected an object, got {}", json_type_name(value)));
}

ApiResult<void> check_content(const Json& content, const std::string& path) {
  if (content.is_string()) return {};
  if (!content.is_array()) {
    return bad_member(path,
                      fmt::format("expected a string or an array of text parts, got {}", json_type_name(content)));
  }
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string part_path = fmt::format("{}[{}]", path, i);
    NMC_TRY(check_object(content[i], part_path));
    const JsonFields fields(content[i], part_path);
    const auto type = string_member(fields, "type");
    if (!type) return ApiFailure(type.error());
    if (*type != "text") {
      return bad_member(part_path, fmt::format("only parts of type \"text\" are supported, got \"{}\"", *type));
    }
    NMC_TRY(string_member(fields, "text"));
  }
  return {};
}

// Clients send the arguments as JSON in a string; templates expect what they stand for.
ApiResult<void> open_arguments(Json& function, const std::string& path) {
  const auto found = function.find("arguments");
  if (found == function.end() || found->is_null()) {
    function["arguments"] = Json::object();
    return {};
  }
  if (found->is_object()) return {};
  if (!found->is_string()) {
    return bad_member(path + ".arguments",
                      fmt::format("expected an object as JSON in a string, got {}", json_type_name(*found)));
  }
  const std::string text = found->get<std::string>();
  Result<Json> arguments = parse_json(text.empty() ? "{}" : text, path + ".arguments");
  if (!arguments || !arguments->is_object()) {
    return bad_member(path + ".arguments", fmt::format("expected an object as JSON, got {}", describe_json(*found)));
  }
  *found = std::move(*arguments);
  return {};
}

ApiResult<void> check_tool_calls(Json& calls, const std::string& path) {
  if (!calls.is_array()) return bad_member(path, fmt::format("expected an array, got {}", json_type_name(calls)));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string call_path = fmt::format("{}[{}]", path, i);
    NMC_TRY(check_object(calls[i], call_path));
    const auto function = calls[i].find("function");
    const std::string function_path = call_path + ".function";
    if (function == calls[i].end()) return bad_member(function_path, "missing");
    NMC_TRY(check_object(*function, function_path));
    NMC_TRY(string_member(JsonFields(*function, function_path), "name"));
    NMC_TRY(open_arguments(*function, function_path));
  }
  return {};
}

ApiResult<Json> parse_message(const Json& given, const std::string& path) {
  NMC_TRY(check_object(given, path));
  const JsonFields fields(given, path);
  auto role = string_member(fields, "role");
  if (!role) return ApiFailure(std::move(role).error());
  if (!model::is_known_role(*role)) {
    return bad_member(path + ".role",
                      fmt::format("expected system, developer, user, assistant or tool, got \"{}\"", *role));
  }
  for (const char* name : {"name", "tool_call_id"}) {
    if (fields.find(name) != nullptr) NMC_TRY(string_member(fields, name));
  }
  if (fields.find("function_call") != nullptr) {
    return bad_member(path + ".function_call", "not supported by this server; use tool_calls");
  }
  Json message = Json::object();
  for (const auto& [name, member] : given.items()) {
    const bool asks_for_nothing = name == "tool_calls" && member.is_array() && member.empty();
    if (!member.is_null() && !asks_for_nothing) message[name] = member;
  }
  message["role"] = *role == "developer" ? "system" : *role;
  if (const auto calls = message.find("tool_calls"); calls != message.end()) {
    NMC_TRY(check_tool_calls(*calls, path + ".tool_calls"));
  }
  if (const auto content = message.find("content"); content != message.end()) {
    NMC_TRY(check_content(*content, path + ".content"));
  } else if (*role == "assistant" && message.contains("tool_calls")) {
    message["content"] = nullptr;
  } else {
    return bad_member(path + ".content", "expected a string or an array of text parts, got none");
  }
  return message;
}

ApiResult<void> parse_messages(const JsonFields& fields, model::Chat& chat) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) return bad_field("messages", "missing");
  if (!messages->is_array() || messages->empty()) {
    return bad_field("messages", fmt::format("expected an array of at least one message, got {}",
                                             messages->is_array() ? "an empty one" : json_type_name(*messages)));
  }
  chat.messages.reserve(messages->size());
  for (std::size_t i = 0; i < messages->size(); ++i) {
    auto message = parse_message((*messages)[i], fmt::format("messages[{}]", i));
    if (!message) return ApiFailure(std::move(message).error());
    chat.messages.push_back(std::move(*message));
  }
  return {};
}

// An array of objects into `out`; absent, null or empty leaves it null.
ApiResult<void> parse_objects(const JsonFields& fields, std::string_view name, Json& out) {
  const Json* list = fields.find(name);
  if (list == nullptr) return {};
  if (!list->is_array()) {
    return bad_field(name, fmt::format("expected an array of objects, got {}", json_type_name(*list)));
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    if ((*list)[i].is_object()) continue;
    return bad_member(fmt::format("{}[{}]", name, i),
                      fmt::format("expected an object, got {}", json_type_name((*list)[i])), name);
  }
  if (!list->empty()) out = *list;
  return {};
}

ApiResult<void> parse_flags(const JsonFields& fields, model::Chat& chat) {
  const auto flag = [&](std::string_view name, bool absent) -> ApiResult<bool> {
    Result<bool> value = fields.boolean_or(name, absent);
    if (!value) return ApiFailure(to_api_error(std::move(value).error(), name));
    return *value;
  };
  const auto continues = flag("continue_final_message", false);
  if (!continues) return ApiFailure(continues.error());
  const auto opens = flag("add_generation_prompt", !*continues);
  if (!opens) return ApiFailure(opens.error());
  if (*continues && *opens) {
    return bad_field("continue_final_message", "can't be true together with add_generation_prompt");
  }
  chat.continue_final_message = *continues;
  chat.add_generation_prompt = *opens;
  return {};
}

}  // namespace

ApiResult<model::Chat> parse_chat(const Json& body) {
  const JsonFields fields(body);
  model::Chat chat;
  NMC_TRY(parse_messages(fields, chat));
  NMC_TRY(parse_objects(fields, "tools", chat.tools));
  NMC_TRY(parse_objects(fields, "documents", chat.documents));
  NMC_TRY(parse_flags(fields, chat));
  if (const Json* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object()) {
      return bad_field("chat_template_kwargs", fmt::format("expected an object, got {}", json_type_name(*variables)));
    }
    chat.variables = *variables;
  }
  return chat;
}

}  // namespace nmc::http
