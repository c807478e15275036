// Where large files live that can be made or fetched again.
#pragma once

#include "base/files.h"
#include "base/result.h"

namespace nmc::model {

// $NANO_MOONCAKE_CACHE, else $XDG_CACHE_HOME/nano-mooncake, else $HOME/.cache/nano-mooncake; it need not be there.
// kNotFound when the environment has none of them.
Result<Path> cache_folder();

// The file that `make model` fetches, which is SmolLM2-135M-Instruct. kNotFound, saying how to get it, when it isn't
// there.
Result<Path> smollm2_file();

}  // namespace nmc::model
