#include "model/pre_tokenizer.h"

#include <algorithm>
#include <type_traits>

#include "model/unicode.h"

namespace nmc::model {
namespace {

using Pieces = FunctionRef<void(std::string_view)>;

// Delimiters and what lies between them, in order, to pieces.
class Merger {
 public:
  Merger(std::string_view text, SplitBehavior behavior, Pieces piece)
      : text_(text), behavior_(behavior), piece_(piece) {}

  void add(std::size_t begin, std::size_t end, bool is_delimiter) {
    if (begin == end) return;
    if (!joins(is_delimiter)) {
      give();
      begin_ = begin;
    }
    end_ = end;
    last_is_delimiter_ = is_delimiter;
    if (behavior_ == SplitBehavior::kRemoved && is_delimiter) begin_ = end_;
  }

  // After the last one.
  void give() {
    if (begin_ < end_) piece_(text_.substr(begin_, end_ - begin_));
    begin_ = end_;
  }

 private:
  // Whether what comes belongs to what is held.
  bool joins(bool is_delimiter) const {
    if (begin_ == end_) return false;
    if (behavior_ == SplitBehavior::kContiguous) return is_delimiter == last_is_delimiter_;
    if (behavior_ == SplitBehavior::kMergedWithPrevious) return is_delimiter && !last_is_delimiter_;
    if (behavior_ == SplitBehavior::kMergedWithNext) return !is_delimiter && last_is_delimiter_;
    return false;
  }

  std::string_view text_;
  SplitBehavior behavior_;
  Pieces piece_;
  std::size_t begin_ = 0;  // what is held
  std::size_t end_ = 0;
  bool last_is_delimiter_ = false;
};

void split_whole(std::string_view text, PieceEnd piece_end, Pieces piece) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = piece_end(text, at);
    piece(text.substr(at, end - at));
    at = end;
  }
}

void cut(const SplitStep& step, std::string_view text, Pieces piece) {
  if (step.piece_end != nullptr && step.behavior == SplitBehavior::kIsolated) {
    split_whole(text, step.piece_end, piece);
    return;
  }
  Merger merger(text, step.behavior, piece);
  std::size_t done = 0;
  const auto add_match = [&](std::size_t begin, std::size_t end) {
    merger.add(done, begin, step.invert);
    merger.add(begin, end, !step.invert);
    done = end;
  };
  if (step.piece_end != nullptr) {
    while (done < text.size()) add_match(done, step.piece_end(text, done));
  } else {
    Regex::Search search(*step.regex, text);
    while (const std::optional<Regex::Span> match = search.next()) add_match(match->begin, match->end);
  }
  merger.add(done, text.size(), step.invert);
  merger.give();
}

void cut(const DigitsStep& step, std::string_view text, Pieces piece) {
  const auto is_number = [&](const Utf8Char& c) { return (char_classes(c.code) & kNumber) != 0; };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char first = utf8_char_at(text, at);
    const bool number = is_number(first);
    std::size_t end = at + first.bytes;
    while (end < text.size() && !(number && step.individual)) {
      const Utf8Char next = utf8_char_at(text, end);
      if (is_number(next) != number) break;
      end += next.bytes;
    }
    piece(text.substr(at, end - at));
    at = end;
  }
}

void cut(const MetaspaceStep& step, std::string_view text, bool at_start, Pieces piece) {
  std::string marked;
  const bool prepends =
      step.prepend == MetaspaceStep::Prepend::kAlways || (step.prepend == MetaspaceStep::Prepend::kFirst && at_start);
  if (prepends && text[0] != ' ' && !text.starts_with(step.replacement)) marked = step.replacement;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    marked += text.substr(at, space - at);
    if (space < text.size()) marked += step.replacement;
    at = space + 1;
  }
  const std::string_view whole = marked;
  if (!step.split) {
    piece(whole);
    return;
  }
  // Each mark begins a piece.
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t next = std::min(whole.find(step.replacement, at + 1), whole.size());
    piece(whole.substr(at, next - at));
    at = next;
  }
}

void cut(const ByteLevelStep& step, std::string_view text, Pieces piece) {
  std::string prefixed;
  if (step.add_prefix_space && text[0] != ' ') {
    prefixed.reserve(text.size() + 1);
    prefixed.append(" ").append(text);
    text = prefixed;
  }
  if (step.use_pattern) {
    split_whole(text, gpt2_piece_end, piece);
  } else {
    piece(text);
  }
}

}  // namespace

void PreTokenizer::for_each_piece(std::string_view text, bool at_start, Sink piece) const {
  if (!text.empty()) run(0, text, at_start, piece);
}

void PreTokenizer::run(std::size_t step, std::string_view text, bool at_start, Sink piece) const {
  if (step == steps_.size()) {
    piece(text);
    return;
  }
  bool is_first = at_start;
  const auto next = [&](std::string_view part) {
    // What a Split removed at the front was the start.
    const bool first = is_first && (part.data() == text.data() || std::holds_alternative<MetaspaceStep>(steps_[step]));
    is_first = false;
    if (step + 1 == steps_.size()) {
      piece(part);
    } else {
      run(step + 1, part, first, piece);
    }
  };
  std::visit(
      [&](const auto& cutter) {
        if constexpr (std::is_same_v<std::decay_t<decltype(cutter)>, MetaspaceStep>) {
          cut(cutter, text, at_start, next);
        } else {
          cut(cutter, text, next);
        }
      },
      steps_[step]);
}

}  // namespace nmc::model
