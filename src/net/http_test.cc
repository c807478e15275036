#include "net/http.h"

#include <gtest/gtest.h>

namespace nmc::net {
namespace {

TEST(HttpTarget, SplitsPathAndQuery) {
  const struct {
    const char* target;
    const char* path;
    const char* query;
  } cases[] = {
      {"/", "/", ""},
      {"/v1/models", "/v1/models", ""},
      {"/x?a=1&b=2", "/x", "a=1&b=2"},
      {"/x?", "/x", ""},
      {"?a", "/", "a"},
      {"", "/", ""},
      {"*", "*", ""},
      {"http://host:8000/x/y?z", "/x/y", "z"},
      {"http://host", "/", ""},
      {"http://host?z", "/", "z"},
      {"/redirect?to=http://host/x", "/redirect", "to=http://host/x"},
      {"a/b://c", "a/b://c", ""},
      {"://", "/", ""},
  };
  for (const auto& c : cases) {
    const HttpTarget parts = split_http_target(c.target);
    EXPECT_EQ(parts.path, c.path) << c.target;
    EXPECT_EQ(parts.query, c.query) << c.target;
  }
}

TEST(HttpRequest, FindsHeadersInAnyCase) {
  HttpRequest request;
  request.headers = {{"Content-Type", "a"}, {"content-type", "b"}, {"X", "c"}};
  ASSERT_NE(request.header("CONTENT-TYPE"), nullptr);
  EXPECT_EQ(*request.header("CONTENT-TYPE"), "a");
  EXPECT_EQ(request.header("Content-Typ"), nullptr);
  EXPECT_EQ(request.header(""), nullptr);
}

}  // namespace
}  // namespace nmc::net
