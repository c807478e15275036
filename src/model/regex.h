// Regular expressions as files of tokenizers use them to cut text: a subset of what the Python package takes (the
// syntax of Oniguruma), with its meaning, over the same tables of Unicode.
//
// Goals: a pattern either means exactly what it means there or is refused by name; work is bounded by the text's
// length, whatever the pattern; any bytes are a text. That is why this isn't a library's engine: those at hand have
// other tables, other meanings of \s, \h, $ and {1,3}+, and a limit of work that ends in an error. Non-goals: captures,
// back-references, look-behind; speed beyond what the patterns of real files need, as those that matter have matchers
// of their own (piece_patterns.h).
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/char_set.h"

namespace nmc::model {

// Immutable, thread-safe.
class Regex {
 public:
  // What isn't understood is kUnsupported, what is no pattern kInvalidArgument; either names the construct and its byte
  // in the pattern. A pattern that could match nothing at all is refused too: it cuts nowhere.
  static Result<Regex> compile(std::string_view pattern);
  // That text itself, which isn't empty.
  static Regex literal(std::string_view text);

  struct Span {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  class Search;

  // ---- For the compiler and the matcher
  enum class Op : std::uint8_t {
    kChar,       // the character `code`
    kSet,        // one of sets[set]
    kRun,        // `low` to `high` of sets[set], as many as possible, giving back one by one
    kAtomicRun,  // as many as possible, giving back none
    kSplit,      // goes on here or, if that fails, at `target`
    kLazySplit,  // goes on at `target` or, if that fails, here
    kTry,        // as kSplit, but only if the next byte is one of firsts[set]; else at `target`
    kJump,       // goes on at `target`
    kAhead,      // the program from here to its kAccept matches (`low` == 1) or doesn't; goes on at `target`
    kAtomic,     // the same, and what it matched is taken
    kLineStart,
    kLineEnd,
    kTextStart,
    kTextEnd,
    kAccept,
  };
  static constexpr std::uint32_t kUnbounded = ~std::uint32_t{0};
  struct Instruction {
    Op op = Op::kAccept;
    char32_t code = 0;
    std::uint32_t set = 0;
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t target = 0;
  };
  struct Program {
    std::vector<Instruction> instructions;
    std::vector<CharSet> sets;
    std::vector<std::bitset<256>> firsts;
    std::bitset<256> first;  // the bytes that a match may begin with
  };

 private:
  Regex() = default;

  std::string literal_;  // when not empty, all there is
  Program program_;
};

// The matches in a text from left to right, none overlapping. Both must outlive it. Not thread-safe.
class Regex::Search {
 public:
  Search(const Regex& regex, std::string_view text);

  // Nothing when there is no further match, or when finding one takes more work than any pattern that cuts text in
  // earnest (some hundred steps a byte): then the rest of the text has no matches.
  std::optional<Span> next();
  // The match that begins at `at`.
  std::optional<Span> match_at(std::size_t at);

 private:
  struct Choice {  // where to go on when what was tried fails
    static constexpr std::size_t kNoRun = ~std::size_t{0};
    std::uint32_t instruction = 0;
    std::size_t at = 0;
    std::size_t least = kNoRun;  // of a run, after which `instruction` comes: it gives back down to there
  };
  std::optional<std::size_t> run(std::uint32_t instruction, std::size_t at);
  bool advance(const Instruction& instruction, std::size_t& at);
  bool take_run(const Instruction& instruction, std::size_t& at, std::size_t& least);
  bool take_back(std::size_t base, std::uint32_t& instruction, std::size_t& at);
  bool holds(Op op, std::size_t at) const;

  const Regex& regex_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::uint64_t steps_left_;
  std::vector<Choice> choices_;
};

// The instructions of a pattern. Bounded by the pattern's length and kProgramMax.
Result<Regex::Program> compile_regex(std::string_view pattern);

}  // namespace nmc::model
