#include "http/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::http {
namespace {

using ::testing::HasSubstr;

ApiResult<model::Chat> parse(std::string_view fields) {
  const auto json = parse_json(
      fmt::format(R"({{"messages":[{{"role":"user","content":"hi"}}]{}{}}})", fields.empty() ? "" : ",", fields),
      "body");
  return parse_chat(*json);
}

ApiResult<model::Chat> parse_messages(std::string_view messages) {
  return parse_chat(*parse_json(fmt::format(R"({{"messages":{}}})", messages), "body"));
}

std::string why(const ApiResult<model::Chat>& chat) {
  return chat ? "accepted" : fmt::format("{} {}: {}", chat.error().status, chat.error().param, chat.error().message);
}

TEST(ChatRequest, MessagesComeOutAsTemplatesReadThem) {
  const auto chat = parse_messages(
      R"([{"role":"developer","content":"d","refusal":null,"reasoning_content":"r"},)"
      R"({"role":"assistant","content":null,"name":null,"tool_calls":)"
      R"([{"id":"1","function":{"name":"f","arguments":"{\"a\": [1]}"}}]},)"
      R"({"role":"assistant","tool_calls":[{"function":{"name":"g","arguments":""}},{"function":{"name":"h"}}]},)"
      R"({"role":"tool","content":"t","tool_call_id":"1"},{"role":"assistant","content":"x","tool_calls":[]}])");
  ASSERT_TRUE(chat) << why(chat);
  const std::vector<std::string> expected = {
      R"({"role":"system","content":"d","reasoning_content":"r"})",
      R"({"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":[1]}}}],"content":null})",
      R"({"role":"assistant","tool_calls":[{"function":{"name":"g","arguments":{}}},)"
      R"({"function":{"name":"h","arguments":{}}}],"content":null})",
      R"({"role":"tool","content":"t","tool_call_id":"1"})", R"({"role":"assistant","content":"x"})"};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(dump_json(chat->messages[i]), expected[i]);
}

TEST(ChatRequest, WhatShapesThePromptIsTaken) {
  const auto plain = parse("");
  ASSERT_TRUE(plain);
  EXPECT_TRUE(plain->add_generation_prompt);
  EXPECT_TRUE(plain->tools.is_null() && plain->documents.is_null() && plain->variables.is_null());
  const auto chat = parse(R"("tools":[{"type":"function","function":{"name":"f"}}],"documents":[{"title":"t"}],)"
                          R"("chat_template_kwargs":{"enable_thinking":false},"continue_final_message":true)");
  ASSERT_TRUE(chat) << why(chat);
  EXPECT_EQ(chat->tools.size(), 1u);
  EXPECT_EQ(chat->documents.size(), 1u);
  EXPECT_EQ(dump_json(chat->variables), R"({"enable_thinking":false})");
  EXPECT_TRUE(chat->continue_final_message);
  EXPECT_FALSE(chat->add_generation_prompt);
  EXPECT_TRUE(parse(R"("tools":[],"documents":null)")->tools.is_null());
}

TEST(ChatRequest, WrongTypesAreRefusedByName) {
  for (const auto& [fields, named] :
       {std::pair(R"("tools":{})", "400 tools: `tools`: expected an array of objects, got an object"),
        {R"("tools":[1])", "400 tools: `tools[0]`: expected an object"},
        {R"("documents":"x")", "400 documents: `documents`"},
        {R"("chat_template_kwargs":[])", "400 chat_template_kwargs: `chat_template_kwargs`: expected an object"},
        {R"("add_generation_prompt":1)", "400 add_generation_prompt: `add_generation_prompt`: expected true or false"},
        {R"("continue_final_message":true,"add_generation_prompt":true)", "400 continue_final_message"}}) {
    EXPECT_THAT(why(parse(fields)), HasSubstr(named));
  }
}

}  // namespace
}  // namespace nmc::http
