#include "net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::net {
namespace {

using ::testing::HasSubstr;

TEST(Address, ReadsEachForm) {
  EXPECT_EQ(*Address::parse("unix:/run/nmc/store.sock"),
            (Address{.carrier = Carrier::kUnix, .path = "/run/nmc/store.sock"}));
  EXPECT_EQ(*Address::parse("unix:store.sock"), (Address{.carrier = Carrier::kUnix, .path = "store.sock"}));
  EXPECT_EQ(*Address::parse("10.0.0.7:50051"), (Address{.host = "10.0.0.7", .port = 50051}));
  EXPECT_EQ(*Address::parse("host.example:1"), (Address{.host = "host.example", .port = 1}));
  EXPECT_EQ(*Address::parse("[::1]:65535"), (Address{.host = "::1", .port = 65535}));
}

TEST(Address, PrintsWhatItReads) {
  for (const char* text : {"unix:/a b/c", "localhost:8080", "[fe80::1]:7"}) {
    EXPECT_EQ(Address::parse(text)->to_string(), text);
  }
}

TEST(Address, RefusesEverythingElseAndSaysWhy) {
  using namespace std::string_literals;
  const std::pair<std::string, std::string> cases[] = {
      {"", "no port"},
      {"localhost", "no port"},
      {"unix:", "no path"},
      {"unix:/" + std::string(kUnixPathBytesMax, 'x'), "108 bytes"},
      {"unix:/a\0b"s, "zero byte"},
      {":80", "no host"},
      {"[]:80", "no host"},
      {"::1:80", "more than one colon"},
      {"http://host:80", "more than one colon"},
      {"host/path:80", "not a host name"},
      {"a host:80", "not a host name"},
      {"[::1:80", "more than one colon"},
      {"host:", "the port"},
      {"host:0", "the port"},
      {"host:65536", "the port"},
      {"host:-1", "the port"},
      {"host:80x", "the port"},
      {"host: 80", "the port"},
  };
  for (const auto& [text, why] : cases) {
    const Result<Address> address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(address.error().message, HasSubstr(why)) << text;
  }
}

TEST(Address, TakesTheLongestPath) {
  const std::string path(kUnixPathBytesMax, 'x');
  EXPECT_EQ(Address::parse("unix:" + path)->path, path);
}

}  // namespace
}  // namespace nmc::net
