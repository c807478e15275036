#include "cli/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace nmc::cli {
namespace {

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("prompt", "prompt"), 0u);
  EXPECT_EQ(edit_distance("promt", "prompt"), 1u);
  EXPECT_EQ(edit_distance("pormpt", "prompt"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Nearest, NamesTheClosestAndNothingWhenAllAreFar) {
  const std::vector<std::string> words = {"mode", "model", "max-queue", "max-running"};
  EXPECT_EQ(nearest("modle", words), "model");
  EXPECT_EQ(nearest("mod", words), "mode");
  EXPECT_EQ(nearest("max-quue", words), "max-queue");
  EXPECT_EQ(nearest("temperature", words), std::nullopt);
  EXPECT_EQ(nearest("", words), std::nullopt);
  EXPECT_EQ(nearest("xy", std::vector<std::string>{"ab"}), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'm'), words), std::nullopt);
}

TEST(Nearest, AdviceIsReadyForAMessage) {
  const std::vector<std::string> words = {"mode"};
  EXPECT_EQ(did_you_mean("mdoe", words, "--"), ", did you mean --mode?");
  EXPECT_EQ(did_you_mean("temperature", words, "--"), "");
}

}  // namespace
}  // namespace nmc::cli
