// What a report says of where its figures come from.
#pragma once

#include "base/json.h"
#include "evidence/report.h"
#include "model/model.h"

namespace nmc::lab {

evidence::BuildIdentity build_identity();
evidence::MachineIdentity machine_identity();
evidence::ModelIdentity model_identity(const model::Model& model);

// By what load_model() was given: "tiny" has random weights.
std::string_view tier_of_model(std::string_view spec);

struct Origin {
  std::string_view evidence_tier;       // one of evidence::kTier...
  const model::Model* model = nullptr;  // null: no model was run
  Json workload;                        // all that decides what was asked for; its canonical digest is told
  bool of_machine = true;               // false: nothing in the report depends on one
};

// The member "provenance" of every report but that of the experiments, which has a workload a case: "evidence_tier",
// "build", "machine" and "model" or null, "workload_digest".
Json provenance_json(const Origin& origin);
// Of what was computed and not measured: of no machine and no model.
Json simulation_provenance_json(Json workload);

}  // namespace nmc::lab
