#include "http/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace nmc::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string header(const net::HttpResponse& response, std::string_view name) {
  for (const net::HttpHeader& one : response.headers) {
    if (one.name == name) return one.value;
  }
  return "";
}

// What the browser does with it is for tests/test_page.py.
TEST(Page, IsOneDocumentThatNamesNothingElse) {
  const net::HttpResponse page = page_response();
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("</html>"));
  EXPECT_THAT(page.body, Not(HasSubstr("@page.")));
  EXPECT_THAT(page.body, Not(HasSubstr("@import")));
  const std::regex reference(R"re((?:src|href|action)\s*=\s*"([^"]*)")re");
  std::vector<std::string> named;
  for (std::sregex_iterator it(page.body.begin(), page.body.end(), reference), end; it != end; ++it)
    named.push_back((*it)[1].str().substr(0, 19));
  EXPECT_THAT(named, ElementsAre("data:image/svg+xml,", "#prompt"));
}

TEST(Page, PolicyAllowsItsOwnScriptStyleAndServerOnly) {
  const std::string policy = header(page_response(), "Content-Security-Policy");
  EXPECT_THAT(policy, ::testing::MatchesRegex("default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; "
                                              "script-src 'sha256-[A-Za-z0-9+/]{43}='; connect-src 'self'; "
                                              "img-src data:; base-uri 'none'; form-action 'none'; "
                                              "frame-ancestors 'none'"));
  EXPECT_EQ(header(page_response(), "X-Content-Type-Options"), "nosniff");
}

}  // namespace
}  // namespace nmc::http
