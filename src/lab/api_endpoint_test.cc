#include "lab/api_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

using ::testing::HasSubstr;

TEST(ApiEndpointTest, TheBaseOfAnOpenAiClientIsTakenWithAndWithoutItsVersion) {
  for (const char* text :
       {"http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/"}) {
    const auto endpoint = ApiEndpoint::parse(text);
    ASSERT_TRUE(endpoint.has_value()) << text;
    EXPECT_EQ(endpoint->to_string(), "http://127.0.0.1:8000");
  }
  const auto behind = ApiEndpoint::parse("https://example.org/models/x/v1");
  ASSERT_TRUE(behind.has_value());
  EXPECT_EQ(behind->to_string(), "https://example.org:443/models/x");
  EXPECT_TRUE(behind->tls);
  EXPECT_EQ(ApiEndpoint::parse("http://[::1]")->to_string(), "http://[::1]:80");
}

TEST(ApiEndpointTest, AnythingElseIsRefusedWithTheForm) {
  for (const char* text : {"", "127.0.0.1:8000", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://x y",
                           "http://user@x", "http://x?y=z", "unix:/x"}) {
    const auto endpoint = ApiEndpoint::parse(text);
    ASSERT_FALSE(endpoint.has_value()) << text;
    EXPECT_THAT(endpoint.error().message, HasSubstr("http[s]://HOST"));
  }
}

TEST(ApiEndpointTest, ARequestCarriesItsHeadersAndTheLengthOfItsBody) {
  const auto endpoint = ApiEndpoint::parse("http://example.org:81/x");
  ASSERT_TRUE(endpoint.has_value());
  EXPECT_EQ(endpoint->format_request("POST", "/v1/completions", {{"Authorization", "Bearer k"}}, "{}"),
            "POST /x/v1/completions HTTP/1.1\r\nHost: example.org:81\r\nAccept: */*\r\nAuthorization: Bearer k\r\n"
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
}

}  // namespace
}  // namespace nmc::lab
