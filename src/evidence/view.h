// Six ways to look at the runs of a registry, as data: how they are printed or drawn is the command's business. What
// can't be compared stands apart, with the reason. Nothing depends on the order of records.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "evidence/cohort.h"
#include "evidence/decision.h"

namespace nmc::evidence {

inline constexpr std::string_view kViews[] = {"compare", "trend", "pressure", "frontier", "decision", "faults"};

struct ViewColumn {
  std::string name;  // a member of the rows
  int decimals = 3;  // of numbers that aren't whole
};

struct View {
  std::string name;
  std::vector<ViewColumn> columns;  // what a table shows; rows have more
  std::vector<Json> rows;           // objects
  struct Apart {
    std::string what, why;  // a run or a case
  };
  std::vector<Apart> apart;
  std::vector<std::string> caveats;
  std::vector<std::string> runs;  // that the rows are of
};

// `name` is one of kViews. The trend is of all runs of the cohort's machine, model and kind of evidence, whatever their
// build; the others are of the cohort.
Result<View> make_view(std::string_view name, const History& history, const Cohort& cohort,
                       const DecisionOptions& options);
// Schema nano-mooncake/results-view/v1.
Json view_json(const View& view, const History& history);

}  // namespace nmc::evidence
