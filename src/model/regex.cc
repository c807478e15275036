#include "model/regex.h"

#include "base/check.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

constexpr std::uint64_t kStepsPerByte = 256;
constexpr std::uint64_t kStepsAtLeast = 2048;  // a text may come in a great many pieces

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  Regex regex;
  NMC_ASSIGN_OR_RETURN(regex.program_, compile_regex(pattern));
  return regex;
}

Regex Regex::literal(std::string_view text) {
  NMC_REQUIRE(!text.empty());
  Regex regex;
  regex.literal_ = text;
  return regex;
}

Regex::Search::Search(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), steps_left_(kStepsAtLeast + kStepsPerByte * text.size()) {}

std::optional<Regex::Span> Regex::Search::next() {
  if (!regex_.literal_.empty()) {
    const std::size_t begin = text_.find(regex_.literal_, at_);
    if (begin == text_.npos) return std::nullopt;
    at_ = begin + regex_.literal_.size();
    return Span{begin, at_};
  }
  while (at_ < text_.size() && steps_left_ > 0) {
    if (const std::optional<Span> found = match_at(at_)) {
      at_ = found->end;
      return found;
    }
    at_ += utf8_char_at(text_, at_).bytes;
  }
  return std::nullopt;
}

std::optional<Regex::Span> Regex::Search::match_at(std::size_t at) {
  if (!regex_.program_.first[static_cast<unsigned char>(text_[at])]) return std::nullopt;
  choices_.clear();
  const std::optional<std::size_t> end = run(0, at);
  if (!end) return std::nullopt;
  NMC_ASSERT(*end > at);  // patterns that match nothing aren't compiled
  return Span{at, *end};
}

// A backtracking matcher: what is left to try lies on a stack, so that depth costs memory only, and steps are counted,
// so that time is bounded. Look-ahead and atomic groups call it again, as deep as the pattern nests them.
std::optional<std::size_t> Regex::Search::run(std::uint32_t instruction, std::size_t at) {
  const std::size_t base = choices_.size();
  const auto succeed = [&](std::size_t end) {
    choices_.resize(base);
    return std::optional(end);
  };
  for (;;) {
    if (steps_left_ == 0) {
      choices_.resize(base);
      return std::nullopt;
    }
    --steps_left_;
    const Instruction& now = regex_.program_.instructions[instruction];
    bool fits = true;
    switch (now.op) {
      case Op::kChar:
      case Op::kSet: fits = advance(now, at); break;
      case Op::kRun:
      case Op::kAtomicRun: {
        std::size_t least = at;
        fits = take_run(now, at, least);
        if (fits && now.op == Op::kRun && at > least) choices_.push_back({instruction + 1, at, least});
        break;
      }
      case Op::kSplit: choices_.push_back({now.target, at}); break;
      case Op::kLazySplit:
        choices_.push_back({instruction + 1, at});
        instruction = now.target;
        continue;
      case Op::kTry:
        if (at == text_.size() || !regex_.program_.firsts[now.set][static_cast<unsigned char>(text_[at])]) {
          instruction = now.target;
          continue;
        }
        choices_.push_back({now.target, at});
        break;
      case Op::kJump: instruction = now.target; continue;
      case Op::kAhead:
      case Op::kAtomic: {
        const std::optional<std::size_t> end = run(instruction + 1, at);
        fits = now.op == Op::kAtomic ? end.has_value() : end.has_value() == (now.low == 1);
        if (!fits) break;
        if (now.op == Op::kAtomic) at = *end;
        instruction = now.target;
        continue;
      }
      case Op::kLineStart:
      case Op::kLineEnd:
      case Op::kTextStart:
      case Op::kTextEnd: fits = holds(now.op, at); break;
      case Op::kAccept: return succeed(at);
    }
    if (fits) {
      ++instruction;
    } else if (!take_back(base, instruction, at)) {
      return std::nullopt;
    }
  }
}

bool Regex::Search::advance(const Instruction& instruction, std::size_t& at) {
  if (at == text_.size()) return false;
  const Utf8Char next = utf8_char_at(text_, at);
  const bool fits = instruction.op == Op::kChar ? next.code == instruction.code
                                                : regex_.program_.sets[instruction.set].contains(next.code);
  if (fits) at += next.bytes;
  return fits;
}

// Moves `at` to the end of the longest run; `least` is where its least ends.
bool Regex::Search::take_run(const Instruction& instruction, std::size_t& at, std::size_t& least) {
  const CharSet& set = regex_.program_.sets[instruction.set];
  std::uint32_t count = 0;
  while (count < instruction.high && at < text_.size() && steps_left_ > 0) {
    const Utf8Char next = utf8_char_at(text_, at);
    if (!set.contains(next.code)) break;
    --steps_left_;
    at += next.bytes;
    if (++count == instruction.low) least = at;
  }
  return count >= instruction.low;
}

// Takes the latest choice since `base`, if there is one.
bool Regex::Search::take_back(std::size_t base, std::uint32_t& instruction, std::size_t& at) {
  if (choices_.size() == base) return false;
  Choice& choice = choices_.back();
  if (choice.least != Choice::kNoRun) choice.at -= utf8_char_before(text_, choice.at).bytes;
  instruction = choice.instruction;
  at = choice.at;
  if (choice.least == Choice::kNoRun || choice.at == choice.least) choices_.pop_back();
  return true;
}

bool Regex::Search::holds(Op op, std::size_t at) const {
  const bool at_end = at == text_.size();
  if (op == Op::kTextStart) return at == 0;
  if (op == Op::kTextEnd) return at_end;
  if (op == Op::kLineEnd) return at_end || text_[at] == '\n';
  return at == 0 || (text_[at - 1] == '\n' && !at_end);
}

}  // namespace nmc::model
