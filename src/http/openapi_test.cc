#include "http/openapi.h"

#include <set>

#include "http/server_test_support.h"

namespace nmc::http {
namespace {

using ::testing::HasSubstr;

class OpenApiTest : public ServerTest {
 protected:
  Json document() { return json_of(ask("GET /openapi.json HTTP/1.1\r\n\r\n").body); }
};

void find_references(const Json& json, std::set<std::string>& found) {
  if (json.is_object() && json.contains("$ref")) found.insert(json["$ref"]);
  if (!json.is_structured()) return;
  for (const auto& [name, member] : json.items()) find_references(member, found);
}

TEST_F(OpenApiTest, DescribesEveryRouteAndNothingElse) {
  const Json paths = document()["paths"];
  std::size_t operations = 0;
  for (const auto& [path, methods] : paths.items()) operations += methods.size();
  EXPECT_EQ(operations, all_routes().size());
  std::set<std::string> ids;
  for (const Route& route : all_routes()) {
    const Json& operation = paths.at(std::string(route.path)).at(route.method == "GET" ? "get" : "post");
    EXPECT_FALSE(operation.at("summary").get<std::string>().empty());
    EXPECT_TRUE(operation.at("responses").contains("200"));
    EXPECT_EQ(operation["responses"].contains("401"), route.access == Access::kKey) << route.path;
    if (operation.contains("operationId")) {
      EXPECT_TRUE(ids.insert(operation["operationId"]).second);
    }
  }
}

TEST_F(OpenApiTest, ReferencesLeadToComponentsAndAllComponentsAreUsed) {
  const Json json = document();
  std::set<std::string> referred;
  find_references(json, referred);
  // Of events, which media types of OpenAPI 3.1 have no schema for; their descriptions name these.
  referred.insert({"#/components/schemas/ChatCompletionChunk", "#/components/schemas/CompletionChunk"});
  std::set<std::string> components;
  for (const auto& [name, schema] : json["components"]["schemas"].items()) {
    components.insert("#/components/schemas/" + name);
  }
  EXPECT_EQ(referred, components);
}

TEST_F(OpenApiTest, AsksForTheKeyWhereTheServerDoes) {
  EXPECT_FALSE(document()["paths"]["/v1/models"]["get"].contains("security"));
  options_.api_key = "secret";
  start();
  const Json json = document();
  EXPECT_EQ(json["components"]["securitySchemes"]["apiKey"]["scheme"], "bearer");
  EXPECT_EQ(json["paths"]["/v1/models"]["get"]["security"], Json::array({Json::object({{"apiKey", Json::array()}})}));
  EXPECT_FALSE(json["paths"]["/health"]["get"].contains("security"));
}

TEST_F(OpenApiTest, DefaultsAreTheModels) {
  model_.defaults.temperature = 0.25f;
  start();
  const Json json = document()["components"]["schemas"];
  for (const char* name : {"CompletionRequest", "ChatCompletionRequest"}) {
    EXPECT_EQ(json[name]["properties"]["temperature"]["default"], 0.25);
    EXPECT_EQ(json[name]["properties"]["top_p"]["default"], 1);
  }
}

// What the server accepts ends at the runtime, which refuses: so each field is judged by itself.
class FieldBoundsTest : public OpenApiTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    OpenApiTest::SetUp();
    runtime_.refuse_after(0, Error{ErrorCode::kUnavailable, "accepted as far as fields go"});
  }
  // nullopt: accepted; else the field that is wrong.
  std::optional<std::string> refused(const std::string& name, const Json& value) {
    Json body = json_of(fmt::format("{{{}}}", GetParam() ? kChat : kText));
    if (name == "top_logprobs") body["logprobs"] = true;
    if (name == "stream_options") body["stream"] = true;
    body[name] = value;
    const auto answer = ask(post(GetParam() ? "/v1/chat/completions" : "/v1/completions", dump_json(body)));
    if (answer.status == 503) return std::nullopt;
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json error = json_of(answer.body)["error"];
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(name));
    return error["param"].is_string() ? error["param"].get<std::string>() : "";
  }
  void expect_fine(const std::string& name, const Json& value) {
    EXPECT_EQ(refused(name, value), std::nullopt) << name << " " << value;
  }
  void expect_refused(const std::string& name, const Json& value) {
    EXPECT_EQ(refused(name, value), name) << name << " " << value;
  }
};

bool may_be(const Json& schema, const char* type) {
  const auto found = schema.find("type");
  if (found == schema.end()) return false;
  return *found == type || (found->is_array() && std::ranges::find(*found, Json(type)) != found->end());
}

// The parser's bounds, types and defaults are those of the document.
TEST_P(FieldBoundsTest, AreWhatTheParserHoldsTo) {
  const Json properties =
      document()["components"]["schemas"][GetParam() ? "ChatCompletionRequest" : "CompletionRequest"]["properties"];
  EXPECT_GE(properties.size(), 30u);
  for (const auto& [name, schema] : properties.items()) {
    if (schema.contains("default")) expect_fine(name, schema["default"]);
    if (schema.contains("default")) expect_fine(name, nullptr);
    if (may_be(schema, "boolean")) {
      expect_fine(name, true);
      expect_refused(name, 1);
      expect_refused(name, "true");
    }
    if (may_be(schema, "integer") || may_be(schema, "number")) {
      if (schema.contains("minimum")) expect_fine(name, schema["minimum"]);
      if (schema.contains("exclusiveMinimum")) expect_refused(name, schema["exclusiveMinimum"]);
      if (schema.contains("maximum")) expect_fine(name, schema["maximum"]);
      const double low = schema.value("minimum", 0.0);
      const double high = schema["maximum"].get<double>();
      if (low > -1e15) expect_refused(name, low - 1);
      if (high < 1e15) expect_refused(name, high + 1);
      expect_refused(name, "1");
      expect_refused(name, true);
    }
    if (may_be(schema, "integer")) expect_refused(name, 1.5);
    for (const Json& value : schema.value("enum", Json::array())) expect_fine(name, value);
    if (may_be(schema, "array")) expect_refused(name, Json::object());
    if (may_be(schema, "object")) expect_refused(name, Json::array({1}));
    if (may_be(schema, "string")) expect_refused(name, 5);
    if (may_be(schema, "null") && schema["type"] == "null") expect_refused(name, "x");
    for (const Json& choice : schema.value("anyOf", Json::array())) {
      if (!choice.contains("const")) continue;
      expect_fine(name, choice["const"]);
      expect_refused(name, choice["const"].is_boolean() ? Json(!choice["const"].get<bool>()) : Json("other"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Endpoints, FieldBoundsTest, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Chat" : "Completions"; });

}  // namespace
}  // namespace nmc::http
