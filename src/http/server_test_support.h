// For tests: the API's server over a runtime whose tokens the test says, and a client that sends raw bytes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "http/scripted_runtime.h"
#include "http/server.h"
#include "model/byte_tokenizer.h"
#include "model/chat_template.h"
#include "net/raw_client.h"

namespace nmc::http {

class ServerTest : public ::testing::Test {
 protected:
  static constexpr const char* kChat = R"("messages":[{"role":"user","content":"hi"}])";
  static constexpr const char* kText = R"("prompt":"hi")";

  ServerTest() {
    model_.name = "scripted";
    model_.tokenizer = std::make_unique<model::ByteTokenizer>();
    model_.chat_template = model::make_byte_chat_template();
    model_.config.vocab = model::ByteTokenizer::kVocabSize;
    model_.config.max_positions = 256;
  }
  void SetUp() override { start(); }
  void start() {
    server_.reset();
    auto server = Server::start(options_, model_, runtime_, nullptr);
    ASSERT_TRUE(server.has_value()) << server.error().to_string();
    server_ = std::move(*server);
    port_ = static_cast<std::uint16_t>(std::stoi(server_->url().substr(server_->url().rfind(':') + 1)));
  }

  net::RawClient client() { return net::RawClient(port_); }
  static std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return fmt::format("POST {} HTTP/1.1\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", path,
                       headers, body.size(), body);
  }
  static std::string chat(std::string_view fields = "") {
    return post("/v1/chat/completions", fmt::format("{{{}{}{}}}", kChat, fields.empty() ? "" : ",", fields));
  }
  static std::string text(std::string_view fields = "") {
    return post("/v1/completions", fmt::format("{{{}{}{}}}", kText, fields.empty() ? "" : ",", fields));
  }
  static Json json_of(std::string_view body) {
    auto json = parse_json(body, "answer");
    EXPECT_TRUE(json) << body;
    return json ? *json : Json();
  }
  net::RawClient::Answer ask(const std::string& request) {
    net::RawClient peer = client();
    peer.send(request);
    return peer.read_answer();
  }

  // Events of a stream, each of which must be one chunk; "[DONE]" as a string.
  static std::vector<Json> events_of(net::RawClient& peer) {
    EXPECT_THAT(peer.read_until("\r\n\r\n"), ::testing::HasSubstr("Content-Type: text/event-stream"));
    std::vector<Json> events;
    while (const auto chunk = peer.read_chunk()) {
      EXPECT_THAT(*chunk, ::testing::StartsWith("data: "));
      EXPECT_THAT(*chunk, ::testing::EndsWith("\n\n"));
      const std::string data = chunk->substr(6, chunk->size() - 8);
      events.push_back(data == "[DONE]" ? Json(data) : json_of(data));
    }
    return events;
  }
  static std::vector<std::string> texts_of(const std::vector<Json>& events) {
    std::vector<std::string> texts;
    for (const Json& event : events) {
      if (!event.is_object() || event["choices"].empty()) continue;
      const Json& choice = event["choices"][0];
      texts.push_back(choice.contains("delta") ? choice["delta"]["content"] : choice["text"]);
    }
    return texts;
  }

  ServerOptions options_;
  model::Model model_;
  ScriptedRuntime runtime_;
  std::unique_ptr<Server> server_;
  std::uint16_t port_ = 0;
};

}  // namespace nmc::http
