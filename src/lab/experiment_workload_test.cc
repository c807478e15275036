#include "lab/experiment_workload.h"

#include <gmock/gmock.h>

#include <set>

namespace nmc::lab {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kVocab = 256;

WorkloadSpec spec(std::size_t prefix, std::size_t suffix) {
  return {
      .name = "w", .requests = 8, .groups = 2, .prefix_tokens = prefix, .suffix_tokens = suffix, .output_tokens = 8};
}

std::vector<WorkloadRequest> requests_of(const Workload& workload) {
  std::vector<WorkloadRequest> all;
  for (const auto& wave : workload.waves) all.insert(all.end(), wave.begin(), wave.end());
  return all;
}

TEST(ExperimentWorkload, OneSeedGivesTheSameRequestsAndAnotherGivesOthers) {
  const Workload a = make_workload(spec(32, 8), 1, kVocab, {}), b = make_workload(spec(32, 8), 1, kVocab, {});
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(requests_of(a)[5].prompt, requests_of(b)[5].prompt);
  EXPECT_NE(a.digest, make_workload(spec(32, 8), 2, kVocab, {}).digest);
  EXPECT_NE(a.digest, make_workload(spec(32, 8), 1, kVocab, 2).digest) << "shorter answers are other work";
}

TEST(ExperimentWorkload, GroupsShareTheirPrefixAndNothingElse) {
  const auto all = requests_of(make_workload(spec(32, 8), 1, kVocab, {}));
  const auto prefix = [](const WorkloadRequest& request) {
    return std::vector(request.prompt.begin(), request.prompt.begin() + 32);
  };
  std::set<std::vector<engine::TokenId>> prompts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].prompt.size(), 40u);
    EXPECT_EQ(prefix(all[i]), prefix(all[i % 2]));
    prompts.insert(all[i].prompt);
  }
  EXPECT_NE(prefix(all[0]), prefix(all[1]));
  EXPECT_EQ(prompts.size(), 8u);
}

TEST(ExperimentWorkload, WithoutASuffixAllOfAGroupAreEqual) {
  const auto all = requests_of(make_workload(spec(32, 0), 1, kVocab, {}));
  EXPECT_EQ(all[0].prompt, all[2].prompt);
  EXPECT_NE(all[0].prompt, all[1].prompt);
}

TEST(ExperimentWorkload, TheFirstOfEachGroupComesAloneAndTheOthersTogether) {
  WorkloadSpec together = spec(32, 8);
  together.concurrency = 4;
  std::vector<std::size_t> sizes;
  for (const auto& wave : make_workload(together, 1, kVocab, {}).waves) sizes.push_back(wave.size());
  EXPECT_THAT(sizes, ::testing::ElementsAre(1, 1, 4, 2));
  together.prefix_tokens = 0;
  sizes.clear();
  for (const auto& wave : make_workload(together, 1, kVocab, {}).waves) sizes.push_back(wave.size());
  EXPECT_THAT(sizes, ::testing::ElementsAre(4, 4));
}

TEST(ExperimentWorkload, OtherPromptsAreNobodys) {
  const auto all = requests_of(make_workload(spec(0, 16), 1, kVocab, {}));
  for (const WorkloadRequest& request : all) EXPECT_NE(request.prompt, other_prompt(1, 0, 16, kVocab));
  EXPECT_NE(other_prompt(1, 0, 16, kVocab), other_prompt(1, 1, 16, kVocab));
}

TEST(ExperimentWorkload, TheBuiltInOnesAreRead) {
  const auto specs = parse_workloads(built_in_workloads(), "built in");
  ASSERT_TRUE(specs) << specs.error().message;
  EXPECT_GE(specs->size(), 9u);
}

TEST(ExperimentWorkload, WhatIsNotAsItShouldBeIsNamed) {
  const auto refusal = [](const std::string& text) {
    const auto specs = parse_workloads(text, "w.json");
    return specs ? std::string("taken") : specs.error().message;
  };
  const std::string head = R"({"schema":"nano-mooncake/workloads/v1","workloads":{"a":)";
  const auto one = [&](const char* prefix, const char* suffix, const char* more) {
    return head + R"({"about":"","requests":2,"groups":1,"prefix_tokens":)" + prefix + R"(,"suffix_tokens":)" + suffix +
           R"(,"output_tokens":1,"concurrency":1)" + more + "}}}";
  };
  EXPECT_EQ(refusal(one("1", "0", "")), "taken");
  EXPECT_THAT(refusal("{}"), HasSubstr("w.json: `schema`: missing"));
  EXPECT_THAT(refusal(R"({"schema":"other","workloads":{}})"), HasSubstr("got \"other\""));
  EXPECT_THAT(refusal(head + "{}}}"), HasSubstr("`workloads.a.about`: missing"));
  EXPECT_THAT(refusal(one("-1", "0", "")), HasSubstr("`workloads.a.prefix_tokens`: expected an integer from 0"));
  EXPECT_THAT(refusal(one("0", "0", "")), HasSubstr("expected a prompt of at least one token"));
  EXPECT_THAT(refusal(one("1", "0", R"(,"max_queue":2)")), HasSubstr("expected `prefix_tokens` 0"));
}

}  // namespace
}  // namespace nmc::lab
