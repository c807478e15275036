#include "store/metadata_service.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <thread>

#include "net/raw_client.h"

namespace nmc::store {
namespace {

using net::HttpRequest;
using net::HttpResponse;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr const char* kRpc = "mooncake%2Frpc_meta%2F10.0.0.1%3A12384";
constexpr const char* kRam = "mooncake%2Fram%2F10.0.0.1%3A12384";

auto is(int status, std::string_view body) {
  return AllOf(Field("status", &HttpResponse::status, status), Field("body", &HttpResponse::body, std::string(body)));
}
auto is_full(std::string_view why) {
  return AllOf(Field("status", &HttpResponse::status, 507), Field("body", &HttpResponse::body, HasSubstr(why)));
}

std::string header_of(const HttpResponse& response, std::string_view name) {
  for (const net::HttpHeader& field : response.headers) {
    if (field.name == name) return field.value;
  }
  return "";
}

class MetadataServiceTest : public ::testing::Test {
 protected:
  void limit(MetadataLimits limits) { service_.emplace(limits); }
  HttpResponse request(std::string_view method, std::string_view target, std::string_view body = "") {
    auto [path, query] = net::split_http_target(target);
    return service_->handle({.method = std::string(method),
                             .target = std::string(target),
                             .path = std::move(path),
                             .query = std::move(query),
                             .body = std::string(body)});
  }
  // `key` as it stands in the query.
  HttpResponse get(std::string_view key) { return request("GET", fmt::format("/metadata?key={}", key)); }
  HttpResponse put(std::string_view key, std::string_view body) {
    return request("PUT", fmt::format("/metadata?key={}", key), body);
  }
  HttpResponse remove(std::string_view key) { return request("DELETE", fmt::format("/metadata?key={}", key)); }

  std::optional<MetadataService> service_ = std::make_optional<MetadataService>();
};

TEST_F(MetadataServiceTest, GivesBackTheBodyByteForByte) {
  EXPECT_THAT(get(kRam), is(404, "metadata not found"));
  for (const std::string& body : {std::string(R"({"name":"a"})"), std::string(), std::string("\0\r\n\xff %41+", 9)}) {
    EXPECT_THAT(put(kRam, body), is(200, "metadata updated"));
    EXPECT_THAT(get(kRam), is(200, body));
  }
  EXPECT_EQ(get(kRam).content_type, "application/json");
  EXPECT_THAT(remove(kRam), is(200, "metadata deleted"));
  EXPECT_THAT(get(kRam), is(404, "metadata not found"));
  EXPECT_THAT(remove(kRam), is(404, "metadata not found"));
}

TEST_F(MetadataServiceTest, ALiveRpcEntryTakesTheSameBodyOnly) {
  EXPECT_THAT(put(kRpc, "X"), is(200, "metadata updated"));
  EXPECT_THAT(put(kRpc, "X"), is(200, "metadata unchanged"));
  EXPECT_THAT(put(kRpc, "Y"), is(400, "Duplicate rpc_meta key not allowed"));
  EXPECT_THAT(get(kRpc), is(200, "X"));
  EXPECT_THAT(remove(kRpc), is(200, "metadata deleted"));
  EXPECT_THAT(put(kRpc, "Y"), is(200, "metadata updated"));
  EXPECT_THAT(get(kRpc), is(200, "Y"));
}

TEST_F(MetadataServiceTest, OtherEntriesAreReplaced) {
  EXPECT_THAT(put(kRam, "X"), is(200, "metadata updated"));
  EXPECT_THAT(put(kRam, "X"), is(200, "metadata updated"));
  EXPECT_THAT(put(kRam, "Y"), is(200, "metadata updated"));
  EXPECT_THAT(get(kRam), is(200, "Y"));
}

TEST_F(MetadataServiceTest, AnAbsentOrBlankKeyIsRefusedAndStoresNothing) {
  for (const char* query :
       {"", "?", "?key", "?key=", "?key=%20%20", "?key=++", "?key=%09%0a", "?other=x", "?=x", "?key=&key=x"}) {
    for (const char* method : {"GET", "PUT", "DELETE"}) {
      EXPECT_THAT(request(method, fmt::format("/metadata{}", query), "body"), is(400, "metadata key is required"))
          << method << query;
    }
  }
  EXPECT_EQ(service_->stats().keys, 0u);
}

TEST_F(MetadataServiceTest, AMalformedEscapeIsRefused) {
  for (const char* method : {"GET", "PUT", "DELETE"}) {
    const HttpResponse response = request(method, "/metadata?key=a%2", "body");
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(response.body, HasSubstr("escape"));
  }
  EXPECT_EQ(service_->stats().keys, 0u);
}

TEST_F(MetadataServiceTest, KeysAreDecodedOnceAndStripped) {
  EXPECT_THAT(put("%2541", "percent"), is(200, "metadata updated"));
  EXPECT_THAT(get("A"), is(404, "metadata not found"));
  EXPECT_THAT(get("%41"), is(404, "metadata not found"));
  EXPECT_THAT(put("a+b", "space"), is(200, "metadata updated"));
  EXPECT_THAT(get("a%20b"), is(200, "space"));
  EXPECT_THAT(get("a%2Bb"), is(404, "metadata not found"));
  EXPECT_THAT(get("+%20a%20b%09"), is(200, "space"));
  EXPECT_THAT(put("x/y", "slash"), is(200, "metadata updated"));
  EXPECT_THAT(get("x%2Fy"), is(200, "slash"));
  EXPECT_TRUE(service_->remove("%41"));
  EXPECT_TRUE(service_->remove("a b"));
  EXPECT_TRUE(service_->remove("x/y"));
  EXPECT_FALSE(service_->remove("x/y"));
  EXPECT_EQ(service_->stats().keys, 0u);
}

TEST_F(MetadataServiceTest, OtherMethodsAreRefusedWithThoseAllowed) {
  for (const char* method : {"POST", "PATCH", "HEAD", "OPTIONS", "get"}) {
    const HttpResponse response = request(method, "/metadata?key=x");
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(header_of(response, "Allow"), "GET, PUT, DELETE");
  }
  EXPECT_EQ(request("PUT", "/health").status, 405);
  EXPECT_EQ(header_of(request("PUT", "/health"), "Allow"), "GET, HEAD");
}

TEST_F(MetadataServiceTest, AnswersHealthAndNothingElse) {
  EXPECT_THAT(request("GET", "/health"), is(200, "OK"));
  EXPECT_THAT(request("GET", "/health?verbose"), is(200, "OK"));
  for (const char* path : {"/", "/metadata/", "/metadata/key", "/Metadata", "/metrics"}) {
    EXPECT_EQ(request("GET", path).status, 404) << path;
  }
}

TEST_F(MetadataServiceTest, ABodyBeyondTheLimitIsRefused) {
  limit({.max_body_bytes = 4});
  EXPECT_EQ(put("a", "1234").status, 200);
  const HttpResponse response = put("a", "12345");
  EXPECT_EQ(response.status, 413);
  EXPECT_THAT(response.body, HasSubstr("5 bytes is larger than 4"));
  EXPECT_THAT(get("a"), is(200, "1234"));
}

TEST_F(MetadataServiceTest, KeysBeyondTheLimitAreRefusedUntilOneGoes) {
  limit({.max_keys = 2});
  EXPECT_EQ(put("a", "1").status, 200);
  EXPECT_EQ(put("b", "1").status, 200);
  EXPECT_THAT(put("c", "1"), is_full("2 keys"));
  EXPECT_EQ(put("a", "2").status, 200);  // one that is there stays writable
  EXPECT_EQ(remove("b").status, 200);
  EXPECT_EQ(put("c", "1").status, 200);
}

TEST_F(MetadataServiceTest, BytesBeyondTheLimitAreRefusedUntilSomeGo) {
  limit({.max_total_bytes = 10});
  EXPECT_EQ(put("a", "1234").status, 200);
  EXPECT_EQ(put("b", "1234").status, 200);
  EXPECT_EQ(service_->stats().bytes, 10u);
  EXPECT_THAT(put("c", ""), is_full("11 bytes would be more than 10"));
  EXPECT_THAT(put("b", "12345"), is_full("11 bytes"));
  EXPECT_THAT(get("b"), is(200, "1234"));
  EXPECT_EQ(put("a", "").status, 200);
  EXPECT_EQ(put("b", "12345").status, 200);
  EXPECT_EQ(service_->stats().bytes, 7u);
  EXPECT_EQ(remove("b").status, 200);
  EXPECT_EQ(remove("a").status, 200);
  EXPECT_EQ(service_->stats().bytes, 0u);
}

TEST_F(MetadataServiceTest, OfTwoWritersAtOnceOneWinsAnRpcEntry) {
  for (int round = 0; round < 200; ++round) {
    const std::string key = fmt::format("rpc_meta%2F{}", round);
    const std::string bodies[] = {std::string(100, 'x'), std::string(200, 'y')};
    HttpResponse answers[2];
    {
      std::latch both_there(2);
      std::vector<std::jthread> writers;
      for (int i = 0; i < 2; ++i) {
        writers.emplace_back([&, i] {
          both_there.arrive_and_wait();
          answers[i] = put(key, bodies[i]);
        });
      }
    }
    const int winner = answers[0].status == 200 ? 0 : 1;
    EXPECT_THAT(answers[winner], is(200, "metadata updated"));
    EXPECT_THAT(answers[1 - winner], is(400, "Duplicate rpc_meta key not allowed"));
    EXPECT_THAT(get(key), is(200, bodies[winner]));
  }
}

TEST_F(MetadataServiceTest, ReadersBesideAWriterSeeWholeBodies) {
  const std::string x(1000, 'x');
  const std::string y(3000, 'y');
  ASSERT_EQ(put(kRam, x).status, 200);
  {
    std::jthread writer([&](std::stop_token stop) {
      while (!stop.stop_requested()) {
        put(kRam, y);
        put(kRam, x);
      }
    });
    for (int i = 0; i < 2000; ++i) ASSERT_THAT(get(kRam), AnyOf(is(200, x), is(200, y)));
  }
  EXPECT_EQ(service_->stats().bytes, x.size() + std::string_view("mooncake/ram/10.0.0.1:12384").size());
}

TEST(MetadataServerTest, ServesOverHttpAndRefusesALargeBodyUnread) {
  MetadataService service({.max_body_bytes = 1000});
  const auto server = serve_metadata(service, {});
  ASSERT_TRUE(server.has_value()) << server.error().to_string();
  const auto ask = [&](std::string_view request) {
    net::RawClient client((*server)->port());
    client.send(request);
    return client.read_answer();
  };
  EXPECT_EQ(ask("PUT /metadata?key=a%2Fb HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}").body, "metadata updated");
  const auto found = ask("GET /metadata?key=a/b HTTP/1.1\r\n\r\n");
  EXPECT_EQ(found.body, "{}");
  EXPECT_EQ(net::RawClient::header(found.head, "Content-Type"), "application/json");
  EXPECT_EQ(ask("PUT /metadata?key=a HTTP/1.1\r\nContent-Length: 1001\r\n\r\n").status, 413);
  EXPECT_EQ(service.stats().keys, 1u);
}

}  // namespace
}  // namespace nmc::store
