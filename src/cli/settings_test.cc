#include "cli/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/http_settings.h"
#include "cli/serving_settings.h"
#include "engine/runtime.h"
#include "store/store.h"

namespace nmc::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SettingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TemporaryFolder::create();
    ASSERT_TRUE(folder.has_value());
    folder_.emplace(std::move(*folder));
  }
  Path write(std::string_view json) {
    const Path path = folder_->path() / "conf.json";
    EXPECT_TRUE(write_file_atomic(path, json).has_value());
    return path;
  }
  Result<Settings> resolve(const Flags& flags, const Environment& environment, const std::optional<Path>& file) {
    return resolve_settings(serving_settings(), flags, environment, file);
  }
  std::string error_of(const Result<Settings>& result) { return result ? "" : result.error().message; }

  std::optional<TemporaryFolder> folder_;
};

TEST_F(SettingsTest, FlagsWinOverEnvironmentOverFileOverDefaults) {
  const Path file = write(R"({"port": 1, "max_queue": 2, "max-running": 3})");
  const auto settings =
      resolve({{"port", "10"}}, {{"NANO_MOONCAKE_PORT", "20"}, {"NANO_MOONCAKE_MAX_QUEUE", "30"}}, file);
  ASSERT_TRUE(settings.has_value()) << error_of(settings);
  EXPECT_EQ(settings->integer("port"), 10);
  EXPECT_EQ(settings->where("port"), "--port");
  EXPECT_EQ(settings->integer("max-queue"), 30);
  EXPECT_EQ(settings->where("max-queue"), "NANO_MOONCAKE_MAX_QUEUE");
  EXPECT_EQ(settings->integer("max-running"), 3);
  EXPECT_EQ(settings->where("max-running"), file.string() + ": `max_running`");
  EXPECT_EQ(settings->text("model"), "tiny");
  EXPECT_FALSE(settings->has("disk-dir"));
}

TEST_F(SettingsTest, AWrongValueIsRefusedEvenWhereAFlagOverridesNothing) {
  EXPECT_THAT(error_of(resolve({}, {{"NANO_MOONCAKE_DTYPE", "fp8"}}, std::nullopt)),
              HasSubstr("NANO_MOONCAKE_DTYPE: \"fp8\": expected one of bf16, f32"));
  EXPECT_THAT(error_of(resolve({}, {}, write(R"({"port": "x"})"))), HasSubstr("conf.json: `port`: \"x\": expected"));
}

TEST_F(SettingsTest, FileFaultsNameFileAndKey) {
  EXPECT_THAT(error_of(resolve({}, {}, write(R"({"dram_byte": 1})"))),
              HasSubstr("conf.json: `dram_byte` is not a known setting, did you mean dram_bytes?"));
  EXPECT_THAT(error_of(resolve({}, {}, write(R"({"port": 1, "port": 2})"))), HasSubstr("duplicate"));
  EXPECT_THAT(error_of(resolve({}, {}, write(R"({"max_queue": 1, "max-queue": 2})"))), HasSubstr("given twice"));
  EXPECT_THAT(error_of(resolve({}, {}, write("[1]"))), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(resolve({}, {}, write("{"))), HasSubstr("conf.json: not valid JSON"));
  EXPECT_THAT(error_of(resolve({}, {}, folder_->path() / "absent.json")), HasSubstr("absent.json"));
}

TEST_F(SettingsTest, NullInAFileMeansNotSet) {
  const auto settings = resolve({}, {}, write(R"({"port": null, "disk_dir": null})"));
  ASSERT_TRUE(settings.has_value()) << error_of(settings);
  EXPECT_EQ(settings->integer("port"), 8000);
  EXPECT_FALSE(settings->has("disk-dir"));
}

TEST_F(SettingsTest, OneRunsFlagsAreNotReadFromElsewhere) {
  const std::vector<Setting> own = report_settings();
  const auto settings = resolve_settings(own, {}, {{"NANO_MOONCAKE_FORMAT", "json"}}, std::nullopt);
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->text("format"), "table");
  EXPECT_FALSE(resolve_settings(own, {}, {}, write(R"({"format": "json"})")).has_value());
}

TEST_F(SettingsTest, VariablesThatNothingReadsAreNamed) {
  EXPECT_THAT(unknown_variables(serving_settings(), {{"NANO_MOONCAKE_POTR", "1"}, {"NANO_MOONCAKE_FAILPOINTS", ""}}),
              ElementsAre("NANO_MOONCAKE_POTR is not a known setting, did you mean NANO_MOONCAKE_PORT?"));
  EXPECT_THAT(unknown_variables(serving_settings(), {{"NANO_MOONCAKE_PORT", "1"}}), IsEmpty());
  EXPECT_THAT(unknown_variables(serving_settings(), {{"NANO_MOONCAKE_TOKEN", "x"}}), IsEmpty());
}

TEST_F(SettingsTest, SettingsWithoutEffectAreNamedUnlessAtTheirDefault) {
  const std::vector<Setting> idle = {
      {.name = "ratio", .kind = Kind::kNumber, .default_text = "0.05", .help = "no reason", .without_effect = true},
      {.name = "endpoint", .kind = Kind::kText, .help = "none is asked", .without_effect = true},
      {.name = "acts", .kind = Kind::kInteger, .default_text = "1", .help = "It acts."}};
  const auto lines = [&](const Flags& flags) {
    return settings_without_effect(resolve_settings(idle, flags, {}, std::nullopt).value());
  };
  EXPECT_THAT(lines({}), IsEmpty());
  EXPECT_THAT(lines({{"ratio", "0.0500"}, {"endpoint", ""}, {"acts", "2"}}), IsEmpty());
  EXPECT_THAT(
      lines({{"ratio", "0.1"}, {"endpoint", "a:1"}}),
      ElementsAre("--ratio 0.1 has no effect here: no reason", "--endpoint a:1 has no effect here: none is asked"));
}

TEST_F(SettingsTest, DefaultsAreValidAndThoseOfTheParts) {
  const auto settings = resolve({}, {}, std::nullopt);
  ASSERT_TRUE(settings.has_value()) << error_of(settings);
  const engine::RuntimeOptions runtime;
  const store::StoreOptions store;
  EXPECT_EQ(settings->count("max-queue"), runtime.max_queue);
  EXPECT_EQ(settings->count("max-running"), runtime.max_running);
  EXPECT_EQ(settings->count("max-batch-tokens"), runtime.max_batch_tokens);
  EXPECT_EQ(settings->count("block-tokens"), runtime.block_tokens);
  EXPECT_EQ(settings->bytes("dram-bytes"), store.dram_bytes);
  EXPECT_EQ(settings->bytes("disk-bytes"), store.disk_bytes);

  const auto api = http_options_of(*settings);
  ASSERT_TRUE(api.has_value()) << api.error().to_string();
  const http::ServerOptions server;
  EXPECT_EQ(api->http.host, server.http.host);
  EXPECT_EQ(api->http.max_connections, server.http.max_connections);
  EXPECT_EQ(api->http.max_header_bytes, server.http.max_header_bytes);
  EXPECT_EQ(api->http.max_body_bytes, server.http.max_body_bytes);
  EXPECT_EQ(api->http.max_unsent_bytes, server.http.max_unsent_bytes);
  EXPECT_EQ(api->http.idle_timeout, server.http.idle_timeout);
  EXPECT_EQ(api->http.write_timeout, server.http.write_timeout);
  EXPECT_EQ(api->http.heartbeat_interval, server.http.heartbeat_interval);
  EXPECT_EQ(api->queue_timeout, server.queue_timeout);
  EXPECT_EQ(api->api_key, "");
  EXPECT_THAT(api->cors_origins, IsEmpty());
}

TEST_F(SettingsTest, OriginsAreThoseThatBrowsersSpell) {
  EXPECT_EQ(parse_origin_list("https://a.example:8443,http://[::1]:3000"),
            (std::vector<std::string>{"https://a.example:8443", "http://[::1]:3000"}));
  EXPECT_EQ(parse_origin_list("*"), std::vector<std::string>{"*"});
  for (const char* wrong : {"", "a.example", "https://", "https://A.example", "https://a.example/", "https://a,",
                            "https://a, https://b", "http://*"}) {
    EXPECT_EQ(parse_origin_list(wrong), std::nullopt) << wrong;
  }
}

TEST_F(SettingsTest, AKeyMayLieInAFileAndTheFlagWins) {
  const Path file = folder_->path() / "key";
  ASSERT_TRUE(write_file_atomic(file, " sesame\n").has_value());
  const auto key_with = [&](Flags flags) {
    flags["api-key-file"] = file.string();
    return http_options_of(*resolve(flags, {}, std::nullopt));
  };
  EXPECT_EQ(key_with({})->api_key, "sesame");
  EXPECT_EQ(key_with({{"api-key", "open"}})->api_key, "open");
  ASSERT_TRUE(write_file_atomic(file, "\n").has_value());
  EXPECT_THAT(key_with({}).error().message, HasSubstr("is empty, expected a key"));
}

}  // namespace
}  // namespace nmc::cli
