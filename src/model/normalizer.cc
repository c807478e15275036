#include "model/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

bool composes(UnicodeForm form) { return form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc; }

// Every form leaves characters below this one as they are, and none of them joins the one before it.
char32_t first_to_look_at(UnicodeForm form) { return form == UnicodeForm::kNfc ? 0x300 : 0x80; }

// Bytes that form no character, and characters that normal forms leave alone: nothing joins them or moves past them.
bool is_inert(char32_t code) { return code == 0xFFFD || (property_table()[code] & kPropertyInert) != 0; }

// A row of characters in which normalization may move and join some.
class Segment {
 public:
  Segment(UnicodeForm form, std::string& out) : form_(form), out_(out) {
    if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options_ |= UTF8PROC_COMPAT;
  }

  void add(char32_t code) {
    std::array<utf8proc_int32_t, 32> parts;  // 18 is the most that any character has
    int last_class = UTF8PROC_BOUNDCLASS_START;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(),
                                static_cast<utf8proc_option_t>(options_ | UTF8PROC_DECOMPOSE), &last_class);
    NMC_ASSERT(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()), "U+{:04X}",
               static_cast<std::uint32_t>(code));
    codes_.insert(codes_.end(), parts.begin(), parts.begin() + count);
  }

  void finish() {
    if (codes_.empty()) return;
    order_marks();
    auto count = static_cast<utf8proc_ssize_t>(codes_.size());
    if (composes(form_)) {
      count =
          utf8proc_normalize_utf32(codes_.data(), count, static_cast<utf8proc_option_t>(options_ | UTF8PROC_COMPOSE));
      NMC_ASSERT(count >= 0);
    }
    codes_.resize(static_cast<std::size_t>(count));
    for (const utf8proc_int32_t code : codes_) append_utf8(out_, static_cast<char32_t>(code));
    codes_.clear();
  }

 private:
  static auto class_of(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

  // Runs of marks by their class. The library's own way takes quadratic time.
  void order_marks() {
    const auto is_mark = [](utf8proc_int32_t code) { return class_of(code) != 0; };
    for (auto run = std::find_if(codes_.begin(), codes_.end(), is_mark); run != codes_.end();) {
      const auto end = std::find_if_not(run, codes_.end(), is_mark);
      std::stable_sort(run, end, [](auto left, auto right) { return class_of(left) < class_of(right); });
      run = std::find_if(end, codes_.end(), is_mark);
    }
  }

  UnicodeForm form_;
  std::string& out_;
  int options_ = UTF8PROC_STABLE;
  std::vector<utf8proc_int32_t> codes_;
};

// Letters that are newer than the library's tables in Debian 12, which are of Unicode 15.
struct NewLetters {
  char32_t first;
  char32_t last;
  std::int32_t to_small;
};
constexpr NewLetters kNewLetters[] = {{0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                      {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
                                      {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
                                      {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                      {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B}};

char32_t to_small(char32_t code) {
  for (const NewLetters& letters : kNewLetters) {
    if (code >= letters.first && code <= letters.last) {
      return static_cast<char32_t>(static_cast<std::int32_t>(code) + letters.to_small);
    }
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_char_at(text, at);
    if (next.code == 0xFFFD) {
      out += text.substr(at, next.bytes);
    } else if (next.code == U'İ') {
      out += "i\u0307";  // the one letter whose small form is two characters
    } else {
      append_utf8(out, to_small(next.code));
    }
    at += next.bytes;
  }
  return out;
}

bool is_space(char32_t code) { return (char_classes(code) & kSpace) != 0; }

std::string_view strip(const StripStep& step, std::string_view text) {
  while (step.left && !text.empty()) {
    const Utf8Char first = utf8_char_at(text, 0);
    if (!is_space(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  while (step.right && !text.empty()) {
    const Utf8Char last = utf8_char_before(text, text.size());
    if (!is_space(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

// Whether all characters are below the first that `form` looks at.
bool is_unchanged(UnicodeForm form, std::string_view text) {
  const unsigned char lead = form == UnicodeForm::kNfc ? 0xCC : 0x80;  // of that first character
  return std::ranges::none_of(text, [lead](char byte) { return static_cast<unsigned char>(byte) >= lead; });
}

struct Apply {
  std::string_view text;
  std::string& storage;

  std::string_view keep(std::string made) const {
    storage = std::move(made);
    return storage;
  }
  std::string_view operator()(UnicodeForm form) const {
    if (is_unchanged(form, text)) return text;
    std::string made;
    made.reserve(text.size() + text.size() / 8);
    append_in_form(form, text, made);
    return keep(std::move(made));
  }
  std::string_view operator()(LowercaseStep) const { return keep(lowercase(text)); }
  std::string_view operator()(const StripStep& step) const { return strip(step, text); }
  std::string_view operator()(const PrependStep& step) const {
    return text.empty() ? text : keep(std::string(step.text).append(text));
  }
  std::string_view operator()(const ReplaceStep& step) const {
    return keep(replace_all(*step.regex, text, step.content));
  }
};

}  // namespace

void append_in_form(UnicodeForm form, std::string_view text, std::string& out) {
  const char32_t first_moving = first_to_look_at(form);
  Segment segment(form, out);
  std::size_t last = 0;        // where the last character that stays began, if it isn't written yet
  std::size_t last_bytes = 0;  // its length, else 0
  const auto write_last = [&] {
    out += text.substr(last, last_bytes);
    last_bytes = 0;
  };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_char_at(text, at);
    if (next.code < first_moving || is_inert(next.code)) {
      segment.finish();
      write_last();
      last = at;
      last_bytes = next.bytes;
    } else {
      const char32_t before = last_bytes > 0 ? utf8_char_at(text, last).code : 0xFFFD;
      if (!is_inert(before)) {
        segment.add(before);
        last_bytes = 0;
      }
      write_last();
      segment.add(next.code);
    }
    at += next.bytes;
  }
  segment.finish();
  write_last();
}

std::string replace_all(const Regex& regex, std::string_view text, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  Regex::Search search(regex, text);
  while (const std::optional<Regex::Span> match = search.next()) {
    out += text.substr(done, match->begin - done);
    out += content;
    done = match->end;
  }
  return out += text.substr(done);
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  for (const Step& step : steps_) text = std::visit(Apply{text, storage}, step);
  return text;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string storage;
  return std::string(apply(text, storage));
}

}  // namespace nmc::model
