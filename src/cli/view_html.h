// A view as a page of its own.
#pragma once

#include <string>

#include "evidence/cohort.h"
#include "evidence/view.h"

namespace nmc::cli {

// Charts where the view has figures to draw, and the rows as `table` below; no script, nothing from elsewhere.
std::string view_html(const evidence::View& view, const evidence::Cohort& cohort, const std::string& table);

}  // namespace nmc::cli
