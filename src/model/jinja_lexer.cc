#include "model/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "model/jinja_strings.h"
#include "model/unicode.h"

namespace nmc::model::jinja {
namespace {

using Kind = Token::Kind;

// Line breaks as "\n"; one at the very end goes, as Jinja has it.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t space_end(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Char character = utf8_char_at(text, at);
    if (!is_space(character.code)) break;
    at += character.bytes;
  }
  return at;
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char last = utf8_char_before(text, text.size());
    if (!is_space(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// A character by its number; what isn't one becomes U+FFFD.
void append_code(std::string& text, std::uint32_t code) {
  const bool valid = code < 0x110000 && !(code >= 0xD800 && code < 0xE000);
  append_utf8(text, valid ? code : 0xFFFD);
}

// The content of a string literal, escapes as Python reads them. `body` ends in no lone backslash.
Result<std::string> unescape(std::string_view body) {
  std::string text;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      text += body[i];
      continue;
    }
    const char kind = body[++i];
    constexpr std::string_view kNames = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (kind == '\n') continue;
    if (const std::size_t known = kNames.find(kind); known != std::string_view::npos) {
      text += kMeanings[known];
    } else if (digits > 0) {
      std::uint32_t code = 0;
      for (std::size_t d = 0; d < digits; ++d) {
        const int value = i + 1 < body.size() ? hex_value(body[i + 1]) : -1;
        if (value < 0) return invalid_argument("`\\{}` in a string: expected {} hexadecimal digits", kind, digits);
        code = code << 4 | static_cast<std::uint32_t>(value);
        ++i;
      }
      append_code(text, code);
    } else if (kind >= '0' && kind <= '7') {
      std::uint32_t code = static_cast<std::uint32_t>(kind - '0');
      for (int more = 0; more < 2 && i + 1 < body.size() && body[i + 1] >= '0' && body[i + 1] <= '7'; ++more) {
        code = code * 8 + static_cast<std::uint32_t>(body[++i] - '0');
      }
      append_code(text, code);
    } else if (kind == 'N') {
      return unsupported("`\\N` in a string isn't supported");
    } else {
      text += '\\';
      text += kind;
    }
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      Result<void> done = next_part();
      if (!done) return error_at(line_, std::move(done).error());
    }
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void advance_to(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > at_) at_line_start_ = source_[end - 1] == '\n';
    at_ = end;
  }

  Token& add(Kind kind, std::string_view text) {
    return tokens_.emplace_back(Token{.kind = kind, .line = line_, .text = std::string(text)});
  }
  void add_data(std::string_view text) {
    if (!text.empty()) add(Kind::kData, text);
  }

  // Text up to the next tag, and that tag.
  Result<void> next_part() {
    std::size_t open = at_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string::npos || open + 1 >= source_.size()) {
        add_data(rest());
        advance_to(source_.size());
        return {};
      }
      const char kind = source_[open + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++open;
    }
    const char kind = source_[open + 1];
    const std::size_t sign_at = open + 2;
    const char sign = sign_at < source_.size() ? source_[sign_at] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    add_data(trimmed(rest().substr(0, open - at_), signed_tag ? sign : '\0', kind == '{'));
    advance_to(open);
    const std::size_t inside = sign_at + (signed_tag ? 1 : 0);
    if (kind == '#') return comment(inside);
    if (kind == '{') return tag(inside, Kind::kVariableBegin);
    if (const std::optional<std::size_t> end = raw_begin(inside)) return raw(*end);
    return tag(inside, Kind::kBlockBegin);
  }

  // The text before a tag without the white space that the tag takes away.
  std::string_view trimmed(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return without_trailing_space(text);
    if (sign == '+' || is_variable) return text;
    const std::size_t line_begin = text.rfind('\n') + 1;  // 0 when there is none
    if (line_begin == 0 && !at_line_start_) return text;
    return space_end(text, line_begin) == text.size() ? text.substr(0, line_begin) : text;
  }

  // The end of a block tag or comment that closes with `close` ("%}") at `at`: behind the white space that goes with
  // it.
  std::size_t after_close(std::size_t at, char sign) const {
    at += 2;
    if (sign == '-') return space_end(source_, at);
    return sign != '+' && at < source_.size() && source_[at] == '\n' ? at + 1 : at;
  }

  Result<void> comment(std::size_t inside) {
    if (inside == source_.size()) advance_to(inside);  // Jinja lets a template end so
    if (at_ == source_.size()) return {};
    const std::size_t close = source_.find("#}", inside);
    if (close == std::string::npos) return invalid_argument("a comment without its end `#}}`");
    advance_to(after_close(close, close > inside ? source_[close - 1] : '\0'));
    return {};
  }

  // If the tag is `raw`: where its text begins.
  std::optional<std::size_t> raw_begin(std::size_t inside) const {
    std::size_t at = space_end(source_, inside);
    if (!std::string_view(source_).substr(at).starts_with("raw")) return std::nullopt;
    at = space_end(source_, at + 3);
    const std::string_view end = std::string_view(source_).substr(at);
    if (end.starts_with("-%}")) return space_end(source_, at + 3);
    return end.starts_with("%}") ? std::optional(at + 2) : std::nullopt;
  }

  Result<void> raw(std::size_t begin) {
    advance_to(begin);
    if (begin == source_.size()) return {};  // as a comment
    for (std::size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 1)) {
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      const bool is_signed = sign == '-' || sign == '+';
      std::size_t at = space_end(source_, open + (is_signed ? 3 : 2));
      if (!std::string_view(source_).substr(at).starts_with("endraw")) continue;
      at = space_end(source_, at + 6);
      const std::string_view end = std::string_view(source_).substr(at);
      const bool end_signed = end.starts_with("-%}") || end.starts_with("+%}");
      if (!end_signed && !end.starts_with("%}")) continue;
      add_data(trimmed(rest().substr(0, open - at_), is_signed ? sign : '\0', false));
      advance_to(end_signed ? after_close(at + 1, end.front()) : after_close(at, '\0'));
      return {};
    }
    return invalid_argument("`raw` without `endraw`");
  }

  // From behind the opening to behind the end.
  Result<void> tag(std::size_t inside, Kind begin) {
    add(begin, begin == Kind::kBlockBegin ? "{%" : "{{");
    advance_to(inside);
    const bool is_block = begin == Kind::kBlockBegin;
    std::string open;  // brackets that wait for their end
    while (true) {
      if (open.empty() && try_end(is_block)) return {};
      const std::size_t behind_space = space_end(source_, at_);
      if (behind_space > at_) {
        advance_to(behind_space);
        continue;
      }
      if (at_ >= source_.size()) return invalid_argument("a tag without its end `{}`", is_block ? "%}" : "}}");
      NMC_RETURN_IF_ERROR(inner_token(open));
    }
  }

  bool try_end(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    const char sign = peek();
    const bool is_signed = sign == '-' || (is_block && sign == '+');
    if (!rest().substr(is_signed ? 1 : 0).starts_with(close)) return false;
    add(is_block ? Kind::kBlockEnd : Kind::kVariableEnd, close);
    const std::size_t at = at_ + (is_signed ? 1 : 0);
    if (is_block) {
      advance_to(after_close(at, is_signed ? sign : '\0'));
    } else {
      advance_to(is_signed ? space_end(source_, at + 2) : at + 2);
    }
    return true;
  }

  Result<void> inner_token(std::string& open) {
    const char c = peek();
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    const std::size_t name_end = word_end(at_);
    if (name_end > at_) {
      add(Kind::kName, rest().substr(0, name_end - at_));
      advance_to(name_end);
      return {};
    }
    return symbol(open);
  }

  std::size_t word_end(std::size_t at) const {
    while (at < source_.size()) {
      const Utf8Char character = utf8_char_at(source_, at);
      if ((char_classes(character.code) & CharClass::kWord) == 0) break;
      at += character.bytes;
    }
    return at;
  }

  // Behind digits from `at` on, with single underscores between them.
  template <typename IsDigit>
  std::size_t digits_end(std::size_t at, IsDigit is_right) const {
    while (at < source_.size()) {
      const std::size_t digit = source_[at] == '_' ? at + 1 : at;
      if (digit >= source_.size() || !is_right(source_[digit])) break;
      at = digit + 1;
    }
    return at;
  }

  std::size_t float_end() const {
    const std::size_t whole = digits_end(at_, is_digit);
    std::size_t end = whole;
    const auto digit_at = [&](std::size_t at) { return at < source_.size() && is_digit(source_[at]); };
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) end = digits_end(end + 1, is_digit);
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const std::size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + sign)) end = digits_end(end + 1 + sign, is_digit);
    }
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // `a.0.1`: items, not a number
    return end > whole && !after_dot ? end : at_;
  }

  static std::string plain_digits(std::string_view written) {
    std::string digits(written);
    std::erase(digits, '_');
    return digits;
  }

  Result<void> number() {
    if (const std::size_t end = float_end(); end > at_) {
      const std::string digits = plain_digits(rest().substr(0, end - at_));
      add(Kind::kFloat, digits).real = std::strtod(digits.c_str(), nullptr);
      advance_to(end);
      return {};
    }
    const char prefix = peek() == '0' ? static_cast<char>(peek(1) | 0x20) : '\0';
    const int base = prefix == 'b' ? 2 : prefix == 'o' ? 8 : prefix == 'x' ? 16 : 10;
    const auto is_right = [base](char c) {
      const int value = hex_value(c);
      return value >= 0 && value < base;
    };
    std::size_t begin = base == 10 ? at_ : at_ + 2;
    std::size_t end = digits_end(begin, is_right);
    if (base == 10 && peek() == '0') end = digits_end(at_, [](char c) { return c == '0'; });
    if (base != 10 && end == begin) {  // "0x" and no digit: the number 0 and a name
      begin = at_;
      end = at_ + 1;
    }
    const std::string digits = plain_digits(std::string_view(source_).substr(begin, end - begin));
    std::int64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, begin == at_ ? 10 : base);
    if (read.ec != std::errc()) return unsupported("the integer {} has more than 64 bits", digits.substr(0, 40));
    add(Kind::kInteger, digits).integer = value;
    advance_to(end);
    return {};
  }

  Result<void> string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return invalid_argument("a string without its end");
    NMC_ASSIGN_OR_RETURN(const std::string text, unescape(rest().substr(1, end - at_ - 1)));
    add(Kind::kString, text);
    advance_to(end + 1);
    return {};
  }

  Result<void> symbol(std::string& open) {
    constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    std::size_t size = 1;
    if (std::ranges::find(kPairs, rest().substr(0, 2)) != kPairs.end()) {
      size = 2;
    } else if (kSingles.find(peek()) == std::string_view::npos) {
      const std::size_t bytes = utf8_char_at(source_, at_).bytes;
      return invalid_argument("unexpected character `{}`", rest().substr(0, bytes));
    }
    const std::string_view symbol = rest().substr(0, size);
    NMC_RETURN_IF_ERROR(balance(symbol.front(), open));
    add(Kind::kOperator, symbol);
    advance_to(at_ + size);
    return {};
  }

  static Result<void> balance(char symbol, std::string& open) {
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (const std::size_t which = kOpening.find(symbol); which != std::string_view::npos) open += kClosing[which];
    if (kClosing.find(symbol) == std::string_view::npos) return {};
    if (open.empty()) return invalid_argument("unexpected `{}`", symbol);
    if (open.back() != symbol) return invalid_argument("unexpected `{}`, expected `{}`", symbol, open.back());
    open.pop_back();
    return {};
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case Kind::kEnd: return "the end of the template";
    case Kind::kData: return "text";
    case Kind::kString: return "a string";
    default: return fmt::format("`{}`", token.text);
  }
}

Failure error_at(int line, Error error) {
  error.message = fmt::format("line {}: {}", line, error.message);
  return Failure(std::move(error));
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace nmc::model::jinja
