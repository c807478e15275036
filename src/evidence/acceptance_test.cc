#include "evidence/acceptance.h"

#include <gmock/gmock.h>

#include "evidence/gate_test_support.h"

namespace nmc::evidence {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const CaseKey kSplit = key_of("pd-split");
const CaseKey kGlobal = key_of("pd-global");

Acceptance judged(const History& history) {
  return *judge_acceptance(*cohort_of(history), good_budget(), good_options());
}

// "GATE: VERDICT" of those that don't pass.
std::vector<std::string> troubles(const Acceptance& acceptance) {
  std::vector<std::string> found;
  for (const GateLine& gate : acceptance.gates) {
    if (gate.applies && gate.verdict != Verdict::kPass)
      found.push_back(fmt::format("{}: {}", gate.name, verdict_name(gate.verdict)));
  }
  return found;
}

const GateLine& gate_of(const Acceptance& acceptance, std::string_view name) {
  return *std::ranges::find(acceptance.gates, name, &GateLine::name);
}

void flip_last_digit(std::string& digest) { digest.back() = digest.back() == '0' ? '1' : '0'; }

void in_every_run(History& history, const CaseKey& key, const std::function<void(CaseRow&)>& change) {
  for (ExperimentReport& run : history.runs) change(*std::ranges::find(run.cases, key, &CaseRow::key));
}

struct Mutation {
  const char* name;
  std::function<void(History&)> change;
  const char* trouble;  // the only one
  const char* finding;  // part of its first
};

std::ostream& operator<<(std::ostream& out, const Mutation& mutation) { return out << mutation.name; }

class AcceptanceChange : public ::testing::TestWithParam<Mutation> {};

TEST_P(AcceptanceChange, FlipsItsGateAndNoOther) {
  History history = good_history();
  ASSERT_THAT(troubles(judged(history)), IsEmpty());
  ASSERT_EQ(judged(history).verdict, Verdict::kPass);
  GetParam().change(history);
  const Acceptance acceptance = judged(history);
  const std::string trouble = GetParam().trouble;
  EXPECT_THAT(troubles(acceptance), ElementsAre(trouble));
  const GateLine& gate = gate_of(acceptance, trouble.substr(0, trouble.find(':')));
  ASSERT_FALSE(gate.findings.empty());
  EXPECT_THAT(gate.findings[0], HasSubstr(GetParam().finding));
  EXPECT_THAT(gate.summary, HasSubstr(GetParam().finding));
  EXPECT_EQ(acceptance.verdict, trouble.ends_with(": fail") ? Verdict::kFail : Verdict::kInsufficient);
}

auto newest(const CaseKey& key, std::function<void(CaseRow&)> change) {
  return [=](History& history) { change(case_of(history, key)); };
}

const std::string kOther = sha256("another").hex();

INSTANTIATE_TEST_SUITE_P(
    OneField, AcceptanceChange,
    ::testing::Values(
        Mutation{"RunOfAnotherMachine", [](History& h) { h.runs[0].provenance.machine.fingerprint = kOther; },
                 "provenance: insufficient_evidence", "can't be judged with the others: machine: "},
        Mutation{"RunOfAnotherBuild", [](History& h) { h.runs[0].provenance.build.source_digest = kOther; },
                 "provenance: insufficient_evidence", "can't be judged with the others: source: "},
        Mutation{"DirtyTree", [](History& h) { h.runs[1].provenance.build.dirty = true; },
                 "provenance: insufficient_evidence", "the tree had changes that no commit has"},
        Mutation{"DebugBuild",
                 [](History& h) {
                   for (ExperimentReport& run : h.runs) run.provenance.build.build_type = "Debug";
                 },
                 "provenance: insufficient_evidence", "a Debug build, expected Release"},
        Mutation{"UnknownSource",
                 [](History& h) {
                   for (ExperimentReport& run : h.runs) run.provenance.build.source_digest = kUnknown;
                 },
                 "provenance: insufficient_evidence", "the source isn't known"},
        Mutation{"SimulatedFigures",
                 [](History& h) {
                   for (ExperimentReport& run : h.runs) run.provenance.evidence_tier = kTierSimulation;
                 },
                 "provenance: insufficient_evidence", "its figures are simulated"},
        Mutation{"ReportThatWasChanged",
                 [](History& h) {
                   h.left_out.push_back({"a-run", "reports/a.json", "it was changed"});
                 },
                 "provenance: insufficient_evidence", "run a-run: its report can't be used: it was changed"},
        Mutation{"AnotherAnswer", newest(kGlobal, [](CaseRow& row) { flip_last_digit(row.requests[4].tokens_digest); }),
                 "determinism: fail", "the answer to r4 differs from that of high-reuse/monolithic"},
        Mutation{"AnotherCounter",
                 newest(kSplit, [](CaseRow& row) { row.requests[4].metrics["computed_tokens"] = 63; }),
                 "determinism: fail", "a counter of r4 differs from that of high-reuse/pd-split"},
        Mutation{"AnotherCacheSource", newest(kGlobal, [](CaseRow& row) { row.requests[4].cache_source = "disk"; }),
                 "determinism: fail", "a counter of r4"},
        Mutation{"RegressedP95",
                 [](History& h) {
                   in_every_run(h, kGlobal, [](CaseRow& row) {
                     for (std::size_t i = 45; i < row.requests.size(); ++i) row.requests[i].metrics["ttft_ms"] += 10;
                   });
                 },
                 "pressure: fail", "ttft_ms-p95: fail: 67, expected at most 58"},
        Mutation{"OrphanShm",
                 newest(key_of("pd-global", "crash"), [](CaseRow& row) { row.resources["orphan_shm"] = 1; }),
                 "fault: fail", "no_orphan_shm: fail: high-reuse/pd-global/shm/1p1d/cold/crash"},
        Mutation{"SkippedFault", newest(key_of("pd-global", "crash"), [](CaseRow& row) { row.status = "skipped"; }),
                 "fault: insufficient_evidence", "insufficient_evidence: high-reuse/pd-global/shm/1p1d/cold/crash"},
        Mutation{"FaultThatNeverFired",
                 newest(key_of("pd-global", "crash"), [](CaseRow& row) { row.fault->fired = 0; }),
                 "fault: insufficient_evidence", "faults_observed: insufficient_evidence"},
        Mutation{"MissingControl",
                 [](History& h) {
                   std::erase_if(h.runs.back().cases, [](const CaseRow& row) { return row.key == kSplit; });
                 },
                 "decision: insufficient_evidence", "has no control high-reuse/pd-split/shm/1p1d/cold/none"},
        Mutation{"MissingMonolithic",
                 [](History& h) {
                   std::erase_if(h.runs.back().cases, [](const CaseRow& row) { return row.key.mode == "monolithic"; });
                 },
                 "decision: insufficient_evidence", "pd-split: high-reuse/pd-split"},
        Mutation{"ControlOfFewerRequests", newest(kSplit, [](CaseRow& row) { row.requests.pop_back(); }),
                 "decision: insufficient_evidence", "weren't asked the same"},
        Mutation{"DifferentLogits",
                 [](History& h) { h.runs[1].parity = {{"full-attention", "different", "token 3", 12, 0.5}}; },
                 "parity: fail", "full-attention: token 3"}),
    [](const auto& change) { return change.param.name; });

TEST(Acceptance, AnotherWorkloadFromTheSameSeedIsNotDeterministic) {
  History history = good_history();
  for (CaseRow& row : history.runs.back().cases) row.workload_digest = kOther;
  EXPECT_EQ(gate_of(judged(history), "determinism").verdict, Verdict::kFail);
  history.runs.back().config["seed"] = 2;
  EXPECT_EQ(gate_of(judged(history), "determinism").verdict, Verdict::kInsufficient) << "two cases, each run once";
}

TEST(Acceptance, AWorkloadFileThatChangedBetweenRunsIsNoFault) {
  History history = good_history();
  for (ExperimentReport& run : history.runs) run.config["workloads"] = "w.json";
  for (CaseRow& row : history.runs.back().cases) row.workload_digest = kOther;
  EXPECT_EQ(gate_of(judged(history), "determinism").verdict, Verdict::kInsufficient);
}

TEST(Acceptance, OneRunShowsNoDeterminism) {
  History history = good_history();
  history.runs.resize(1);
  const GateLine once = judge_determinism(*cohort_of(history));
  EXPECT_EQ(once.verdict, Verdict::kInsufficient);
  EXPECT_EQ(once.findings[0], "high-reuse/monolithic/none/1/cold/none was run once");
  for (const CaseRow& row : std::vector(history.runs[0].cases)) {
    history.runs[0].cases.push_back(row);
    history.runs[0].cases.back().repeat = 1;
  }
  EXPECT_EQ(judge_determinism(*cohort_of(history)).verdict, Verdict::kPass) << "repeats do as well as runs";
}

TEST(Acceptance, PreemptionsDependOnTimeAndAreNotCompared) {
  History history = good_history();
  case_of(history, kGlobal).requests[0].metrics["preemptions"] = 5;
  EXPECT_THAT(troubles(judged(history)), IsEmpty());
}

TEST(Acceptance, DemandsNoWin) {
  History history = good_history();
  for (ExperimentReport& run : history.runs) {  // the cache makes everything slower than it was without
    for (CaseRow& row : run.cases) {
      for (RequestRow& request : row.requests) request.metrics["e2e_ms"] *= row.key.mode == "pd-global" ? 5 : 1;
    }
  }
  EXPECT_EQ(gate_of(judged(history), "decision").verdict, Verdict::kPass);
}

TEST(Acceptance, AControlIsOfTheSameRepeat) {
  History history = good_history();
  for (ExperimentReport& run : history.runs) {
    for (const CaseRow& row : std::vector(run.cases)) {
      run.cases.push_back(row);
      run.cases.back().repeat = 1;
    }
  }
  EXPECT_THAT(troubles(judged(history)), IsEmpty());
  std::erase_if(history.runs[1].cases, [](const CaseRow& row) { return row.key == kSplit && row.repeat == 1; });
  EXPECT_THAT(troubles(judged(history)), ElementsAre("decision: insufficient_evidence"));
}

TEST(Acceptance, ParityIsForCheckpoints) {
  History history = good_history();
  EXPECT_FALSE(gate_of(judged(history), "parity").applies);
  EXPECT_EQ(acceptance_json(judged(history))["gates"][5]["verdict"], "not_applicable");
  for (ExperimentReport& run : history.runs) run.provenance.evidence_tier = kTierCheckpoint;
  EXPECT_THAT(troubles(judged(history)), ElementsAre("parity: insufficient_evidence"));
  history.runs[0].parity = {{"transformers", "not_available", "no module", 0, 0}};
  EXPECT_THAT(troubles(judged(history)), ElementsAre("parity: insufficient_evidence"));
  history.runs[0].parity.push_back({"full-attention", "within-tolerance", "", 12, 0.001});
  EXPECT_THAT(troubles(judged(history)), IsEmpty());
}

TEST(Acceptance, LongListsOfFindingsAreCut) {
  History history = good_history();
  for (RequestRow& request : case_of(history, kGlobal).requests) flip_last_digit(request.tokens_digest);
  const Acceptance acceptance = judged(history);
  const GateLine& gate = gate_of(acceptance, "determinism");
  EXPECT_THAT(gate.findings, ::testing::SizeIs(21));
  EXPECT_EQ(gate.findings.back(), "and 30 more");
}

TEST(Acceptance, JsonHasALineAGateAndBothBudgets) {
  const Json json = acceptance_json(judged(good_history()));
  EXPECT_EQ(json["schema"], "nano-mooncake/acceptance/v1");
  EXPECT_EQ(json["verdict"], "accepted");
  std::vector<std::string> gates;
  for (const Json& gate : json["gates"]) gates.push_back(gate["gate"]);
  EXPECT_THAT(gates, ElementsAre("provenance", "determinism", "pressure", "fault", "decision", "parity"));
  EXPECT_EQ(json["pressure"]["verdict"], "pass");
  EXPECT_EQ(json["fault"]["verdict"], "pass");
}

TEST(Acceptance, NamesTheCommandThatCalibrates) {
  PressureOptions options = good_options();
  options.require_calibrated = true;
  const History history = good_history();
  const Acceptance acceptance = *judge_acceptance(*cohort_of(history), good_budget(), options);
  EXPECT_THAT(troubles(acceptance), ElementsAre("pressure: insufficient_evidence"));
  EXPECT_EQ(gate_of(acceptance, "pressure").findings[0], "run: " + calibration_command(options));
}

}  // namespace
}  // namespace nmc::evidence
