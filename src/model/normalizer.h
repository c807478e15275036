// What tokenizers do to text before they cut it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/regex.h"

namespace nmc::model {

enum class UnicodeForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

struct LowercaseStep {};

struct StripStep {  // of white space
  bool left = false;
  bool right = false;
};

struct PrependStep {
  std::string text;  // in front of every text but the empty one
};

struct ReplaceStep {
  std::shared_ptr<const Regex> regex;  // shared by copies of the step
  std::string content;                 // as it is, no references to groups
};

// Immutable, thread-safe.
class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, LowercaseStep, StripStep, PrependStep, ReplaceStep>;

  Normalizer() = default;
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // All steps in order, in time linear in the text but for logarithms; what isn't valid UTF-8 is left as it is. The
  // result is a view of `text` or of `storage`, whichever holds it.
  std::string_view apply(std::string_view text, std::string& storage) const;
  std::string apply(std::string_view text) const;

  bool empty() const { return steps_.empty(); }

 private:
  std::vector<Step> steps_;
};

std::string replace_all(const Regex& regex, std::string_view text, std::string_view content);

// Appends `text` in that form of Unicode.
void append_in_form(UnicodeForm form, std::string_view text, std::string& out);

}  // namespace nmc::model
