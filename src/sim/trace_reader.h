// Traces from files, plain or compressed with zstd. Two forms, told apart by their first line:
//
//   JSONL   a JSON object a line, either of the public traces' fields
//             timestamp      milliseconds from any start
//             input_length   tokens of the prompt, at least 1
//             output_length  tokens of the answer; 0 where it isn't there
//             hash_ids       one whole number a block of the prompt, ceil(input_length / block_tokens) of them;
//                            the same number, the same block with the same blocks before it
//             session        a whole number; may be missing
//           or of the columns below
//   CSV     a line of names, then a line a request; in any order
//             arrival_time   seconds from any start
//             namespace      text; nothing is shared between two of them
//             prefix_id      text; prompts of one namespace with the same one begin alike
//             prefix_tokens  how many tokens that beginning has in this prompt
//             suffix_tokens  tokens of the prompt after it, that no other prompt has
//             output_tokens  may be missing: 0
//             session        may be missing
//
// Other fields and columns are passed over, empty lines too. Of the second form, blocks that lie wholly in the prefix
// are shared; what is left of the prefix and the suffix make up blocks that nobody else has.
#pragma once

#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"
#include "sim/trace.h"

namespace nmc::sim {

struct TraceOptions {
  std::uint32_t block_tokens = 512;
  bool sort = false;  // by arrival, stably; else a request that arrived before the one ahead of it is refused
};

// Errors name file, line, field and what was expected: kInvalidArgument for the content (a trace without requests
// included), kCorrupt for damaged compression, and those of opening the file.
Result<Trace> read_trace(const Path& path, const TraceOptions& options);
Result<Trace> parse_trace(std::string_view bytes, std::string_view name, const TraceOptions& options);

}  // namespace nmc::sim
