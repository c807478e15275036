#include "evidence/report.h"

#include <gmock/gmock.h>

#include "evidence/canonical.h"
#include "evidence/test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::HasSubstr;

const CaseKey kKey{"high-reuse", "pd-global", "shm", "2p1d", "cold", "none"};

ExperimentReport full_report() {
  CaseRow row = make_case(kKey, {1.25, 2.5, 3.123457});
  row.workers = {{"prefill-0", "prefill", 1, 0.5}};
  row.fault = FaultEvidence{"handover.send=exit", "prefill-0", 1, "right", true};
  ExperimentReport report = make_report(1, {row});
  report.parity = {{"full-attention", "equal", "", 12, 0}};
  return *parse_report(report_json(report), "r");
}

// With its digest made right again.
Json sealed(Json json) {
  json["report_digest"] = canonical_digest(json, "report_digest").hex();
  return json;
}

std::string refusal(const Json& json) {
  const auto report = parse_report(json, "r.json");
  return report ? "taken" : report.error().message;
}

TEST(Report, ComesBackAsItWas) {
  const ExperimentReport report = full_report();
  EXPECT_EQ(*parse_report(*parse_json(dump_json_pretty(report_json(report)), "text"), "r"), report);
}

TEST(Report, HasSummariesThatSayHowManySamplesTheyAreOf) {
  const Json summary = report_json(full_report())["cases"][0]["summary"]["ttft_ms"];
  EXPECT_EQ(summary["samples"], 3);
  EXPECT_EQ(summary["max"], 3.123457);
  EXPECT_EQ(summary["p95"], "not_available");
}

TEST(Report, AnyChangeOfItsContentIsFound) {
  Json json = report_json(full_report());
  json["cases"][0]["requests"][1]["metrics"]["ttft_ms"] = 2.4;
  EXPECT_EQ(parse_report(json, "r.json").error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(refusal(json), HasSubstr("it was changed"));
}

TEST(Report, WhatIsNotAsItShouldBeIsNamedByItsPath) {
  const auto changed = [](const char* pointer, Json value) {
    Json json = report_json(full_report());
    json[Json::json_pointer(pointer)] = std::move(value);
    return refusal(sealed(std::move(json)));
  };
  EXPECT_THAT(changed("/cases/0/mode", "pd"), HasSubstr("`cases[0].mode`: expected one of \"monolithic\""));
  EXPECT_THAT(changed("/cases/0/requests/0/endings", -1),
              HasSubstr("`cases[0].requests[0].endings`: expected a whole"));
  EXPECT_THAT(changed("/cases/0/requests/0/metrics/tea", 1), HasSubstr("metrics.tea`: expected a metric"));
  EXPECT_THAT(changed("/cases/0/requests", 7), HasSubstr("`cases[0].requests`: expected an array, got 7"));
  EXPECT_THAT(changed("/provenance/machine", Json()), HasSubstr("`provenance.machine`: expected an object, got null"));
  EXPECT_THAT(changed("/provenance/model/digest", "abc"), HasSubstr("expected 64 hexadecimal digits"));
  EXPECT_THAT(changed("/cases/0/fault_evidence/fired", 1e300), HasSubstr("fired`: expected a whole number"));
}

TEST(Report, AnotherSchemaIsAnotherKind) {
  EXPECT_EQ(parse_report({{"schema", "nano-mooncake/slo/v1"}}, "r").error().code, ErrorCode::kVersionMismatch);
  EXPECT_EQ(parse_report(Json::array(), "r").error().code, ErrorCode::kVersionMismatch);
}

TEST(Report, RunIdsDiffer) { EXPECT_NE(new_run_id(), new_run_id()); }

}  // namespace
}  // namespace nmc::evidence
