// What a report says of where its figures come from.
#pragma once

#include "evidence/report.h"

namespace nmc::lab {

evidence::BuildIdentity build_identity();
evidence::MachineIdentity machine_identity();

}  // namespace nmc::lab
