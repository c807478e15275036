#include "evidence/canonical.h"

#include <gtest/gtest.h>

namespace nmc::evidence {
namespace {

TEST(CanonicalJson, SortsMembersAndFixesNumbers) {
  const Json json = {{"b", {1, 2.5, -3, true, nullptr}}, {"a", {{"z", "x"}, {"y", 1e-7}}}, {"\x41\xc3\xa4", "\n\"\\"}};
  EXPECT_EQ(canonical_json(json),
            "{\"A\xc3\xa4\":\"\\n\\\"\\\\\",\"a\":{\"y\":0.000000,\"z\":\"x\"},"
            "\"b\":[1,2.500000,-3,true,null]}");
  EXPECT_EQ(canonical_json(Json::object()), "{}");
  EXPECT_EQ(canonical_json(Json::array()), "[]");
}

TEST(CanonicalJson, OrderOfMembersDoesNotCountButThatOfItemsDoes) {
  EXPECT_EQ(canonical_digest({{"a", 1}, {"b", 2}}), canonical_digest({{"b", 2}, {"a", 1}}));
  EXPECT_NE(canonical_digest({1, 2}), canonical_digest({2, 1}));
}

TEST(CanonicalJson, LeavesOutTheDigestsOwnMemberAtTheTopOnly) {
  const Json inner = {{"digest", "x"}};
  EXPECT_EQ(canonical_digest({{"a", inner}, {"digest", "y"}}, "digest"), canonical_digest({{"a", inner}}));
  EXPECT_NE(canonical_digest({{"a", inner}}, "digest"), canonical_digest({{"a", Json::object()}}, "digest"));
}

}  // namespace
}  // namespace nmc::evidence
