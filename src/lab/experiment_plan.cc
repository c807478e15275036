#include "lab/experiment_plan.h"

#include <algorithm>
#include <charconv>

#include "lab/experiment_faults.h"

namespace nmc::lab {
namespace {

using evidence::CaseKey;
using Words = std::vector<std::string>;

constexpr std::uint64_t kWorkersMax = 32;

// In the order of first mention, each once.
class Cases {
 public:
  void add(CaseKey key) {
    if (key.mode == "monolithic") {  // which has neither
      key.transfer = "none";
      key.ratio = "1";
    }
    if (std::ranges::find(keys_, key) == keys_.end()) keys_.push_back(std::move(key));
  }

  void add_all(const Words& workloads, const Words& modes, const Words& transfers, const Words& ratios,
               const Words& lifecycles) {
    for (const std::string& workload : workloads)
      for (const std::string& lifecycle : lifecycles)
        for (const std::string& ratio : ratios)
          for (const std::string& transfer : transfers)
            for (const std::string& mode : modes) add({workload, mode, transfer, ratio, lifecycle, "none"});
  }

  // With the same case without it, whose answers the fault's are held against.
  void add_fault(const FaultSpec& fault, CaseKey key) {
    if (key.mode == "monolithic") return;  // faults are for processes
    key.fault = "none";
    add(key);
    key.fault = fault.name;
    add(key);
  }

  std::vector<CaseKey> take() { return std::move(keys_); }

 private:
  std::vector<CaseKey> keys_;
};

CaseKey fault_case(const FaultSpec& fault, const std::string& transfer) {
  return {std::string(fault.workload),  "pd-global", transfer, std::string(fault.ratio),
          std::string(fault.lifecycle), ""};
}

void add_smoke(Cases& cases) {
  const Words all_modes(std::begin(kModes), std::end(kModes));
  cases.add_all({"high-reuse"}, all_modes, {"shm"}, {"1p1d"}, {"cold", "dram-evict"});
  cases.add_all({"overload"}, {"monolithic"}, {"none"}, {"1"}, {"cold"});
  for (const char* fault : {"decode-crash", "corrupt-entry"})
    cases.add_fault(*find_fault(fault), fault_case(*find_fault(fault), "shm"));
}

void add_default(Cases& cases, bool full) {
  const Words all_modes(std::begin(kModes), std::end(kModes));
  Words transfers = {"shm", "tcp"};
  if (full) transfers.emplace_back("direct");
  cases.add_all(
      {"high-reuse", "low-reuse", "exact-repeat", "long-prompt", "short-prompt", "short-decode", "long-decode"},
      all_modes, transfers, {"1p1d"}, {"cold"});
  cases.add_all({"pressure"}, {"monolithic"}, {"none"}, {"1"}, {"cold"});
  cases.add_all({"pressure"}, {"pd-split", "pd-global"}, full ? transfers : Words{"shm"},
                {"1p1d", "2p1d", "1p2d", "2p2d"}, {"cold"});
  cases.add_all({"overload"}, all_modes, {"shm"}, {"1p1d"}, {"cold"});
  cases.add_all(full ? Words{"high-reuse", "exact-repeat", "long-prompt"} : Words{"high-reuse"}, all_modes,
                full ? transfers : Words{"shm"}, {"1p1d"}, {"warm", "dram-evict"});
  for (const FaultSpec& fault : fault_specs()) {
    for (const std::string& transfer : full ? transfers : Words{"shm"})
      cases.add_fault(fault, fault_case(fault, transfer));
  }
}

Words or_words(const Words& chosen, const Words& usual) { return chosen.empty() ? usual : chosen; }

void add_custom(Cases& cases, const PlanOptions& options) {
  const Words modes = or_words(options.modes, Words(std::begin(kModes), std::end(kModes)));
  const Words transfers = or_words(options.transfers, {"shm"});
  const bool only_faults = !options.faults.empty() && options.workloads.empty();
  if (!only_faults) {
    cases.add_all(or_words(options.workloads, {"high-reuse"}), modes, transfers, or_words(options.ratios, {"1p1d"}),
                  or_words(options.lifecycles, {"cold"}));
  }
  for (const std::string& name : options.faults) {
    if (name == "none") continue;
    const FaultSpec& fault = *find_fault(name);
    for (const std::string& workload : or_words(options.workloads, {std::string(fault.workload)}))
      for (const std::string& lifecycle : or_words(options.lifecycles, {std::string(fault.lifecycle)}))
        for (const std::string& ratio : or_words(options.ratios, {std::string(fault.ratio)}))
          for (const std::string& transfer : transfers)
            for (const std::string& mode : or_words(options.modes, {"pd-global"}))
              cases.add_fault(fault, {workload, mode, transfer, ratio, lifecycle, ""});
  }
}

template <typename Known, typename NameOf>
Result<void> check_known(const Words& chosen, const Known& known, NameOf name_of, const char* flag) {
  for (const std::string& word : chosen) {
    std::string names;
    bool found = false;
    for (const auto& one : known) {
      found = found || name_of(one) == word;
      names += (names.empty() ? "" : ", ") + std::string(name_of(one));
    }
    if (!found) return invalid_argument("{}: \"{}\": expected one of {}", flag, word, names);
  }
  return {};
}

}  // namespace

bool PlanOptions::is_custom() const {
  return !(workloads.empty() && modes.empty() && ratios.empty() && transfers.empty() && lifecycles.empty() &&
           faults.empty());
}

Result<Ratio> parse_ratio(std::string_view text) {
  const auto number = [&](char unit, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto used = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || used == text.size() || text[used] != unit || value < 1 || value > kWorkersMax)
      return false;
    text.remove_prefix(used + 1);
    return true;
  };
  const std::string_view whole = text;
  Ratio ratio;
  if (!number('p', ratio.prefill) || !number('d', ratio.decode) || !text.empty())
    return invalid_argument("\"{}\": expected prefill and decode workers, 1 to {} of each, as in 2p1d", whole,
                            kWorkersMax);
  return ratio;
}

Result<std::vector<PlannedCase>> plan_cases(const PlanOptions& options, const std::vector<WorkloadSpec>& workloads) {
  NMC_RETURN_IF_ERROR(check_known(
      options.workloads, workloads, [](const auto& w) { return w.name; }, "--workload"));
  Words faults = options.faults;
  std::erase(faults, "none");
  NMC_RETURN_IF_ERROR(check_known(
      faults, fault_specs(), [](const auto& f) { return f.name; }, "--fault"));
  for (const std::string& ratio : options.ratios) {
    if (const auto parsed = parse_ratio(ratio); !parsed) return Failure(Error(parsed.error()).with_context("--ratio"));
  }
  Cases cases;
  if (options.is_custom())
    add_custom(cases, options);
  else if (options.suite == "smoke")
    add_smoke(cases);
  else
    add_default(cases, options.suite == "full");
  std::vector<CaseKey> keys = cases.take();
  Words named;
  for (const CaseKey& key : keys) named.push_back(key.workload);
  NMC_RETURN_IF_ERROR(check_known(
      named, workloads, [](const auto& w) { return w.name; }, "--workloads"));
  std::vector<PlannedCase> planned;
  for (std::uint64_t repeat = 0; repeat < options.repeats; ++repeat) {
    for (const CaseKey& key : keys) planned.push_back({key, repeat});
    std::ranges::reverse(keys);
  }
  return planned;
}

}  // namespace nmc::lab
