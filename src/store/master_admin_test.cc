// Metrics and administration of a real server with real clients, without HTTP around them.
#include "store/master_admin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "store/client.h"
#include "store/operation_counters.h"

namespace nmc::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kSegmentBytes = 4 << 20;

TEST(OperationCountersTest, OneItemIsARequestSeveralAreABatch) {
  OperationCounters counters;
  counters.count(Operation::kPutStart, 1, 0);
  counters.count(Operation::kPutStart, 1, 1);
  counters.count(Operation::kPutStart, 3, 0);
  counters.count(Operation::kPutStart, 3, 1);
  counters.count(Operation::kPutStart, 2, 2);
  counters.count(Operation::kPutStart, 0, 0);
  EXPECT_EQ(counters.single(Operation::kPutStart).requests, 2u);
  EXPECT_EQ(counters.single(Operation::kPutStart).failures, 1u);
  const OperationCounters::Batch batch = counters.batch(Operation::kPutStart);
  EXPECT_EQ(batch.requests, 4u);
  EXPECT_EQ(batch.failures, 1u);
  EXPECT_EQ(batch.partial_successes, 1u);
  EXPECT_EQ(batch.items, 8u);
  EXPECT_EQ(batch.failed_items, 3u);
  EXPECT_EQ(counters.batch(Operation::kPutEnd).requests, 0u);
}

TEST(OperationCountersTest, ValuesFallIntoTheFirstBoundThatHoldsThem) {
  OperationCounters counters;
  for (const std::uint64_t bytes : {1u, 4096u, 4097u, 64u << 20, (64u << 20) + 1}) counters.count_value(bytes);
  const OperationCounters::Values values = counters.values();
  EXPECT_THAT(values.at_most, ::testing::ElementsAre(2, 1, 0, 0, 0, 0, 1, 1));
  EXPECT_EQ(values.bytes, 1 + 4096 + 4097 + 2 * (64u << 20) + 1);
}

class MasterAdminTest : public ::testing::Test {
 protected:
  MasterAdminTest() {
    NodeServerOptions options;
    options.folder = folder_.path() / "store";
    options.core.entries = {64, 1 << 16};
    options.core.lease = std::chrono::seconds(10);
    options.tcp_host = "127.0.0.1";
    server_ = NodeServer::start(options).value();
    admin_ = std::make_unique<MasterAdmin>(*server_, MasterAdminOptions{.address = "127.0.0.1:1"});
  }

  std::unique_ptr<Client> connect(std::uint64_t segment_bytes = kSegmentBytes, bool shared_memory = true) {
    ClientOptions options;
    options.server = shared_memory ? "unix:" + (folder_.path() / "store" / NodeServer::kSocketName).string()
                                   : "127.0.0.1:" + std::to_string(server_->tcp_port());
    options.shared_memory = shared_memory;
    options.segment_bytes = segment_bytes;
    options.hostname = "host";
    return Client::connect(options).value();
  }
  static Outcome put(Client& client, std::string_view key, std::size_t bytes, const PutOptions& options = {}) {
    const std::vector<std::byte> value(bytes, std::byte{7});
    return client.put(key, value, options);
  }

  net::HttpResponse ask(std::string method, const std::string& target, std::vector<net::HttpHeader> headers = {}) {
    net::HttpTarget parts = net::split_http_target(target);
    return admin_->handle({.method = std::move(method),
                           .target = target,
                           .path = std::move(parts.path),
                           .query = std::move(parts.query),
                           .headers = std::move(headers)});
  }
  net::HttpResponse get(const std::string& target) { return ask("GET", target); }
  Json get_json(const std::string& target, int status = 200) {
    const net::HttpResponse response = get(target);
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_THAT(response.content_type, HasSubstr("application/json"));
    return parse_json(response.body, target).value();
  }
  // Of a metric without labels.
  double metric(const std::string& name) {
    const std::string text = "\n" + get("/metrics").body;
    const std::size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  TemporaryFolder folder_ = TemporaryFolder::create("nmc-admin").value();
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<MasterAdmin> admin_;
};

TEST_F(MasterAdminTest, TheOneMasterLeads) {
  EXPECT_EQ(get("/role").body, "leader");
  EXPECT_EQ(get("/ha_status").body, "serving");
  const Json health = get_json("/health");
  EXPECT_EQ(health["status"], "ok");
  EXPECT_EQ(health["service_ready"], true);
  EXPECT_EQ(get_json("/leader"), Json({{"present", true}, {"leader_address", "127.0.0.1:1"}, {"view_version", 1}}));
  EXPECT_EQ(get_json("/kv_events/status")["enabled"], false);
}

TEST_F(MasterAdminTest, AKeyIsFoundWhereItLies) {
  const auto client = connect();
  ASSERT_EQ(put(*client, "a/b:c", 5000), 0);
  const Json answer = get_json("/query_key?key=a%2Fb%3Ac");
  EXPECT_EQ(answer["success"], true);
  ASSERT_EQ(answer["data"].size(), 1u);
  EXPECT_EQ(answer["data"][0]["size_"], 5000);
  EXPECT_EQ(answer["data"][0]["transport_endpoint_"], client->name());
  EXPECT_EQ(answer["data"][0]["protocol_"], "tcp");
  EXPECT_TRUE(answer["data"][0]["buffer_address_"].is_number_unsigned());
}

TEST_F(MasterAdminTest, AQueryTakesNoLease) {
  const auto client = connect();
  ASSERT_EQ(put(*client, "key", 10), 0);
  get_json("/query_key?key=key");
  get_json("/batch_query_keys?keys=key");
  EXPECT_EQ(client->remove("key"), 0);
}

TEST_F(MasterAdminTest, AKeyMayStandInTheQueryAsItIs) {
  const auto client = connect();
  ASSERT_EQ(put(*client, "a+b%25", 10), 0);
  EXPECT_EQ(get("/query_key?key=a%2Bb%2525").status, 200);
  EXPECT_EQ(get("/query_key?key=a+b%25").status, 200);
  EXPECT_EQ(get("/query_key?key=a%20b%25").status, 404);
}

TEST_F(MasterAdminTest, AMissingKeyIsACodeAndItsName) {
  const Json answer = get_json("/query_key?key=nowhere", 404);
  EXPECT_EQ(answer, Json({{"success", false}, {"error_code", -704}, {"error_message", "OBJECT_NOT_FOUND"}}));
}

TEST_F(MasterAdminTest, ABatchAnswersEachOfItsKeys) {
  const auto client = connect();
  ASSERT_EQ(put(*client, "a", 10), 0);
  ASSERT_EQ(put(*client, "b,c", 20), 0);
  const Json data = get_json("/batch_query_keys?keys=a,nowhere,,b%2Cc")["data"];
  EXPECT_EQ(data.size(), 3u);
  EXPECT_EQ(data["a"]["ok"], true);
  EXPECT_EQ(data["a"]["values"][0]["size_"], 10);
  EXPECT_EQ(data["b,c"]["values"][0]["size_"], 20);
  EXPECT_EQ(data["nowhere"], Json({{"ok", false}, {"error", "OBJECT_NOT_FOUND"}}));
}

TEST_F(MasterAdminTest, ListsAreLines) {
  EXPECT_EQ(get("/get_all_keys").body, "");
  const auto client = connect();
  ASSERT_EQ(put(*client, "one", 10), 0);
  ASSERT_EQ(put(*client, "two", 10), 0);
  EXPECT_THAT(get("/get_all_keys").body, ::testing::AnyOf("one\ntwo\n", "two\none\n"));
  EXPECT_EQ(get("/get_all_segments").body, client->name() + "\n");
}

TEST_F(MasterAdminTest, ASegmentTellsItsRoom) {
  const auto client = connect();
  ASSERT_EQ(put(*client, "key", 5000), 0);
  const std::uint64_t used = server_->core().segments().at(0).used_bytes;
  ASSERT_GE(used, 5000u);
  const std::string expected =
      fmt::format("{}\nUsed(bytes): {}\nCapacity(bytes): {}\n", client->name(), used, kSegmentBytes);
  EXPECT_EQ(get("/query_segment?segment=" + client->name()).body, expected);

  const Json detail = get_json("/get_segments_detail");
  EXPECT_EQ(detail["total_segments"], 1);
  const Json& segment = detail["segments"][0];
  EXPECT_EQ(segment["segment_name"], client->name());
  EXPECT_EQ(segment["status"], "MOUNTED");
  EXPECT_EQ(segment["size_bytes"], kSegmentBytes);
  EXPECT_EQ(segment["size_human"], "4.00 MiB");
  EXPECT_EQ(segment["allocator_used_bytes"], used);
  EXPECT_NEAR(segment["allocator_usage_percent"].get<double>(), 100.0 * static_cast<double>(used) / kSegmentBytes,
              1e-9);
}

TEST_F(MasterAdminTest, RemoveAllLeavesLeasedObjectsUnlessForced) {
  const auto client = connect();
  ASSERT_EQ(put(*client, "read", 10), 0);
  ASSERT_EQ(put(*client, "unread", 10), 0);
  ASSERT_EQ(client->exists("read"), 1);
  const auto remove_all = [&](const std::string& query) {
    const net::HttpResponse response = ask("POST", "/api/v1/remove_all" + query);
    EXPECT_EQ(response.status, 200) << response.body;
    return parse_json(response.body, "answer").value()["removed_count"].get<int>();
  };
  EXPECT_EQ(remove_all(""), 1);
  EXPECT_EQ(get("/get_all_keys").body, "read\n");
  EXPECT_EQ(remove_all("?force=false"), 0);
  EXPECT_EQ(remove_all("?force=true"), 1);
  EXPECT_EQ(get("/get_all_keys").body, "");
}

TEST_F(MasterAdminTest, PagesOfABrowserRemoveNothing) {
  const auto client = connect();
  ASSERT_EQ(put(*client, "key", 10), 0);
  EXPECT_EQ(ask("POST", "/api/v1/remove_all?force=1", {{"Origin", "http://elsewhere"}}).status, 403);
  EXPECT_EQ(client->exists("key"), 1);
}

TEST_F(MasterAdminTest, WrongRequestsSayWhatWasExpected) {
  const struct {
    const char *method, *target;
    int status;
    const char* message;
  } kCases[] = {
      {"GET", "/query_key", 400, "?key="},
      {"GET", "/query_key?key=", 400, "?key="},
      {"GET", "/query_key?kex=a", 400, "?key="},
      {"GET", "/query_key?key=%zz", 400, "hexadecimal"},
      {"GET", "/batch_query_keys", 400, "?keys="},
      {"GET", "/batch_query_keys?keys=", 400, "?keys="},
      {"GET", "/batch_query_keys?keys=a,%2", 400, "hexadecimal"},
      {"GET", "/query_segment", 400, "?segment="},
      {"GET", "/query_segment?segment=%", 400, "hexadecimal"},
      {"GET", "/query_segment?segment=nowhere", 404, "SEGMENT_NOT_FOUND"},
      {"POST", "/api/v1/remove_all?force=perhaps", 400, "true, 1, false or 0"},
      {"POST", "/api/v1/remove_all?force=%", 400, "hexadecimal"},
      {"POST", "/api/v1/remove_all?tenant_id=t", 501, "tenants"},
      {"POST", "/metrics", 405, "GET"},
      {"GET", "/api/v1/remove_all", 405, "POST"},
      {"GET", "/metrics/", 404, "/metrics/"},
      {"POST", "/api/v1/drain_jobs", 501, "not supported"},
      {"GET", "/api/v1/segments/status?segment=a", 501, "not supported"},
      {"PUT", "/api/v1/tenant_quotas", 501, "not supported"},
  };
  for (const auto& wrong : kCases) {
    const net::HttpResponse response = ask(wrong.method, wrong.target);
    EXPECT_EQ(response.status, wrong.status) << wrong.target;
    const auto json = parse_json(response.body, wrong.target);
    ASSERT_TRUE(json) << wrong.target;
    EXPECT_EQ((*json)["success"], false) << wrong.target;
    EXPECT_THAT(response.body, HasSubstr(wrong.message)) << wrong.target;
  }
}

TEST_F(MasterAdminTest, WithATokenOnlyHealthIsOpen) {
  admin_ = std::make_unique<MasterAdmin>(*server_, MasterAdminOptions{.address = "a:1", .token = "secret"});
  EXPECT_EQ(get("/health").status, 200);
  for (const char* header : {"", "Bearer", "Bearer wrong", "Bearer secret2", "Basic secret", "secret"}) {
    const net::HttpResponse response = ask("GET", "/metrics", {{"Authorization", header}});
    EXPECT_EQ(response.status, 401) << header;
    EXPECT_THAT(response.body, Not(HasSubstr("master_key_count")));
  }
  EXPECT_EQ(get("/nowhere").status, 401);
  EXPECT_EQ(ask("GET", "/metrics", {{"authorization", "bearer secret"}}).status, 200);
}

TEST_F(MasterAdminTest, MetricsFollowWhatClientsDo) {
  const auto owner = connect();
  const auto remote = connect(0, false);
  ASSERT_EQ(put(*owner, "small", 100), 0);
  ASSERT_EQ(put(*owner, "soft", 100'000, {.soft_pin = SoftPin::kPin}), 0);
  ASSERT_EQ(put(*remote, "far", 5000), 0);
  EXPECT_EQ(put(*remote, "huge", kSegmentBytes + 1), outcome_of(StoreCode::kNoAvailableHandle));
  EXPECT_EQ(remote->exists("far"), 1);
  EXPECT_EQ(remote->size_of("nowhere"), outcome_of(StoreCode::kObjectNotFound));
  EXPECT_EQ(owner->exists("small"), 1);  // no message
  EXPECT_EQ(owner->remove("nowhere"), outcome_of(StoreCode::kObjectNotFound));
  EXPECT_EQ(owner->remove("soft"), 0);

  EXPECT_EQ(metric("master_key_count"), 2);
  EXPECT_EQ(metric("master_soft_pin_key_count"), 0);
  EXPECT_EQ(metric("master_active_clients"), 1);
  EXPECT_EQ(metric("master_total_capacity_bytes"), kSegmentBytes);
  EXPECT_EQ(metric("master_mount_segment_requests_total"), 1);
  EXPECT_EQ(metric("master_put_start_requests_total"), 4);
  EXPECT_EQ(metric("master_put_start_failures_total"), 1);
  EXPECT_EQ(metric("master_exist_key_requests_total"), 1);
  EXPECT_EQ(metric("master_get_replica_list_requests_total"), 1);
  EXPECT_EQ(metric("master_get_replica_list_failures_total"), 1);
  EXPECT_EQ(metric("master_remove_requests_total"), 2);
  EXPECT_EQ(metric("master_remove_failures_total"), 1);
  EXPECT_EQ(metric("master_value_size_bytes_count"), 3);
  EXPECT_EQ(metric("master_value_size_bytes_sum"), 105'100);
  EXPECT_THAT(get("/metrics").body, HasSubstr("segment_total_capacity_bytes{segment=\"" + owner->name() + "\"}"));
  EXPECT_THAT(get("/metrics/summary").body,
              AllOf(HasSubstr("role=leader"), HasSubstr("Keys: 2 "), Not(HasSubstr("\n"))));
}

TEST_F(MasterAdminTest, BatchesAreCountedWithTheirItems) {
  const auto remote = connect(0, false);
  const auto owner = connect();
  ASSERT_EQ(put(*owner, "a", 10), 0);
  const std::string_view keys[] = {"a", "b", "c"};
  Outcome outcomes[3];
  remote->exists(keys, outcomes);
  std::byte room[16];
  const std::span<std::byte> to[] = {room};
  const Client::Read reads[] = {{"a", to}, {"nowhere", to}};
  remote->read(reads, std::span(outcomes).first(2));
  EXPECT_EQ(metric("master_batch_exist_key_requests_total"), 1);
  EXPECT_EQ(metric("master_batch_exist_key_items_total"), 3);
  EXPECT_EQ(metric("master_batch_exist_key_failures_total"), 0);
  EXPECT_EQ(metric("master_batch_get_replica_list_items_total"), 2);
  EXPECT_EQ(metric("master_batch_get_replica_list_failed_items_total"), 1);
  EXPECT_EQ(metric("master_batch_get_replica_list_partial_successes_total"), 1);
}

TEST_F(MasterAdminTest, EvictionsAndWantOfRoomAreCounted) {
  const auto client = connect();
  for (int i = 0; i < 8; ++i) ASSERT_EQ(put(*client, "key" + std::to_string(i), 1 << 20), 0);
  const double evicted = metric("master_evicted_key_count");
  EXPECT_GE(evicted, 4);
  EXPECT_EQ(metric("master_evicted_size_bytes"), evicted * (1 << 20));
  EXPECT_GE(metric("master_successful_evictions_total"), 1);
  EXPECT_EQ(metric("master_attempted_evictions_total"), metric("master_successful_evictions_total"));
  EXPECT_EQ(metric("master_put_start_alloc_failures_total"), 0);

  ASSERT_EQ(put(*client, "stays", 3 << 20, {.hard_pin = true}), 0);
  EXPECT_EQ(put(*client, "too much", 2 << 20), outcome_of(StoreCode::kNoAvailableHandle));
  EXPECT_EQ(metric("master_put_start_alloc_failures_total"), 1);
  EXPECT_GT(metric("master_attempted_evictions_total"), metric("master_successful_evictions_total"));
}

TEST_F(MasterAdminTest, ExpositionHasOneHeadForEachMetric) {
  const auto client = connect();
  const std::string text = get("/metrics").body;
  std::set<std::string> names;
  std::size_t heads = 0;
  for (std::size_t at = text.find("# TYPE "); at != std::string::npos; at = text.find("# TYPE ", at + 1), ++heads)
    names.insert(text.substr(at + 7, text.find(' ', at + 7) - at - 7));
  EXPECT_EQ(names.size(), heads);
  EXPECT_GT(heads, 50u);
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace nmc::store
