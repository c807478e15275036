#include "http/unsupported_fields.h"

#include <nlohmann/json.hpp>
#include <span>

#include "http/try.h"

namespace nmc::http {
namespace {

// What a field may say without asking for anything.
enum class Harmless {
  kFalse,     // false
  kTrue,      // true
  kZero,      // the number 0
  kOne,       // the number 1
  kEmpty,     // "", [] or {}
  kAuto,      // "none" or "auto"
  kTextType,  // {"type": "text"}
  kTextOnly,  // ["text"]
  kNothing,   // null only
};

struct Field {
  const char* name;
  Harmless harmless;
};

constexpr Field kCommonFields[] = {
    {"best_of", Harmless::kOne},
    {"length_penalty", Harmless::kOne},
    {"priority", Harmless::kZero},
    {"use_beam_search", Harmless::kFalse},
    {"response_format", Harmless::kTextType},
    {"structured_outputs", Harmless::kNothing},
    {"guided_json", Harmless::kNothing},
    {"guided_regex", Harmless::kNothing},
    {"guided_choice", Harmless::kNothing},
    {"guided_grammar", Harmless::kNothing},
    {"kv_transfer_params", Harmless::kNothing},
};
constexpr Field kConversationFields[] = {
    {"chat_template", Harmless::kNothing},
};
constexpr Field kChatFields[] = {
    {"echo", Harmless::kFalse},         {"tool_choice", Harmless::kAuto},    {"functions", Harmless::kEmpty},
    {"function_call", Harmless::kAuto}, {"modalities", Harmless::kTextOnly}, {"audio", Harmless::kNothing},
};
constexpr Field kCompletionsFields[] = {
    {"suffix", Harmless::kEmpty},
};

bool asks_for_nothing(const Json& value, Harmless harmless) {
  switch (harmless) {
    case Harmless::kFalse: return value.is_boolean() && !value.get<bool>();
    case Harmless::kTrue: return value.is_boolean() && value.get<bool>();
    case Harmless::kZero: return value.is_number() && value.get<double>() == 0;
    case Harmless::kOne: return value.is_number() && value.get<double>() == 1;
    case Harmless::kEmpty:
      return value.is_string() ? value.get_ref<const std::string&>().empty() : value.is_structured() && value.empty();
    case Harmless::kAuto: return value == "none" || value == "auto";
    case Harmless::kTextType:
      return value.is_object() && value.size() == 1 && value.contains("type") && value["type"] == "text";
    case Harmless::kTextOnly: return value == Json::array({"text"});
    case Harmless::kNothing: return false;
  }
  return false;
}

const char* harmless_text(Harmless harmless) {
  switch (harmless) {
    case Harmless::kFalse: return "false";
    case Harmless::kTrue: return "true";
    case Harmless::kZero: return "0";
    case Harmless::kOne: return "1";
    case Harmless::kEmpty: return "an empty value";
    case Harmless::kAuto: return "\"none\" or \"auto\"";
    case Harmless::kTextType: return "{\"type\": \"text\"}";
    case Harmless::kTextOnly: return "[\"text\"]";
    case Harmless::kNothing: return "null";
  }
  return "null";
}

Json harmless_schema(Harmless harmless) {
  switch (harmless) {
    case Harmless::kFalse: return schema::constant(false);
    case Harmless::kTrue: return schema::constant(true);
    case Harmless::kZero: return schema::constant(0);
    case Harmless::kOne: return schema::constant(1);
    case Harmless::kEmpty:
      return schema::any_of(
          {schema::text(0), schema::list(schema::anything(), 0, 0), schema::constant(Json::object())});
    case Harmless::kAuto: return schema::one_of({"none", "auto"});
    case Harmless::kTextType: return schema::constant(Json::object({{"type", "text"}}));
    case Harmless::kTextOnly: return schema::constant(Json::array({"text"}));
    case Harmless::kNothing: return Json::object({{"type", "null"}});
  }
  return schema::anything();
}

void add(schema::Object& object, std::span<const Field> list) {
  for (const Field& field : list) {
    object.optional(field.name, harmless_schema(field.harmless), nullptr,
                    fmt::format("Not supported: only {} is accepted.", harmless_text(field.harmless)));
  }
}

ApiResult<void> refuse(const JsonFields& fields, std::span<const Field> list) {
  for (const Field& field : list) {
    const Json* value = fields.find(field.name);
    if (value == nullptr || asks_for_nothing(*value, field.harmless)) continue;
    return bad_field(field.name,
                     fmt::format("not supported by this server; only {} is accepted", harmless_text(field.harmless)));
  }
  return {};
}

}  // namespace

ApiResult<void> refuse_unsupported_conversation_fields(const Json& body) {
  return refuse(JsonFields(body), kConversationFields);
}

ApiResult<void> refuse_unsupported_fields(const Json& body, Endpoint endpoint) {
  const JsonFields fields(body);
  NMC_TRY(refuse(fields, kCommonFields));
  if (endpoint == Endpoint::kCompletions) return refuse(fields, kCompletionsFields);
  NMC_TRY(refuse(fields, kConversationFields));
  return refuse(fields, kChatFields);
}

void add_unsupported_conversation_fields(schema::Object& object) { add(object, kConversationFields); }

void add_unsupported_fields(schema::Object& object, Endpoint endpoint) {
  add(object, kCommonFields);
  if (endpoint == Endpoint::kCompletions) return add(object, kCompletionsFields);
  add(object, kConversationFields);
  add(object, kChatFields);
}

}  // namespace nmc::http
